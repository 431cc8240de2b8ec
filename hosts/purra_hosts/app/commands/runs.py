"""`purra runs`: look at runs, take one up, end one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from purra_hosts.app import exits
from purra_hosts.app.commands.exporting import export
from purra_hosts.app.commands.looking import with_store
from purra_hosts.app.commands.pruning import pruning
from purra_hosts.app.options import (
    DEFAULT_MANIFEST,
    Json,
    Logs,
    Manifest,
    Params,
    StateFolder,
    params_of,
)
from purra_hosts.app.printing import console, json_line, moment, print_table

if TYPE_CHECKING:
    from purra.kernel import Kernel

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look at runs, take one up, end one, remove old ones.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]


@app.command("list")
def list_runs(
    manifest: Manifest = DEFAULT_MANIFEST,
    limit: Annotated[int, typer.Option(min=1, help="Newest runs to list.")] = 50,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """List runs, newest last."""

    async def work(kernel: Kernel) -> int:
        infos = await kernel.runs.list(limit)
        if json:
            for info in infos:
                json_line(asdict(info))
            return exits.COMPLETED
        rows = [
            (
                info.run,
                "abandoned" if info.lapsed and info.owner else info.status,
                moment(info.started_ms),
                info.session,
                info.prompt[:60],
            )
            for info in infos
        ]
        print_table(("run", "status", "started", "session", "prompt"), rows)
        return exits.COMPLETED

    with_store(manifest, param, state, work)


@app.command()
def show(
    run: RunId,
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Show one run: how it stands, and what it did, when and for how long."""

    async def work(kernel: Kernel) -> int:
        from purra_hosts.app.timeline import Timeline, heading, summary_value

        info = await kernel.runs.show(run)
        state = await kernel.runs.state(run)
        if json:
            json_line(summary_value(info, state))
            return exits.COMPLETED
        out, timeline = console(), Timeline(state.started_ms)
        for line in heading(info, state):
            out.print(line)
        async for event in kernel.runs.events(run, follow=False):
            if line := timeline.line(event):
                out.print(line)
        return exits.COMPLETED

    with_store(manifest, param, state, work)


@app.command()
def events(
    run: RunId,
    manifest: Manifest = DEFAULT_MANIFEST,
    after: Annotated[int, typer.Option(min=0, help="Only events after this sequence.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run ends.")] = False,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Print the journal of a run, exactly as it was committed."""

    async def work(kernel: Kernel) -> int:
        from purra.journal.events import event_value

        async for event in kernel.runs.events(run, after, follow=follow):
            if json:
                json_line(event_value(event))
            else:
                parent = f" ←{event.parent}" if event.parent else ""
                typer.echo(f"{event.seq:>5}  {moment(event.at_ms)}  {event.kind}{parent}")
        return exits.COMPLETED

    with_store(manifest, param, state, work)


@app.command()
def cancel(
    run: RunId,
    manifest: Manifest = DEFAULT_MANIFEST,
    by: Annotated[str, typer.Option(help="Who asks; it stands in the journal.")] = "",
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """End a run, whoever works on it. A run that nobody works on is ended here, at once."""

    async def work(kernel: Kernel) -> int:
        from purra.limits import CANCEL_GRACE_S, LEASE_TTL_MS

        asked = await kernel.cancel(run, by=by)
        with anyio.move_on_after(CANCEL_GRACE_S + LEASE_TTL_MS / 1000):
            async for _ in kernel.runs.events(run, follow=True):
                pass
        status = (await kernel.runs.state(run)).status
        if json:
            json_line({"run": run, "asked": asked, "status": status})
        elif not asked:
            typer.echo(f"{run} had already ended: {status}")
        else:
            typer.echo(f"{run} {status}")
        return exits.COMPLETED if status in ("completed", "failed", "canceled") else exits.BLOCKED

    with_store(manifest, param, state, work)


@app.command()
def reconcile(
    run: RunId,
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call that blocks the run.")],
    effect: Annotated[str, typer.Option(help="committed or not_started")],
    evidence: Annotated[str, typer.Option(help="How you know; it stands in the journal.")],
    manifest: Manifest = DEFAULT_MANIFEST,
    by: Annotated[str, typer.Option(help="Who says so; it stands in the journal.")] = "",
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Say what became of a call whose effect is unknown; the run can then go on.

    A worker or `purra runs resume` goes on with it.
    """

    async def work(kernel: Kernel) -> int:
        taken = await kernel.reconcile(run, call, effect, evidence, by=by)
        if json:
            json_line({"run": run, "call": call, "effect_state": effect, "taken": taken})
        else:
            typer.echo(f"{run} call {call}: {effect}" if taken else f"{run} has ended")
        return exits.COMPLETED if taken else exits.FAILED

    with_store(manifest, param, state, work)


@app.command()
def resume(
    run: RunId,
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    logs: Logs = False,
    json: Json = False,
) -> None:
    """Take up a run that nobody works on, where its journal ends.

    Exit codes as of `purra run`.
    """
    from purra_hosts.app.commands.following import follow_run

    follow_run(
        manifest,
        params_of(param),
        state,
        json=json,
        logs=logs,
        begin=lambda kernel: kernel.resume(run),
    )


app.command(no_args_is_help=True)(export)


@app.command(no_args_is_help=True)
def prune(
    manifest: Manifest = DEFAULT_MANIFEST,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Runs that ended longer ago, as 30d, 12h or 90m.")
    ] = "",
    status: Annotated[
        list[str] | None, typer.Option(help="Only completed, failed or canceled ones; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; else they are listed.")] = False,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Remove runs that have ended, by age or status or both. Without --yes only list them.

    Also what kernels left that have died. Blobs stay: a store has no way to remove them.
    """
    with_store(manifest, param, state, pruning(older_than, status or (), yes=yes, json=json))
