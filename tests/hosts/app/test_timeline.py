"""`purra runs show`: what a person reads of a run with tools, people, second chances, takeovers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import purra
from purra.errors import AdapterError
from purra.journal.events import Event
from purra.stores.memory import MemoryStore
from purra_hosts.app.timeline import Timeline, heading
from tests.acceptance.stage import Stage, objects
from tests.kernel.parts import ScriptModel, ask, say

STEPS = [
    {"text": "I write.", "calls": [["hand.look", {}], ["hand.write", {"line": "x"}]]},
    {"text": "Written."},
]


def told(text: str) -> list[str]:
    """The lines, without what differs from run to run."""
    text = re.sub(r"[0-9a-f]{12}-[0-9a-f]{8}", "RUN", text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "KERNEL", text)
    text = re.sub(r"\(\d+ ms\)|\(\d+\.\d+ s\)", "(TIME)", text)
    text = re.sub(r"^ +(\d+\.\d{3} s|\d+:\d\d:\d\d)  ", "", text, flags=re.MULTILINE)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", text).splitlines()


def test_a_crash_a_takeover_and_a_persons_evidence(tmp_path: Path) -> None:
    """Issue D 5: what was cut off is named, by tool; who took it up; what was proven."""
    stage = Stage(tmp_path).puppets(fused=True)
    stage.state.mkdir()
    stage.fuse.write_text("tool:after")
    assert stage.purra("run", json.dumps(STEPS)).returncode == -9
    (info,) = objects(stage.purra("runs", "list", "--json").stdout)
    abandoned = told(stage.purra("runs", "show", info["run"]).stdout)
    resumed = stage.purra("runs", "resume", info["run"])
    assert resumed.returncode == 3
    assert "whether hand.write (call 1.1) took effect" in resumed.stderr
    evidence = ("--effect", "committed", "--evidence", "it is in the file")
    assert stage.purra("runs", "reconcile", info["run"], "1.1", *evidence).returncode == 0
    assert stage.purra("runs", "resume", info["run"]).returncode == 0
    lines = told(stage.purra("runs", "show", info["run"]).stdout)
    started = f"started   {json.dumps(STEPS)}"
    assert abandoned[2] in ("status    running", "status    abandoned: its owner is gone")
    assert abandoned[-1].startswith("result    ✓ hand.look")
    assert lines == [
        "run       RUN, WHEN",
        "agent     puppet 1",
        "status    completed",
        "used      2 rounds, 2 tool calls, 6+4 tokens",
        "effect    hand.write (call 1.1): committed",
        "",
        started if len(started) <= 110 else f"{started[:109]}…",
        "owned     by kernel KERNEL",
        "context   nothing",
        "round 1   tool_calls, 3+2 tokens: I write.",
        'tools     hand.look; hand.write line="x"',
        'result    ✓ hand.look (TIME): {"lines":0}',
        "taken up  by kernel KERNEL, term 2; open then: hand.write (call 1.1)",
        "blocked   it is not known whether hand.write (call 1.1) took effect",
        "taken up  by kernel KERNEL, term 4; open then: hand.write (call 1.1)",
        "evidence  hand.write (call 1.1): committed: it is in the file",
        "round 2   stop, 3+2 tokens: Written.",
        "completed",
        "",
        "Written.",
    ]


@purra.tool(effect="irreversible")
def burn(what: str) -> str:
    """Destroys."""
    return f"{what} is \x1b[31mgone"


@pytest.mark.anyio
async def test_second_chances_and_people_are_told() -> None:
    """Issue D 5: retries with their allowance, approvals with who and how long, and no control
    character of a model or a tool."""
    lost = AdapterError("upstream_stream_interrupted", "the line\nbroke", executed="maybe")
    steps = ([lost], ask(("nothing", "{}")), ask(("burn", '{"what": "it"}')), say("\x1b[2Jbye"))
    agent = purra.Agent("a", "7", approvals="inbox")
    store = MemoryStore()
    async with purra.Kernel(
        model=ScriptModel(*steps), tools=[burn], store=store, agent=agent
    ) as kernel:
        run = await kernel.submit("go", session="desk")
        first = await run.wait()
        assert first.status == "waiting", first.error
        assert await kernel.decide(run.id, "3.0", "approve", by="ann")
        assert (await (await kernel.resume(run.id)).wait()).status == "completed"
        state = await kernel.runs.state(run.id)
        above = list(heading(await kernel.runs.show(run.id), state))
        timeline = Timeline(state.started_ms)
        events = [event async for event in kernel.runs.events(run.id, follow=False)]
        lines = [line for event in events if (line := timeline.line(event))]
    found = told("\n".join(Text.from_markup(line).plain for line in [*above, *lines]))
    assert "\x1b" not in "".join(found)
    assert found[1] == "agent     a 7, session desk"
    assert "effect    burn (call 3.0): committed" in found
    for line in (
        "attempt   the line broke [upstream_stream_interrupted]",
        "recovery  upstream_stream_interrupted: tried again (1 of 2)",
        "tools     refused [unknown_tool]",
        "recovery  unknown_tool: the model is told (1 of 3)",
        'tools     burn what="it"',
        "approval  burn (call 3.0) waits for a person",
        "approval  burn (call 3.0): approve by ann (TIME)",
        "result    ✓ burn (TIME): it is \\x1b[31mgone [committed]",
        "\\x1b[2Jbye",
    ):
        assert line in found, found


def event(kind: str, at_ms: int = 1000, seq: int = 9, **data: Any) -> Event:
    return Event(seq, "r", "root", kind, at_ms, None, data)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            event("inbox.taken", entry=1, body={"kind": "cancel", "by": "me"}),
            "cancel    asked for by me",
        ),
        (event("inbox.taken", entry=1, body={"kind": "decision", "by": "me"}), ""),
        (
            event("plugin.stopped", plugin="files", generation=2, reason="plugin.crashed"),
            "plugin    files generation 2 crashed",
        ),
        (
            event("plugin.denied", plugin="files", generation=2, grant="secret:KEY"),
            "plugin    files was denied secret:KEY, which it was not granted",
        ),
        (
            event(
                "model.round",
                attempt=1,
                round=1,
                text="",
                calls=[],
                finish={"reason": "stop"},
                usage={"input_tokens": None, "output_tokens": None},
            ),
            "round 1   stop, tokens not reported",
        ),
        (
            event("approval.expired", call="1.0"),
            "approval  call (call 1.0): nobody decided in time",
        ),
        (
            event(
                "recovery.decided", cause="internal", action="stop", used=0, budget=0, allowed=False
            ),
            "recovery  internal: no second chance",
        ),
    ],
)
def test_lines_of_their_own(given: Event, line: str) -> None:
    assert told(Text.from_markup(Timeline(0).line(given)).plain) == ([line] if line else [])


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0.000 s"), (59_999, "59.999 s"), (60_000, "0:01:00"), (90_061_000, "25:01:01")],
)
def test_times_are_readable(ms: int, text: str) -> None:
    about: Mapping[str, Any] = {"plugin": "p", "generation": 1, "pid": 7}
    line = Text.from_markup(Timeline(1000).line(event("plugin.started", 1000 + ms, **about))).plain
    assert line.strip().startswith(text)
