"""Issue A, done when: approval required and no decider gives `approval_unavailable`, and nothing is
dispatched (design, gateway; TOOL-16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.journal.events import Event
from purra.manifest.host import Caller
from purra.runs.result import Result
from purra_hosts.app.assembly import open_application
from purra_hosts.app.plan import make_plan
from tests.acceptance.stage import Stage, objects, within_patience
from tests.acceptance.tap import Tap, tapped

WRITE = ["hand.write", {"line": "x"}]
BURN: list[Any] = ["hand.burn", {}]
LOOK: list[Any] = ["hand.look", {}]


def staged(tmp_path: Path, **options: str) -> Stage:
    """An agent with a tool that is irreversible, so a person must approve it; there is a file."""
    stage = Stage(tmp_path).puppets(["hand.write", "hand.burn", "hand.look"], **options)  # type: ignore[arg-type]
    stage.state.mkdir()
    (stage.state / "lines").write_text("kept\n")
    return stage


async def played(
    stage: Stage, calls: list[Any], patch: pytest.MonkeyPatch
) -> tuple[list[Event], Result, Tap]:
    prompt = json.dumps([{"text": "I do it.", "calls": calls}, {"text": "never said"}])
    plan = make_plan(stage.manifest, Caller(state=stage.state))
    async with within_patience(), open_application(plan) as application:
        await application.routes["hand"].start()
        with tapped(patch) as tap:
            run = await application.kernel.submit(prompt)
            events = [event async for event in run.events()]
            return events, await run.wait(), tap


@pytest.mark.parametrize(
    "calls", [[BURN], [LOOK, BURN], [BURN, LOOK]], ids=["alone", "last", "first"]
)
def test_without_a_decider_nothing_of_the_batch_is_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[Any]
) -> None:
    """Never approved by itself; one result for each call, and no CALL reaches the plugin."""
    stage = staged(tmp_path)
    events, result, tap = anyio.run(played, stage, calls, monkeypatch)
    assert (result.status, result.effects) == ("failed", ())
    assert result.error is not None and result.error["code"] == "approval_unavailable"
    kinds = [event.kind for event in events]
    assert "tool.call.claimed" not in kinds and "approval.requested" not in kinds
    (refused,) = [event.data for event in events if event.kind == "tool.batch.refused"]
    assert refused["code"] == "approval_unavailable"
    ends = {e.data["name"]: e.data for e in events if e.kind == "tool.call.completed"}
    assert kinds.count("tool.call.completed") == len(calls)
    assert {end["effect_state"] for end in ends.values()} == {"not_started"}
    assert ends["hand.burn"]["code"] == "approval_unavailable"
    assert "hand.look" not in ends or ends["hand.look"]["code"] == "tool_batch_aborted"
    assert kinds.count("stream.opened") == 1
    assert ("call", "CALL") not in tap.frames
    assert tap.frames["generate", "CALL"] == 1
    assert stage.lines == ["kept"]


def test_a_call_that_needs_nobody_is_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above could have failed."""
    stage = staged(tmp_path)
    _, result, tap = anyio.run(played, stage, [WRITE], monkeypatch)
    assert result.status == "completed"
    assert tap.frames["call", "CALL"] == 1
    assert stage.lines == ["kept", "x"]


def test_with_a_decider_the_run_waits_and_nothing_is_dispatched_before_the_word(
    tmp_path: Path,
) -> None:
    """HITL-05, exit 3: the run rests without an owner, until somebody approves."""
    stage = staged(tmp_path, more='approvals = "inbox"')
    prompt = json.dumps([{"calls": [BURN]}, {"text": "burnt"}])
    ran = stage.purra("run", prompt, "--json")
    *events, result = objects(ran.stdout)
    assert (ran.returncode, result["status"]) == (3, "waiting")
    assert "tool.call.claimed" not in [event["kind"] for event in events]
    assert stage.lines == ["kept"]
    approved = stage.purra("approvals", "approve", result["run"], "1.0")
    assert approved.returncode == 0, approved.stderr
    assert stage.lines == ["kept"]
    resumed = stage.purra("runs", "resume", result["run"], "--json")
    *_, end = objects(resumed.stdout)
    assert (resumed.returncode, end["status"], end["text"]) == (0, "completed", "burnt")
    assert [effect["effect_state"] for effect in end["effects"]] == ["committed"]
    assert not (stage.state / "lines").exists()
