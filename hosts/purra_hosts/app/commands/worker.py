"""`purra worker`: takes up what is due, until it is told to stop."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import anyio
import typer

from purra_hosts.app import exits
from purra_hosts.app.options import Logs, Params, StateFolder, params_of

__all__ = ["worker"]


def worker(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The host manifest.")],
    param: Params = None,
    state: StateFolder = None,
    logs: Logs = False,
) -> None:
    """Take up runs of MANIFEST's store that are due: decided, abandoned, or waiting their turn.

    Ctrl-C or SIGTERM stops it; runs that go on then are left to be taken up again.
    """
    from purra.errors import PurraError
    from purra.manifest.host import Caller
    from purra.worker import work
    from purra_hosts.app.assembly import Watchers, open_application
    from purra_hosts.app.plan import make_plan
    from purra_hosts.app.render import log_line

    watchers = Watchers(logs=log_line if logs else None)
    plan = make_plan(manifest, Caller(params=params_of(param), state=state))

    def told(run: str, error: PurraError | None) -> None:
        typer.echo(f"{run} taken up" if error is None else f"{run} left: {error}", err=True)

    async def main() -> None:
        async with (
            open_application(plan, watchers=watchers) as application,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(work, application.kernel, told)
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                typer.echo("working; Ctrl-C stops", err=True)
                await anext(signals)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    raise typer.Exit(exits.COMPLETED)
