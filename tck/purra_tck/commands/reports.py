"""`purra tck replay`, `page`, `diff` and `badge`: what can be done with reports that are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from purra.errors import PurraError
from purra_tck.commands.app import app

__all__ = ["badge", "diff", "page", "replay"]


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


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A tck.json.")],
    after: Annotated[Path, typer.Argument(help="A later one, of the same suite.")],
) -> None:
    """Say which rules have another verdict in a later report.

    Exit codes: 0 no rule is worse, 1 one is, 2 the reports cannot be compared.
    """
    from purra_tck.comparing import differences, heads

    old, new = _read(before), _read(after)
    if old["suite"] != new["suite"]:
        what = f"{before} is of the suite {old['suite']}, {after} of {new['suite']}"
        raise PurraError("invalid_argument", what, where="tck diff")
    for line in heads(old, new):
        typer.echo(line)
    found = differences(old, new)
    for each in found:
        typer.echo(str(each))
    worse = sum(each.worse for each in found)
    typer.echo(f"{len(found)} rules have another verdict, {worse} of them a worse one")
    if worse:
        raise typer.Exit(1)


@app.command()
def badge(
    report: Annotated[Path, typer.Argument(help="A tck.json.")],
    into: Annotated[
        Path | None, typer.Option(help="The file to write; standard output without.")
    ] = None,
) -> None:
    """Make a badge of a report: JSON as shields.io reads it from an address.

    Green is for complete reports, every MUST passed and none waived. A report that does not add up
    gets none. Exit codes: 0, 1 it does not add up, 2 it is no report.
    """
    from purra_tck.comparing import badge_of
    from purra_tck.report import verify

    value = _read(report)
    faults = verify(report)
    for fault in faults:
        typer.echo(f"✗ {fault}", err=True)
    if faults:
        raise typer.Exit(1)
    text = json.dumps(badge_of(value), ensure_ascii=False, indent=1)
    if into is None:
        typer.echo(text)
    else:
        into.write_text(text + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"rules", "subject", "totals", "suite", "seed"} <= value.keys():
            raise ValueError("parts of a report are missing")
    except (OSError, ValueError, AttributeError) as error:
        raise PurraError("invalid_argument", f"{path} is no report: {error}", where="tck") from None
    return value
