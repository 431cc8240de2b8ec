"""`purra tck`: prove a plugin, a host or a store, and look at rules and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from purra.errors import PurraError
from purra_tck import rules_page, suites
from purra_tck.commands.app import app
from purra_tck.commands.host import host
from purra_tck.commands.plugin import plugin
from purra_tck.commands.reports import badge, diff, page, replay
from purra_tck.commands.selftest import selftest
from purra_tck.commands.store import store
from purra_tck.mends import mends
from purra_tck.rules import SUITES, catalogue

__all__ = ["app"]

COMMANDS = (plugin, store, replay, page, diff, badge)
"""Commands that have added themselves."""
app.command()(selftest)
app.command()(host)


@app.command("list")
def list_rules(
    suite: Annotated[str, typer.Argument(help="One of the suites; all without.")] = "",
    page: Annotated[
        bool, typer.Option("--page", help="All, as docs/spec/rules.md has them.")
    ] = False,
) -> None:
    """List the rules: id, level, clause, whether this kit checks it, text."""
    if page:
        typer.echo(rules_page.page(), nl=False)
        return
    if suite and suite not in SUITES:
        raise PurraError(
            "invalid_argument", f"no suite {suite!r}", where="tck", hint=", ".join(SUITES)
        )
    built = {rule_id for name in SUITES for rule_id in suites.of(name)}
    for rule in catalogue().values():
        if not suite or rule.suite == suite:
            mark = "checked" if rule.id in built else "not built"
            typer.echo(f"{rule.id}  {rule.level:<6} §{rule.clause:<5} {mark:<9}  {rule.text}")
    typer.echo(f"{len(built)} of {len(catalogue())} rules are checked")


@app.command()
def explain(rule_id: Annotated[str, typer.Argument(metavar="RULE", help="E.g. STO-013.")]) -> None:
    """Say what a rule demands, by which clause, how it is checked, and who must fail it."""
    rule = catalogue().get(rule_id.upper())
    if rule is None:
        raise PurraError("invalid_argument", f"no rule {rule_id!r}", hint="purra tck list")
    checks = suites.of(rule.suite)
    typer.echo(f"{rule.id}  {rule.level}  clause {rule.clause}  suite {rule.suite}")
    typer.echo(f"  {rule.text}")
    typer.echo(f"  how        {rule.how}")
    typer.echo(f"  saboteurs  {', '.join(rule.saboteurs)}")
    if rule.id in mends():
        typer.echo(f"  mend       {mends()[rule.id]}")
    if rule.id in checks:
        check = checks[rule.id]
        typer.echo(f"  checked by {check.__module__}.{check.__name__}")
        if check.__doc__:
            typer.echo(f"  why        {' '.join(check.__doc__.split())}")
    else:
        typer.echo("  checked by nothing yet: not-run in every report")


@app.command()
def verify(report: Annotated[Path, typer.Argument(help="A tck.json.")]) -> None:
    """Judge a report without its subject: totals, rules that are missing, the rule table."""
    from purra_tck.report import verify as faults_of

    try:
        faults = faults_of(report)
    except ValueError as error:
        raise PurraError("invalid_argument", str(error), where="tck verify") from error
    for fault in faults:
        typer.echo(f"✗ {fault}")
    if faults:
        raise typer.Exit(1)
    typer.echo(f"✓ {report} is complete and adds up")
