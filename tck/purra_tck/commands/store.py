"""`purra tck store`: prove a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purra.errors import PurraError
from purra_tck.commands.app import app

if TYPE_CHECKING:
    from purra_tck.runner import SubjectInfo
    from purra_tck.subjects.store import Storage

__all__ = ["store"]


@app.command()
def store(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="memory, the id of a plugin, the folder of one, or MODULE:FUNCTION of your own.",
        ),
    ],
    only: Annotated[list[str] | None, typer.Option(help="Ids of rules, as `STO-01*`.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write tck.json and junit.xml here.")] = None,
    seed: Annotated[int, typer.Option(help="For all chance in the checks.")] = 1,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="For the plugin; {storage} is a folder."),
    ] = None,
    waivers: Annotated[
        Path | None, typer.Option(help="Known failures: a file with [[waiver]] tables.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run each check once, not twice.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Judge a store by every rule of the contract that is built.

    MODULE:FUNCTION is called with a folder and gives a store (`purra.contracts.store.Store`). It is
    called in processes of the kit's, which are killed and paused.

    Exit codes: 0 conformant in all that ran, 1 not, 2 nothing was selected or found, 3 the kit
    broke, 4 a waiver that is stale or has expired, 5 cut short.
    """
    from purra_tck import suites
    from purra_tck.commands.conduct import conduct
    from purra_tck.rules import of_suite
    from purra_tck.runner import Plan
    from purra_tck.subjects.store import subject_of
    from purra_tck.waivers import load_waivers

    with _storage(subject, _values(config or ())) as (storage, info):
        plan = Plan(
            suite="store",
            subject=info,
            rules=of_suite("store"),
            checks=suites.of("store"),
            open=lambda: subject_of(storage),
            only=tuple(only or ()),
            twice=not once,
            seed=seed,
            waivers=load_waivers(waivers) if waivers else (),
        )
        code = conduct(plan, report, verbose=verbose)
    sys.exit(code)


def _values(texts: list[str] | tuple[str, ...]) -> Mapping[str, Any]:
    """Values are JSON where they can be read as such, else text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise PurraError("invalid_argument", f"{text!r} is not KEY=VALUE", where="--config")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@contextmanager
def _storage(where: str, config: Mapping[str, Any]) -> Iterator[tuple[Storage, SubjectInfo]]:
    """The storage that the whole run is on: all checks share it, under names of their own."""
    from purra_tck.runner import SubjectInfo
    from purra_tck.subjects.store import memory
    from purra_tck.subjects.store_object import ObjectStorage
    from purra_tck.subjects.store_plugin import PluginStorage, find_store

    argv = ("store", where, *(f"--config={key}={json.dumps(config[key])}" for key in config))
    if where == "memory":
        yield memory(), SubjectInfo("memory", kind="store", argv=argv)
        return
    with TemporaryDirectory(prefix="purra-tck-") as folder:
        if ":" in where and "/" not in where:
            yield ObjectStorage(where, Path(folder)), SubjectInfo(where, kind="store", argv=argv)
            return
        found = find_store(where, config)
        manifest = found.manifest
        digest = f"sha256:{manifest.sha256}"
        name = f"{manifest.id}/{found.adapter}"
        info = SubjectInfo(name, manifest.version, digest, "store", argv=argv)
        yield PluginStorage(found, Path(folder)), info
