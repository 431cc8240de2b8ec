"""A host of its own: an agent that looks at alerts, on the kernel's public names alone.

    python docs/examples/triage/host.py triage web-3
    python docs/examples/triage/host.py triage db-7     # waits: paging needs a person
    python docs/examples/triage/host.py approve RUN     # or: reject RUN
    python docs/examples/triage/host.py resume RUN      # after a crash

The model and the store are plugins, each in a process of its own; the tools, the policy and what is
done with events are this program's. Whatever happens to it, the journal knows where a run stands.
"""

import argparse
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from desk import VERDICT, Desk, OnCall

import purra

HERE = Path(__file__).parent
EXITS = {"completed": 0, "waiting": 3}

LINES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "run.owned": lambda data: f"  owned, term {data['term']}",
    "model.round": lambda data: f"  wants {', '.join(call['name'] for call in data['calls'])}",
    "tool.call.claimed": lambda data: f"  runs {data['call']}",
    "tool.call.completed": lambda data: f"  {data['name']}: {data['code'] or 'done'}",
    "approval.decided": lambda data: f"  {data['by']}: {data['decision']}",
}
"""What this host shows of a journal; other kinds are passed over."""


@asynccontextmanager
async def open_desk(state: Path) -> AsyncIterator[purra.Kernel]:
    desk = Desk(HERE, state / "notes")
    opening = purra.open_kernel(
        HERE / "triage.toml",
        tools=[desk.alerts, desk.runbook, desk.file_note, VERDICT],
        policy=OnCall(desk),
        state=state,
    )
    async with opening as kernel:
        yield kernel


async def follow(kernel: purra.Kernel, run: purra.Run, after: int = 0) -> int:
    """Shows what happens, then how the run stands."""
    async for event in run.events(after):
        if event.kind in LINES:
            print(LINES[event.kind](event.data), flush=True)
    result = await run.wait()
    for call in await kernel.runs.asked(run.id):
        print(f"  waits for a person: {call.name} {call.text}")
    if result.status == "completed":
        print(json.dumps(VERDICT.of(result)))
    else:
        print(result.status, result.error and result.error["code"])
    return EXITS.get(result.status, 1)


async def triage(kernel: purra.Kernel, alert: str) -> int:
    run = await kernel.submit(f"Triage {alert}.", session=alert, binding={"alert": alert})
    print(f"run {run.id}", flush=True)
    return await follow(kernel, run)


async def resume(kernel: purra.Kernel, run_id: str) -> int:
    seen = (await kernel.runs.state(run_id)).seq
    return await follow(kernel, await kernel.resume(run_id), seen)


async def decide(kernel: purra.Kernel, run_id: str, decision: str) -> int:
    seen = (await kernel.runs.state(run_id)).seq
    for call in await kernel.runs.asked(run_id):
        await kernel.decide(run_id, call.id, decision, by="on call")
    return await follow(kernel, await kernel.resume(run_id), seen)


async def main(arguments: argparse.Namespace) -> int:
    async with open_desk(arguments.state) as kernel:
        if arguments.command == "triage":
            return await triage(kernel, arguments.what)
        if arguments.command == "resume":
            return await resume(kernel, arguments.what)
        return await decide(kernel, arguments.what, arguments.command)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Looks at alerts.")
    parser.add_argument("command", choices=["triage", "approve", "reject", "resume"])
    parser.add_argument("what", metavar="ALERT|RUN")
    parser.add_argument("--state", type=Path, default=Path("triage-state"))
    try:
        raise SystemExit(anyio.run(main, parser.parse_args()))
    except purra.PurraError as error:  # one line: what, where, what to do
        raise SystemExit(f"error: {error}") from None
