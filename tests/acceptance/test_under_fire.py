"""Issue B, done when: a plugin's process is killed in the middle of its work, and the run goes on
or ends with one typed error that says whether the call ran (invariant 4)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from purra.journal.events import Event
from purra.manifest.host import Caller
from purra.runs.result import Result
from purra.runs.run import Run
from purra_hosts.app.assembly import Application, open_application
from purra_hosts.app.plan import make_plan
from tests.acceptance.stage import Stage

PATIENCE_S = 30.0
POLL_S = 0.005
"""How often a file of another process is looked for."""
STORE_GONE_S = 5.0
"""Issue B: a run goes on this long after its store's process was killed, at the latest."""


def staged(tmp_path: Path, body: Callable[[Application], Awaitable[None]]) -> Stage:
    """Runs `body` on the puppets, all of them started."""
    stage = Stage(tmp_path).puppets(["hand.write", "hand.look", "hand.stare", "hand.dig"])
    plan = make_plan(stage.manifest, Caller(state=stage.state))

    async def main() -> None:
        async with open_application(plan) as application:
            for route in application.routes.values():
                await route.start()
            with anyio.fail_after(PATIENCE_S):
                await body(application)

    anyio.run(main)
    return stage


def kill(application: Application, plugin: str) -> int:
    """Kills the plugin's process now; its generation."""
    status = application.routes[plugin].status()
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    return status.generation


async def seen(run: Run, kind: str) -> Event:
    """The first committed event of that kind."""
    async for event in run.events():
        if event.kind == kind:
            return event
    raise AssertionError(f"no {kind}")


async def drafted(run: Run, text: str) -> None:
    """Returns when the text was shown as a draft."""
    async for record in run.output():
        if text in record["text"]:
            return


async def journal(application: Application, run: Run) -> list[Event]:
    return [event async for event in application.kernel.runs.events(run.id, follow=False)]


def completed(result: Result, text: str) -> None:
    assert (result.status, result.text, result.error) == ("completed", text, None)


def hanging(tool: str) -> str:
    """A prompt: one call that does not end by itself, a look, and an answer."""
    calls = [[[tool, {"heed": True}]], [["hand.look", {}]]]
    return json.dumps([*({"calls": call} for call in calls), {"text": "went on"}])


def test_a_killed_tool_is_a_coded_error_for_the_model_and_the_next_call_is_served(
    tmp_path: Path,
) -> None:
    """The model reads the code and that the call may have run; a new generation serves the next
    call (SUP-005). A read leaves nothing behind."""

    async def body(application: Application) -> None:
        run = await application.kernel.submit(hanging("hand.stare"))
        await seen(run, "tool.call.claimed")
        await anyio.wait_all_tasks_blocked()
        generation = kill(application, "hand")
        completed(await run.wait(), "went on")
        told = [e.data for e in await journal(application, run) if e.kind == "tool.call.completed"]
        assert [(each["is_error"], each["code"]) for each in told] == [
            (True, "crashed"),
            (False, ""),
        ]
        assert told[0]["value"] == {"error": "hand.stare failed: crashed", "executed": "maybe"}
        assert told[0]["effect_state"] == "not_started"
        assert told[1]["value"] == {"lines": 0}
        assert application.routes["hand"].status().generation == generation + 1

    staged(tmp_path, body)


def test_a_killed_write_blocks_its_run_and_nothing_else(tmp_path: Path) -> None:
    """Whether it was done is unknown, so nobody may go on as if (invariant 7); other runs do."""

    async def body(application: Application) -> None:
        run = await application.kernel.submit(hanging("hand.dig"))
        await seen(run, "tool.call.claimed")
        await anyio.wait_all_tasks_blocked()
        kill(application, "hand")
        result = await run.wait()
        assert result.status == "blocked"
        assert [
            (e.data["code"], e.data["effect_state"]) for e in await ended(application, run)
        ] == [("crashed", "unknown")]
        look = json.dumps([{"calls": [["hand.look", {}]]}, {"text": "looked"}])
        other = await application.kernel.submit(look)
        completed(await other.wait(), "looked")

    staged(tmp_path, body)


async def ended(application: Application, run: Run) -> list[Event]:
    return [e for e in await journal(application, run) if e.kind == "tool.call.completed"]


def test_a_model_killed_before_its_first_delta_is_asked_once_more(tmp_path: Path) -> None:
    """One decision of the ledger stands in the journal, and the run completes (invariant 11)."""
    asked = tmp_path / "asked"

    async def body(application: Application) -> None:
        prompt = json.dumps([{"hang": str(asked), "then": "said"}])
        run = await application.kernel.submit(prompt)
        while not asked.exists():
            await anyio.sleep(POLL_S)
        kill(application, "puppet")
        completed(await run.wait(), "said")
        events = await journal(application, run)
        failed = [e.data for e in events if e.kind == "attempt.failed"]
        decided = [e.data for e in events if e.kind == "recovery.decided"]
        assert [(each["code"], each["visible"]) for each in failed] == [
            ("upstream_stream_interrupted", False)
        ]
        assert [(each["cause"], each["action"], each["used"]) for each in decided] == [
            ("upstream_stream_interrupted", "retry", 1)
        ]

    staged(tmp_path, body)


def test_a_model_killed_after_its_first_delta_is_an_interrupted_stream(tmp_path: Path) -> None:
    """What was shown cannot be taken back, so nothing is asked again (MOD-28)."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        prompt = json.dumps([{"text": "half an ", "hang": "heed"}])
        run = await kernel.submit(prompt)
        await drafted(run, "half an ")
        kill(application, "puppet")
        result = await run.wait()
        assert result.status == "failed" and result.error is not None
        assert result.error["code"] == "upstream_stream_interrupted"
        after = await kernel.submit(json.dumps([{"text": "again"}]))
        completed(await after.wait(), "again")

    staged(tmp_path, body)


def test_a_killed_store_loses_nothing_and_the_run_goes_on(tmp_path: Path) -> None:
    """Everything that was shown is still there, in its place; who follows misses nothing; the run
    has ended within five seconds of the last kill (invariant 3)."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        steps: list[Any] = [{"calls": [["hand.write", {"line": str(n)}]]} for n in range(6)]
        run = await kernel.submit(json.dumps([*steps, {"text": "done"}]))
        shown: list[Event] = []
        killed_at = 0.0
        async for event in run.events():
            shown.append(event)
            store = application.routes["sqlite"].status()
            here = event.kind in ("stream.opened", "tool.call.claimed")
            if here and store.state == "ready" and store.generation <= 3:
                kill(application, "sqlite")
                killed_at = anyio.current_time()
        completed(await run.wait(), "done")
        assert killed_at and anyio.current_time() - killed_at < STORE_GONE_S
        assert await journal(application, run) == shown
        assert [event.seq for event in shown] == list(range(1, len(shown) + 1))
        assert application.routes["sqlite"].status().generation == 4

    stage = staged(tmp_path, body)
    assert stage.lines == [str(n) for n in range(6)]


def test_whoever_follows_and_whoever_waits_outlives_the_store(tmp_path: Path) -> None:
    """A follower from elsewhere, a run that waits for its turn in a session, a cancel by inbox:
    each has a watch on the store, and each goes on when it is back."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        hangs = json.dumps([{"text": "x", "hang": "heed"}])
        first = await kernel.submit(hangs, session="s")
        await drafted(first, "x")
        second = await kernel.submit(json.dumps([{"text": "then"}]), session="s")
        followed: list[str] = []

        async def follow() -> None:
            async for event in kernel.runs.events(second.id, follow=True):
                followed.append(event.kind)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            kill(application, "sqlite")
            await first.cancel()
            assert (await first.wait()).status == "canceled"
            completed(await second.wait(), "then")
        assert followed[0] == "run.started" and followed[-1] == "run.completed"

    staged(tmp_path, body)
