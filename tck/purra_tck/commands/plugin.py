"""`purra tck plugin`: prove a plugin."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from purra_tck.commands.app import app

__all__ = ["plugin"]


@app.command()
def plugin(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="PLUGIN", help="A folder, a wheel, a tck.toml, or the id of an installed one."
        ),
    ],
    only: Annotated[list[str] | None, typer.Option(help="Ids of rules, as `TOL-*`.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write tck.json, junit.xml and index.html here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For all chance in the checks.")] = 1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Configures the plugin.")
    ] = None,
    fixtures: Annotated[
        Path | None, typer.Option(help="A tck.toml instead of the plugin's own.")
    ] = None,
    waivers: Annotated[
        Path | None, typer.Option(help="Known failures: a file with [[waiver]] tables.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run each check once, not twice.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Judge a plugin by the rules for its manifest and for everything that it provides.

    Exit codes: 0 conformant in all that ran, 1 not, 2 nothing was selected or found, 3 the kit
    broke, 4 a waiver that is stale or has expired, 5 cut short.
    """
    from purra_tck.commands.conduct import conduct
    from purra_tck.plugin_plan import Asked, config_of, judged_package, plan_of
    from purra_tck.waivers import load_waivers

    asked = Asked(
        subject, fixtures, config_of(config or ()), tuple(only or ()), seed, twice=not once
    )
    with judged_package(asked) as package:
        plan = replace(plan_of(package, asked), waivers=load_waivers(waivers) if waivers else ())
        code = conduct(plan, report, verbose=verbose)
        if package.manifest and any(each.kind == "store" for each in package.manifest.offers):
            typer.echo(f"its store is judged by: purra tck store {subject}")
    sys.exit(code)
