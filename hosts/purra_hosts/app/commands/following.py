"""Following one run to its end on this terminal: what `run` and `runs resume` have in common."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import typer

from purra.manifest.host import Caller
from purra_hosts.app import exits
from purra_hosts.app.assembly import Watchers, open_application
from purra_hosts.app.plan import Plan, make_plan
from purra_hosts.app.render import View, log_line, view

if TYPE_CHECKING:
    from purra.kernel import Kernel
    from purra.runs.result import Result
    from purra.runs.run import Run

__all__ = ["follow_run", "show_run"]

Begin = Callable[["Kernel"], Awaitable["Run"]]


def follow_run(
    manifest: Path,
    params: Mapping[str, str],
    state: Path | None,
    *,
    json: bool,
    logs: bool,
    begin: Begin,
) -> None:
    """Opens the kernel, begins a run, shows it, leaves with its exit code. `logs`: and what the
    plugins say.
    """
    plan = make_plan(manifest, Caller(params=params, state=state))
    shown = view(json=json)
    try:
        watchers = Watchers(logs=log_line if logs else None, events=shown.plugin)
        code = anyio.run(_follow, plan, shown, watchers, begin)
    finally:
        shown.close()
    raise typer.Exit(code)


async def _follow(plan: Plan, shown: View, watchers: Watchers, begin: Begin) -> int:
    async with (
        open_application(plan, watchers=watchers, start_all=True) as application,
        anyio.create_task_group() as tasks,
    ):
        run = await begin(application.kernel)
        tasks.start_soon(_cancel_on_interrupt, run)
        result = await show_run(run, shown)
        tasks.cancel_scope.cancel()
    shown.end(result)
    return exits.OF_STATUS[result.status]


async def show_run(run: Run, shown: View) -> Result:
    """Shows a run while it goes on; its result, which is not shown yet."""
    async with anyio.create_task_group() as readers:
        readers.start_soon(_each, run.output(), shown.draft)
        readers.start_soon(_each, run.events(), shown.event)
    return await run.wait()


async def _each(source: AsyncIterator[Any], show: Callable[[Any], None]) -> None:
    async for item in source:
        show(item)


async def _cancel_on_interrupt(run: Run) -> None:
    """The first signal ends the run in good order, the second this process (APP-04)."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        cancelling = False
        async for _ in signals:
            if cancelling:
                raise KeyboardInterrupt
            cancelling = True
            sys.stderr.write("cancelling; once more to leave at once\n")
            await run.cancel()
