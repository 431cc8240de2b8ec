"""`purra tck host`: prove a host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purra.errors import PurraError

if TYPE_CHECKING:
    from purra_tck.drivers.host import HostDriver

__all__ = ["host"]


def host(
    kind: Annotated[str, typer.Argument(help="process or inproc")] = "process",
    only: Annotated[list[str] | None, typer.Option(help="Ids of rules, as `FRM-*`.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write tck.json and junit.xml here.")] = None,
    seed: Annotated[int, typer.Option(help="For all chance in the checks.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="Run each check once, not twice.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")] = False,
) -> None:
    """Judge a host by every rule that is built and applies to its kind: each check twice, for two
    verdicts that differ are red.

    Exit codes: 0 conformant in all that ran, 1 not, 2 nothing was selected, 3 the kit broke, 5 cut
    short.
    """
    from purra_tck import suites
    from purra_tck.commands.conduct import conduct
    from purra_tck.rules import of_suite
    from purra_tck.runner import Plan, SubjectInfo
    from purra_tck.subjects.host import subject_of

    driver = _driver(kind)
    declared = dict.fromkeys(sorted(driver.declares), True)
    plan = Plan(
        suite="host",
        subject=SubjectInfo(kind, kind=driver.kind, declared=declared, argv=("host", kind)),
        rules=of_suite("host", driver.kind),
        checks=suites.of("host"),
        open=lambda: subject_of(driver),
        only=tuple(only or ()),
        twice=not once,
        seed=seed,
    )
    sys.exit(conduct(plan, report, verbose=verbose))


def _driver(kind: str) -> HostDriver:
    from purra_tck.drivers.inproc import InprocDriver
    from purra_tck.drivers.process import ProcessDriver

    known: dict[str, type[HostDriver]] = {"process": ProcessDriver, "inproc": InprocDriver}
    if kind in known:
        return known[kind]()
    hint = f"one of: {', '.join(known)}"
    raise PurraError("invalid_argument", f"no host {kind!r}", where="tck host", hint=hint)
