"""`purra plugins new`: a package to start from, which works as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from purra_hosts.app.options import Json
from purra_hosts.app.printing import json_line

__all__ = ["new"]

Kind = Literal["tool", "model", "context", "store", "policy"]


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The plugin's id, as weather-desk.")],
    kind: Annotated[Kind, typer.Option(help="What it offers.")],
    into: Annotated[Path, typer.Option(help="The folder that its folder is made in.")] = Path("."),
    json: Json = False,
) -> None:
    """Make a new plugin: a package with manifest, code and tests, which works as it is.

    It is a folder of the plugin's name. Nothing is overwritten.
    """
    from purra_hosts.app.scaffold.package import write_package

    folder = write_package(name, kind, into)
    made = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    if json:
        json_line({"plugin": name, "kind": kind, "folder": str(folder), "files": made})
        return
    typer.echo(f"{folder}: a plugin of kind {kind}, {len(made)} files. Next, in that folder:")
    for command, why in (
        ("python -m pytest", "its tests"),
        ("purra run try.toml PROMPT", "an agent that uses it"),
        ("python -m pip install -e .", "from now on every agent here may name it"),
    ):
        typer.echo(f"  {command:<28} {why}")
