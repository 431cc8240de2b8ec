"""`purra tck selftest`: the kit on trial."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import anyio
import typer

from purra.errors import PurraError
from purra_tck.rules import SUITES

if TYPE_CHECKING:
    from purra_tck.selftest import Trial, Verdict

__all__ = ["selftest"]

LANES_PER_CPU: Final = 2
"""More than half of a selftest is waiting: for what a saboteur never does."""


def selftest(
    suite: Annotated[str, typer.Option(help="One of the suites; all without.")] = "",
    only: Annotated[
        list[str] | None, typer.Option(help="Names of saboteurs, as `never-*`.")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option(help="Write the kill matrix here, as JSON.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Worker processes; 0 = two per CPU.")] = 0,
    seed: Annotated[int, typer.Option(help="For all chance in the checks.")] = 1,
) -> None:
    """Try every saboteur and every reference; fail if one of them has the wrong verdict.

    Exit codes: 0 all as expected, 1 not, 2 nothing was selected.
    """
    from purra_tck import selftest as machinery

    if suite and suite not in SUITES:
        raise PurraError(
            "invalid_argument", f"no suite {suite!r}", where="tck selftest", hint=", ".join(SUITES)
        )
    wanted = machinery.trials(suite, only or (), seed)
    if not wanted:
        typer.echo("no saboteur is selected", err=True)
        raise typer.Exit(2)
    names = [suite] if suite else SUITES
    unproven = [] if only else [fault for name in names for fault in machinery.unproven(name)]
    verdicts = anyio.run(_all_of, wanted, jobs or LANES_PER_CPU * (os.cpu_count() or 1))
    value = machinery.matrix(verdicts, unproven)
    if matrix is not None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)
        matrix.write_text(text + "\n", encoding="utf-8")
    for fault in unproven:
        typer.echo(f"✗ {fault}")
    survivors = sum(bool(verdict.faults) for verdict in verdicts)
    subjects = sum(verdict.trial.kind == "reference" for verdict in verdicts)
    typer.echo(
        f"{len(verdicts) - subjects} saboteurs, {subjects} references, "
        f"{len(value['rules'])} rules seen red: "
        + ("as expected" if value["proven"] else f"{survivors + len(unproven)} NOT AS EXPECTED")
    )
    if not value["proven"]:
        raise typer.Exit(1)


async def _all_of(wanted: list[Trial], jobs: int) -> list[Verdict]:
    from purra_tck.selftest_work import run_trials

    def tell(verdict: Verdict) -> None:
        trial = verdict.trial
        mark = "✗" if verdict.faults else "✓"
        word = "green " if trial.kind == "reference" else "caught"
        rules = ", ".join(list(verdict.rules)[:4]) + (" …" if len(verdict.rules) > 4 else "")
        typer.echo(f"{mark} {word} {trial.name:<28} {rules}  {verdict.duration_s:.1f} s")
        for fault in verdict.faults:
            typer.echo(f"    {fault}")

    return await run_trials(wanted, jobs=jobs, tell=tell)
