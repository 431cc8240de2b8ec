"""`purra tck replay` and `page`: what can be done with reports that are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from purra.errors import PurraError
from purra_tck.commands.app import app

__all__ = ["page", "replay"]


@app.command()
def replay(
    context: typer.Context,
    report: Annotated[Path, typer.Argument(help="A tck.json.")],
    rule: Annotated[str, typer.Argument(metavar="RULE", help="E.g. TOL-007.")],
) -> None:
    """Ask a subject one rule of a report again: the same way, with the same seed.

    Exit codes: those of the command that made the report.
    """
    value = _read(report)
    row = value["rules"].get(rule.upper())
    argv = value["subject"].get("argv")
    if row is None or not argv:
        what = f"{report} has no rule {rule}" if row is None else f"{report} names no subject"
        raise PurraError("invalid_argument", what, where="tck replay")
    words = [*argv, "--only", rule.upper(), "--seed", str(row.get("seed") or value["seed"])]
    typer.echo(f"purra tck {' '.join([*words, '--verbose'])}")
    group = context.find_root().command if context.parent is None else context.parent.command
    group.main([*words, "--verbose"], prog_name="purra tck", standalone_mode=False)


@app.command()
def page(
    reports: Annotated[list[Path], typer.Argument(help="One or more tck.json.")],
    into: Annotated[Path, typer.Option(help="The file to write.")] = Path("index.html"),
) -> None:
    """Make one page of several reports: a row for each subject."""
    from purra_tck import html

    into.write_text(html.page([_read(each) for each in reports]), encoding="utf-8")
    typer.echo(f"{into}: {len(reports)} subjects")


def _read(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"rules", "subject", "totals", "suite", "seed"} <= value.keys():
            raise ValueError("parts of a report are missing")
    except (OSError, ValueError, AttributeError) as error:
        raise PurraError("invalid_argument", f"{path} is no report: {error}", where="tck") from None
    return value
