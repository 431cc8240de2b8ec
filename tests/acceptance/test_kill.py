"""Issue A, done when: SIGKILL of the kernel at 20 points spread over a run with a writing tool.

No child is left after 2 s, `purra runs resume` finishes the run, the file shows each effect at most
once; only a kill between claim and receipt may block, by name (RUN-15, TOOL-20, invariants 4, 7).

Two ways to choose the moment. A fuse in a plugin kills at an exact point: before and after each
commit, inside each call. Or the test kills when it reads a line of `--json`, while the kernel goes
on: then the journal that the kill left says what had to follow.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import purra
from purra.journal.state import RunState
from tests.acceptance.stage import Stage, adopted, alive_after, objects, parse, within_patience

pytestmark = pytest.mark.trial

ORPHANS_END_WITHIN_S = 2.0
CALL = "1.0"
PROMPT = json.dumps(
    [{"text": "I write.", "calls": [["hand.write", {"line": "once"}]]}, {"text": "Written."}]
)

UNAIDED = [
    "store:after:run.started",
    "context:provide",
    "store:before:context.assembled",
    "store:after:context.assembled",
    "model:0:middle",
    "model:0:end",
    "store:before:tool.call.claimed",
    "store:after:tool.call.completed",
    "model:1:begin",
    "model:1:middle",
    "store:before:run.completed",
    "store:after:run.completed",
]
"""Nothing of the outside world is in doubt: the run is finished without anybody's help."""
BLOCKING = [
    "store:after:tool.call.claimed",
    "tool:before",
    "tool:after",
    "store:before:tool.call.completed",
]
"""Between claim and receipt: whether the line was written is not known to the journal."""
MOMENTS = ["store:after:drafts", "run.started", "tool.call.claimed", "tool.call.completed"]
"""Where the kernel dies while it goes on: how far it came is not decided here."""


def killed(stage: Stage, point: str, *arguments: str) -> str:
    """Runs a command whose kernel dies at `point`; what it had printed."""
    stage.fuse.write_text(point)
    with adopted() as before:
        ran = stage.purra(*arguments, "--json")
        assert alive_after(before, ORPHANS_END_WITHIN_S) == []
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert not stage.fuse.exists()
    return ran.stdout


def killed_at_line(stage: Stage, kind: str) -> str:
    """Kills the kernel when it has printed an event of `kind`; what it had printed."""
    printed = []
    with adopted() as before:
        with stage.started("run", PROMPT, "--json") as process:
            assert process.stdout is not None
            for line in process.stdout:
                printed.append(line)
                if parse(line)["kind"] == kind:
                    process.kill()
                    break
        assert alive_after(before, ORPHANS_END_WITHIN_S) == []
    assert parse(printed[-1])["kind"] == kind
    return "".join(printed)


def left_by(stage: Stage) -> RunState:
    """What the kill left of the only run."""
    (state,) = anyio.run(stage.looked_at)
    return state


def in_doubt(state: RunState) -> bool:
    """Whether a write was claimed and has no receipt."""
    calls = state.batch.calls.values() if state.batch else ()
    return any(call.phase == "claimed" for call in calls)


def resume(stage: Stage, run: str) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    ran = stage.purra("runs", "resume", run, "--json")
    assert ran.stderr == ""
    *events, result = objects(ran.stdout)
    return ran.returncode, events, result


def assert_finished(stage: Stage, run: str) -> list[dict[str, Any]]:
    """`runs resume` completes the run; the effect stands once."""
    code, events, result = resume(stage, run)
    assert (code, result["status"], result["text"]) == (0, "completed", "Written.")
    assert stage.lines == ["once"]
    assert [effect["effect_state"] for effect in result["effects"]] == ["committed"]
    assert [event["kind"] for event in events].count("tool.call.completed") == 1
    return events


def assert_blocked(stage: Stage, run: str) -> None:
    """Exit 3, and the blocker names the tool and the call, once, however often one asks."""
    code, events, result = resume(stage, run)
    assert (code, result["status"]) == (3, "blocked")
    assert result["error"]["code"] == "effect_unknown"
    (blocker,) = [event["data"] for event in events if event["kind"] == "run.blocked"]
    assert (blocker["code"], blocker["calls"]) == ("effect_unknown", [CALL])
    assert f"hand.write (call {CALL})" in blocker["message"]
    assert len(stage.lines) <= 1


async def reconcile(stage: Stage, run: str, known: str) -> RunState:
    """Somebody has looked at the file, and says so; the run goes on."""
    async with (
        within_patience(),
        purra.open_kernel(stage.manifest, state=stage.state) as kernel,
    ):
        assert await kernel.reconcile(run, CALL, known, "looked at the file")
        async for _ in kernel.runs.events(run, follow=True):
            pass
        return await kernel.runs.state(run)


def assert_reconciled(stage: Stage, run: str) -> None:
    """Evidence ends the doubt, and the run ends as the evidence says."""
    written = stage.lines
    known = "committed" if written else "not_started"
    state = anyio.run(reconcile, stage, run, known)
    assert (state.status, state.final_text) == ("completed", "Written.")
    assert stage.lines == written
    assert [effect["effect_state"] for effect in state.effects] == [known] * len(written)


@pytest.mark.parametrize("point", UNAIDED)
def test_a_kill_with_nothing_in_doubt_is_resumed_unaided(tmp_path: Path, point: str) -> None:
    """TST-08, RUN-15: lease, fold, decide; a kill inside a model call charges one new attempt
    (REC-04)."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    printed = killed(stage, point, "run", PROMPT)
    run = objects(printed)[0]["run"] if printed else left_by(stage).run
    kinds = [event["kind"] for event in assert_finished(stage, run)]
    opened = int(cuts_an_attempt(point))
    assert kinds.count("attempt.superseded") == opened
    assert kinds.count("stream.opened") == 2 + opened
    assert kinds.count("run.owned") == (1 if point == "store:after:run.completed" else 2)


def cuts_an_attempt(point: str) -> bool:
    """Whether the kill is after the commit of `stream.opened` and before that of the round."""
    spans = (
        ("store:after:context.assembled", "store:before:tool.call.claimed"),
        ("store:after:tool.call.completed", "store:before:run.completed"),
    )
    place = UNAIDED.index(point)
    return any(UNAIDED.index(first) <= place <= UNAIDED.index(last) for first, last in spans)


@pytest.mark.parametrize("point", BLOCKING)
def test_a_kill_between_claim_and_receipt_blocks_by_name(tmp_path: Path, point: str) -> None:
    """TST-08, TOOL-20, RUN-15: nothing is repeated; evidence lets the run finish."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    killed(stage, point, "run", PROMPT)
    left = left_by(stage)
    assert in_doubt(left)
    assert_blocked(stage, left.run)
    if point == "tool:after":
        assert_blocked(stage, left.run)
    assert stage.lines == ([] if point in BLOCKING[:2] else ["once"])
    assert_reconciled(stage, left.run)


def test_evidence_may_come_before_anybody_has_taken_the_run_up(tmp_path: Path) -> None:
    """TOOL-20: it is kept for the next owner; evidence for a call without doubt is refused."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    killed(stage, "tool:after", "run", PROMPT)
    run = left_by(stage).run
    evidence = ("--effect", "committed", "--evidence", "it is in the file", "--by", "eve")
    refused = stage.purra("runs", "reconcile", run, "1.1", *evidence)
    assert (refused.returncode, stage.lines) == (2, ["once"])
    assert "call 1.1 is not in doubt" in refused.stderr
    for _ in range(2):  # said twice, it is taken in twice, and counts once
        told = stage.purra("runs", "reconcile", run, CALL, *evidence, "--json")
        assert (told.returncode, told.stderr) == (0, "")
    code, events, result = resume(stage, run)
    assert (code, result["status"]) == (0, "completed")
    kinds = [event["kind"] for event in events]
    assert (kinds.count("inbox.taken"), kinds.count("run.reconciled")) == (2, 1)
    assert [e["data"]["by"] for e in events if e["kind"] == "run.reconciled"] == ["eve"]
    assert "run.blocked" not in kinds
    assert [effect["effect_state"] for effect in result["effects"]] == ["committed"]
    late = stage.purra("runs", "reconcile", run, CALL, *evidence)
    assert (late.returncode, stage.lines) == (1, ["once"])


def test_a_kill_before_the_first_commit_leaves_no_run(tmp_path: Path) -> None:
    """RUN-01: a run exists from its first commit on, or not at all."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    assert killed(stage, "store:before:run.started", "run", PROMPT) == ""
    assert anyio.run(stage.looked_at) == []
    assert stage.lines == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_leaves_what_the_journal_says(tmp_path: Path, moment: str) -> None:
    """Invariant 3: what was printed is stored; whether the run may block, the journal tells."""
    fused = ":" in moment
    stage = Stage(tmp_path).puppets(["hand.write"], fused=fused)
    printed = killed(stage, moment, "run", PROMPT) if fused else killed_at_line(stage, moment)
    left = left_by(stage)
    stored = stage.purra("runs", "events", left.run, "--json").stdout
    assert stored.startswith(printed)
    if in_doubt(left):
        assert_blocked(stage, left.run)
        assert_reconciled(stage, left.run)
    else:
        assert_finished(stage, left.run)


def test_a_run_that_is_killed_again_and_again_ends_all_the_same(tmp_path: Path) -> None:
    """RUN-15, REC-03: each owner dies at the next point; the effect still happens once."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    points: Sequence[str] = (
        "store:after:run.started",
        "model:0:begin",
        "store:before:drafts",
        "store:before:tool.call.claimed",
        "model:1:end",
    )
    killed(stage, points[0], "run", PROMPT)
    run = left_by(stage).run
    for point in points[1:]:
        killed(stage, point, "runs", "resume", run)
    events = assert_finished(stage, run)
    terms = [event["data"]["term"] for event in events if event["kind"] == "run.owned"]
    assert len(terms) == len(points) + 1
    assert terms == sorted(set(terms))
