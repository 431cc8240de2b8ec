"""Issue A, done when: a one-tool run makes two model calls, at most 6 commits besides delta
batches, and at most 30 CALL and RESULT frames besides delta batches, watch, touch and
handshakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.manifest.host import Caller
from purra_hosts.app.assembly import open_application
from purra_hosts.app.plan import make_plan
from tests.acceptance.stage import Stage, within_patience
from tests.acceptance.tap import Tap, tapped

MODEL_CALLS = 2
COMMITS = 6
FRAMES = 30
STEPS: list[dict[str, Any]] = [
    {"text": "I write it down.", "calls": [["hand.write", {"line": "once"}]]},
    {"text": "It is written down."},
]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "first"])
def test_a_one_tool_run_costs_no_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    """Counted on the wire, with all adapters in plugins of their own; also the very first run,
    whose plugins start on the way."""
    stage = Stage(tmp_path).puppets(["hand.write"]).with_memory("Be brief.\n")
    plan = make_plan(stage.manifest, Caller(state=stage.state))

    async def main() -> Tap:
        async with within_patience(), open_application(plan) as application:
            if warm:
                for route in application.routes.values():
                    await route.start()
            with tapped(monkeypatch) as tap:
                run = await application.kernel.submit(json.dumps(STEPS))
                events = [event async for event in run.events()]
                result = await run.wait()
            assert (result.status, result.text) == ("completed", STEPS[1]["text"])
            assert events[-1].kind == "run.completed"
            return tap

    tap = anyio.run(main)
    assert stage.lines == ["once"]
    besides = ("delta batch", "watch", "touch")
    frames = tap.of("CALL", "RESULT", "ERROR", but=besides)
    calls = {call: n for (call, kind), n in sorted(tap.frames.items()) if kind == "CALL"}
    print(f"calls: {calls}, CALL and RESULT frames: {frames}")
    assert calls["generate"] == MODEL_CALLS
    assert calls["call"] == 1
    assert 1 <= calls["commit"] <= COMMITS
    assert 2 * sum(calls[call] for call in calls if call not in besides) == frames
    assert frames <= FRAMES
