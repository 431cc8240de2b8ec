"""`purra approvals`: what waits for a person, and the person's word."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.commands.looking import with_store
from purra_hosts.app.options import DEFAULT_MANIFEST, Json, Manifest, Params, StateFolder
from purra_hosts.app.printing import json_line, print_table

if TYPE_CHECKING:
    from purra.kernel import Kernel

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="What waits for a person, and the person's word.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
CallId = Annotated[str, typer.Argument(metavar="CALL", help="The call's id, as listed.")]
By = Annotated[str, typer.Option(help="Who decides; it stands in the journal.")]


@app.command("list")
def list_approvals(
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """List the calls that wait, with the arguments that would run."""

    async def work(kernel: Kernel) -> int:
        from purra_hosts.app.render import arguments_line

        waiting = [
            (info.run, call)
            for info in await kernel.runs.list()
            if info.status == "waiting"
            for call in await kernel.runs.asked(info.run)
        ]
        if json:
            for run, call in waiting:
                plan = call.plan
                json_line(
                    {
                        "run": run,
                        "call": call.id,
                        "tool": call.name,
                        "effect": plan["effect"],
                        "arguments": plan["arguments"],
                        "digest": plan["digest"],
                        "expires_ms": call.expires_ms,
                    }
                )
            return exits.COMPLETED
        rows = [
            (run, call.id, call.name, call.plan["effect"], arguments_line(call.plan["arguments"]))
            for run, call in waiting
        ]
        print_table(("run", "call", "tool", "effect", "arguments"), rows)
        return exits.COMPLETED

    with_store(manifest, param, state, work)


def _decide(decision: str, run: str, call: str, options: dict[str, Any], **told: Any) -> None:
    async def work(kernel: Kernel) -> int:
        taken = await kernel.decide(run, call, decision, by=options["by"], **told)
        if options["json"]:
            json_line({"run": run, "call": call, "decision": decision, "taken": taken})
        elif taken:
            typer.echo(f"{run} call {call}: {decision}; a worker or `purra runs resume` goes on")
        else:
            typer.echo(f"{run} has ended")
        return exits.COMPLETED if taken else exits.FAILED

    with_store(options["manifest"], options["param"], options["state"], work)


def _options(**options: Any) -> dict[str, Any]:
    return options


@app.command()
def approve(
    run: RunId,
    call: CallId,
    by: By = "",
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Let CALL of RUN happen as it is."""
    options = _options(by=by, manifest=manifest, param=param, state=state, json=json)
    _decide("approve", run, call, options)


@app.command()
def reject(
    run: RunId,
    call: CallId,
    text: Annotated[str, typer.Option(help="What the model is told.")] = "",
    by: By = "",
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Refuse CALL of RUN; the model is told."""
    options = _options(by=by, manifest=manifest, param=param, state=state, json=json)
    _decide("reject", run, call, options, **({"text": text} if text else {}))


@app.command()
def respond(
    run: RunId,
    call: CallId,
    text: Annotated[str, typer.Option(help="Stands as the call's result.")],
    by: By = "",
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Answer in place of CALL of RUN; the tool does not run."""
    options = _options(by=by, manifest=manifest, param=param, state=state, json=json)
    _decide("respond", run, call, options, text=text)


@app.command()
def edit(
    run: RunId,
    call: CallId,
    arguments: Annotated[str, typer.Option(help="The arguments that shall run, as JSON.")],
    by: By = "",
    manifest: Manifest = DEFAULT_MANIFEST,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Let CALL of RUN happen with other arguments; the run's owner checks them again."""
    try:
        value = json_text.loads(arguments)
    except ValueError as error:
        hint = 'an object, as in \'{"path": "a.md"}\''
        what = f"no JSON: {error}"
        raise PurraError("invalid_argument", what, where="--arguments", hint=hint) from error
    options = _options(by=by, manifest=manifest, param=param, state=state, json=json)
    _decide("edit", run, call, options, arguments=value)
