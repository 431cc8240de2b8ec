"""`purra inspect`: the journal as a local web page."""

from __future__ import annotations

import signal
from typing import Annotated

import anyio
import anyio.from_thread
import anyio.to_thread
import typer

from purra_hosts.app import exits
from purra_hosts.app.options import DEFAULT_MANIFEST, Manifest, Params, StateFolder, params_of

__all__ = ["inspect"]


def inspect(
    manifest: Manifest = DEFAULT_MANIFEST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 = any that is free.")] = 0,
    param: Params = None,
    state: StateFolder = None,
) -> None:
    """Show runs on a web page of this machine: timelines, tool calls, effects, usage, live.

    Bound to loopback, behind the token in the printed address; it only reads. Ctrl-C stops it.
    """
    from purra.manifest.host import Caller
    from purra_hosts.app.assembly import open_application
    from purra_hosts.app.inspect.answers import Answers
    from purra_hosts.app.inspect.server import Page, serve
    from purra_hosts.app.plan import make_plan

    plan = make_plan(manifest, Caller(params=params_of(param), state=state), only_store=True)

    async def main() -> None:
        async with open_application(plan) as application, anyio.create_task_group() as tasks:
            answers = Answers(application.kernel)
            async with anyio.from_thread.BlockingPortal() as portal:
                token = application.kernel.clock.token(16)
                page = Page(port, token, lambda path, query: portal.call(answers.ask, path, query))
                tasks.start_soon(anyio.to_thread.run_sync, serve, page)
                typer.echo(f"{page.address}\nCtrl-C stops", err=False)
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
                await anyio.to_thread.run_sync(page.shutdown)
                page.server_close()

    anyio.run(main)
    raise typer.Exit(exits.COMPLETED)
