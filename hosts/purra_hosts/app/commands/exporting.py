"""`purra runs export`: one run as JSON lines, or as a folder with its blobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.commands.looking import with_store
from purra_hosts.app.options import DEFAULT_MANIFEST, Json, Manifest, Params, StateFolder
from purra_hosts.app.printing import json_line, json_text

if TYPE_CHECKING:
    from purra.kernel import Kernel

__all__ = ["export"]

LINES = "run.jsonl"
BLOBS = "blobs"
FOLDER_MODE = 0o700
"""As that of the state folder: it holds what people wrote."""


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    manifest: Manifest = DEFAULT_MANIFEST,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A new folder: lines and blobs.")
    ] = None,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Print a run as JSON lines: its journal, its inbox, the blobs it names.

    With --to into a folder, and also the blobs themselves, a file each. Nothing is redacted.
    """

    async def work(kernel: Kernel) -> int:
        from purra.runs.export import exported

        values = exported(kernel.store, run)
        if to is None:
            async for value in values:
                json_line(value)
            return exits.COMPLETED
        first = await anext(values)  # a run that is not there makes no folder
        folder = _made(to)
        with (folder / LINES).open("wb") as lines:
            lines.write(json_text(first))
            async for value in values:
                lines.write(json_text(value))
                if value["kind"] == "blob":
                    await _save(kernel, value["digest"], folder / BLOBS)
        if json:
            json_line({"run": run, "folder": str(folder), **value})
        else:
            typer.echo(f"{run}: {value['journal']} events, {value['blob']} blobs in {folder}")
        return exits.COMPLETED

    with_store(manifest, param, state, work)


def _made(folder: Path) -> Path:
    """Raises `PurraError(invalid_argument)`."""
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True)
        (folder / BLOBS).mkdir(mode=FOLDER_MODE)
    except OSError as error:
        what = f"{folder} cannot be made: {error.strerror}"
        hint = "name a folder that is not there yet"
        raise PurraError("invalid_argument", what, where="--to", hint=hint) from None
    return folder


async def _save(kernel: Kernel, digest: str, folder: Path) -> None:
    from purra.runs.export import blob_body

    with (folder / digest.removeprefix("sha256:")).open("wb") as file:
        async for piece in blob_body(kernel.store, digest):
            file.write(piece)
