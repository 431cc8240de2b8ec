"""Issue B, done when: whatever a plugin does in a call, there is one coded error at most, the next
call works, and a thousand such calls cost the kernel no memory (invariant 4)."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.journal.events import Event
from purra.manifest.host import Caller
from purra_hosts.app.assembly import Application, open_application
from purra_hosts.app.plan import make_plan
from purra_hosts.restarts import RestartPolicy
from tests.acceptance.stage import Stage

pytestmark = pytest.mark.trial

CALLS = 1000
MIB = 1024 * 1024
FLAT_BYTES = 16 * MIB
FREE_HEAP_BYTES = 96 * MIB
"""With what the C library keeps to itself of some copies of the largest value."""
PATIENCE_S = 240.0
SLEEPS = 5
"""Of the calls; each costs its instance, and so the time of a start."""
ENDS: dict[str, tuple[str, str]] = {
    "print": ("", "printed"),
    "flood": ("", "flooded"),
    "nan": ("tool_result_encoding", ""),
    "surrogate": ("tool_result_encoding", ""),
    "large": ("", '"xxxxxxxx'),
    "object": ("tool_result_encoding", ""),
    "nothing": ("", "null"),
}
"""Tool -> the code of its result, and how what the model is told begins. What is printed is no part
of an answer; a result that is only large is kept, and the model is told its beginning."""
SLEEP = ("tool_timeout", "")


def calls(*names: str, mib: int = 1) -> list[Any]:
    return [[f"wretch.{name}", {"mib": mib} if name == "flood" else {}] for name in names]


def rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def held_bytes() -> int:
    """Resident memory without what the C library keeps free: after a value of 10 MiB its heap has
    holes, which the next one fills or not."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return rss_bytes()


async def ended(application: Application, *rounds: list[Any]) -> dict[str, Event]:
    """Plays the rounds, each followed by one good call; the results by tool name and count."""
    steps: list[Any] = []
    for each in rounds:
        steps += [{"calls": each}, {"calls": calls("good")}]
    run = await application.kernel.submit(json.dumps([*steps, {"text": "went on"}]))
    result = await run.wait()
    assert (result.status, result.text, result.error) == ("completed", "went on", None)
    events = [event async for event in run.events()]
    done = [event for event in events if event.kind == "tool.call.completed"]
    announced = sum(len(each) + 1 for each in rounds)
    assert len(done) == announced == len({event.data["call"] for event in done})
    good = [event.data for event in done if event.data["name"] == "wretch.good"]
    assert [data["code"] for data in good] == [""] * len(rounds)
    return {event.data["name"].removeprefix("wretch."): event for event in done}


def check(done: dict[str, Event], expected: dict[str, tuple[str, str]]) -> None:
    for name, (code, begins) in expected.items():
        data = done[name].data
        assert (data["code"], data["is_error"]) == (code, code != ""), (name, data)
        if code:
            assert data["value"]["executed"] in ("yes", "maybe"), (name, data)
        else:
            told = data["value"] if type(data["value"]) is str else json.dumps(data["value"])
            assert told.startswith(begins), (name, told[:80])
        assert ("blob" in data) == (name == "large")


def test_a_thousand_calls_that_misbehave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PLG-28: a flood of 100 MiB and calls that never end among them; each result is as the table
    says. Nothing is kept of them."""
    often = RestartPolicy(most=100, first_s=0.01, longest_s=0.01)
    monkeypatch.setattr("purra_hosts.app.assembly.RestartPolicy", lambda: often)
    stage = Stage(tmp_path).puppets()
    tools = ", ".join(f'"wretch/wretch.{name}"' for name in (*ENDS, "sleep", "good"))
    text = stage.manifest.read_text().replace('"hand/hand.write", "hand/hand.look"', tools)
    text = text.replace("[plugins.hand]\n", "[plugins.wretch]\n").replace(
        'config = { file = "{state}/lines" }\n', ""
    )
    stage.manifest.write_text(text)
    plan = make_plan(stage.manifest, Caller(state=stage.state))

    async def main() -> None:
        async with open_application(plan) as application:
            with anyio.fail_after(PATIENCE_S):
                await every_one(application)

    async def every_one(application: Application) -> None:
        every = calls(*ENDS)
        check(await ended(application, every, every), ENDS)
        before, count, slept = held_bytes(), 0, 0
        raw: list[int] = []
        held: list[int] = []
        check(await ended(application, calls("flood", mib=100)), {"flood": ENDS["flood"]})
        while count < CALLS:
            if slept < SLEEPS and count >= CALLS * slept / SLEEPS:
                check(await ended(application, calls("sleep")), {"sleep": SLEEP})
                slept, count = slept + 1, count + 1
            check(await ended(application, every, every), ENDS)
            count += 2 * len(every)
            raw.append(rss_bytes() - before)
            held.append(held_bytes() - before)
        with capsys.disabled():
            grown, most = max(held) / MIB, max(raw) / MIB
            print(
                f"\n{count} calls that misbehave: {grown:.1f} MiB more, {most:.1f} with free heap"
            )
        assert max(held) <= FLAT_BYTES
        assert max(raw) <= FREE_HEAP_BYTES
        assert application.routes["wretch"].status().generation == SLEEPS + 1

    anyio.run(main)
