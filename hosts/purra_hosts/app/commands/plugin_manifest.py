"""`purra plugins manifest`: tool specs from the code into the manifest; whether they are old."""

from __future__ import annotations

import difflib
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.options import Json
from purra_hosts.app.printing import json_line

__all__ = ["manifest"]


def manifest(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Its folder, or its manifest.")
    ] = Path("."),
    check: Annotated[bool, typer.Option("--check", help="Exit 4 if it is out of date.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Bring it up to date.")] = False,
    json: Json = False,
) -> None:
    """Compare a plugin's manifest with its code, or write it anew from the code.

    Names, effects, arguments and descriptions of tools come from decorators, annotations and
    docstrings, read in a process of its own. Without an option: show what --write would change.
    """
    if check and write:
        raise PurraError(
            "invalid_argument", "--check and --write exclude each other", where="plugins manifest"
        )
    from purra_hosts.app.scaffold.specs import specs
    from purra_hosts.app.scaffold.subject import described, find_manifest
    from purra_hosts.app.toml_text import replace_file

    file = find_manifest(path)
    text = file.read_text(encoding="utf-8")
    found = specs(text, described(file))
    _require_right(file, found.text)
    if write and found.text != text:
        replace_file(file, found.text)
    stale = bool(found.differences)
    if json:
        told = {"manifest": str(file), "current": not stale, "written": write}
        json_line({**told, "differences": list(found.differences)})
    else:
        _tell(file, found.differences, check=check, write=write)
        if not (check or write):
            _show(file, text, found.text)
    raise typer.Exit(exits.SETUP if check and stale else exits.COMPLETED)


def _tell(file: Path, differences: tuple[str, ...], *, check: bool, write: bool) -> None:
    for difference in differences:
        typer.echo(f"{file}: {difference}")
    if not differences:
        typer.echo(f"{file}: says what the code says")
    elif write:
        typer.echo(f"{file}: written")
    elif check:
        typer.echo(f"mend: purra plugins manifest {file.parent} --write", err=True)


def _show(file: Path, old: str, new: str) -> None:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), str(file), str(file)
    )
    sys.stdout.writelines(lines)


def _require_right(file: Path, text: str) -> None:
    """Raises `PurraError(plugin_broken)` if what would be written is no manifest."""
    from purra.manifest.plugin import load_plugin

    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, file.name)
        trial.write_text(text, encoding="utf-8")
        try:
            load_plugin(trial)
        except PurraError as error:
            where = error.where.replace(str(trial), str(file))
            message = f"with what the code says, it is not a manifest: {error.message}"
            raise PurraError("plugin_broken", message, where=where, hint=error.hint) from None
