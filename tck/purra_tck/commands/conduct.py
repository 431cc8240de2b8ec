"""What all suites' commands have in common: run, tell each verdict, write the report, and leave.

An interrupt ends the run early and in order: what is known is reported, as cut short.
"""

from __future__ import annotations

import signal
import traceback
from pathlib import Path
from typing import Final

import anyio
import typer
from anyio.abc import TaskStatus

from purra.errors import PurraError
from purra_tck import report as reports
from purra_tck.rules import Rule
from purra_tck.runner import Plan, Report, run
from purra_tck.verdict import Outcome

__all__ = ["conduct"]

KIT_BROKE: Final = 3


def conduct(plan: Plan, folder: Path | None, *, verbose: bool) -> int:
    """Runs `plan` and gives the exit code. `folder`: where the report goes, None = nowhere."""

    told: reports.Told = {}

    def tell(rule: Rule, outcome: Outcome) -> None:
        for line in reports.lines_of(rule, outcome, verbose=verbose, told=told):
            typer.echo(line)

    async def main() -> Report:
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            await tasks.start(_interrupted, scope)
            found = await run(plan, tell, scope)
            tasks.cancel_scope.cancel()
        return found

    try:
        found = anyio.run(main)
        if folder is not None:
            reports.write_report(found, folder)
        return reports.leave(found)
    except PurraError:
        raise
    except Exception:  # whatever it is, it is the kit's own fault and must not look like a verdict
        traceback.print_exc()
        return KIT_BROKE


async def _interrupted(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    """Listens from before the first check on: one that never waits would not let it begin."""
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
