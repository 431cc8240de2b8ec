"""`purra chat`: one session, run after run, on this terminal.

Each line is one run of the session, so what was said stands in the store and another process can
go on with it. Ctrl-C ends the run that goes on and gives the prompt back; at the prompt Ctrl-C or
Ctrl-D leaves (APP-04). Nothing is left behind: the plugins end with the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from purra_hosts.app import exits
from purra_hosts.app.options import Logs, Params, StateFolder, params_of

if TYPE_CHECKING:
    from purra.kernel import Kernel
    from purra_hosts.app.render import View

__all__ = ["chat"]

PROMPT = "> "


def chat(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The host manifest.")],
    session: Annotated[str, typer.Option(help="Go on with this session.")] = "",
    param: Params = None,
    state: StateFolder = None,
    logs: Logs = False,
) -> None:
    """Talk with the agent of MANIFEST.

    Ctrl-C cancels the answer under way; at the prompt it leaves, as does Ctrl-D.
    """
    from purra.manifest.host import Caller
    from purra_hosts.app.assembly import Watchers, open_application
    from purra_hosts.app.plan import make_plan
    from purra_hosts.app.render import log_line, view

    plan = make_plan(manifest, Caller(params=params_of(param), state=state))
    shown = view(json=False)
    watchers = Watchers(logs=log_line if logs else None, events=shown.plugin)

    async def main() -> None:
        async with (
            open_application(plan, watchers=watchers, start_all=True) as application,
            anyio.create_task_group() as tasks,
        ):
            kernel = application.kernel
            name = session or f"chat-{kernel.clock.token(4)}"
            typer.echo(f"session {name}; Ctrl-D leaves", err=True)
            while (line := await _read_line()) is not None:
                if line.strip():
                    await _answer(kernel, line, name, shown)
            tasks.cancel_scope.cancel()

    try:
        anyio.run(main)
    finally:
        shown.close()
    raise typer.Exit(exits.COMPLETED)


async def _read_line() -> str | None:
    """The next line; None at its end or at Ctrl-C. The loop goes on while a person thinks.

    Read on a daemon thread: nothing can end a read of a terminal, and a thread that the process
    waits for would keep it alive after the person has left.
    """
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def read() -> None:
        try:
            given = input(PROMPT) if sys.stdin.isatty() else _piped()
        except (EOFError, OSError, ValueError):
            given = None
        with contextlib.suppress(RuntimeError):  # the loop may be over by now
            loop.call_soon_threadsafe(_give, line, given)

    with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
        # Only now: whoever sees the prompt may interrupt it.
        threading.Thread(target=read, daemon=True).start()
        interrupted = asyncio.ensure_future(anext(interrupts))
        either: list[asyncio.Future[Any]] = [line, interrupted]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
    if line.done():
        return line.result()
    sys.stderr.write("\n")
    return None


def _give(line: asyncio.Future[str | None], given: str | None) -> None:
    if not line.done():
        line.set_result(given)


def _piped() -> str | None:
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


async def _answer(kernel: Kernel, prompt: str, session: str, shown: View) -> None:
    from purra_hosts.app.commands.following import show_run

    run = await kernel.submit(prompt, session=session)
    with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
        async with anyio.create_task_group() as tasks:

            async def cancel_on_interrupt() -> None:
                async for _ in interrupts:
                    await run.cancel()

            tasks.start_soon(cancel_on_interrupt)
            result = await show_run(run, shown)
            tasks.cancel_scope.cancel()
    shown.end(result)
