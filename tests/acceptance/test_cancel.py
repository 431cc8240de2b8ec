"""Issue A, done when: `purra runs cancel RUN` from another process ends a running run within its
grace, and a blocked or unowned one at once: the command takes the lease (RUN-10, RUN-11)."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from purra.limits import CANCEL_GRACE_S, LEASE_TTL_MS
from tests.acceptance.stage import Stage, adopted, alive_after, objects, parse

TOOLS = ["hand.write", "hand.stare", "hand.dig"]
WRITE = json.dumps([{"calls": [["hand.write", {"line": "once"}]]}, {"text": "Written."}])

HANGING: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "model that heeds": ({"hang": "heed"}, "stream.opened", None),
    "model that is deaf": ({"text": "I will", "hang": "deaf"}, "stream.opened", None),
    "reading tool that is deaf": (
        {"calls": [["hand.stare", {"heed": False}]]},
        "tool.call.claimed",
        None,
    ),
    "writing tool that heeds": (
        {"calls": [["hand.dig", {"heed": True}]]},
        "tool.call.claimed",
        "committed",
    ),
    "writing tool that is deaf": (
        {"calls": [["hand.dig", {"heed": False}]]},
        "tool.call.claimed",
        "unknown",
    ),
}
"""The first round, the event after which it hangs, and what is known of its effect in the end."""


@contextmanager
def running(
    stage: Stage, prompt: str, until: str, *options: str
) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """`purra run --json` that has come to the event `until`; what it printed so far."""
    with stage.started("run", prompt, "--json", *options) as process:
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(parse(line))
            if events[-1]["kind"] == until:
                break
        assert events and events[-1]["kind"] == until
        yield process, events


def rest_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return objects(process.stdout.read())


def of_the_run(events: list[dict[str, Any]]) -> list[str]:
    """Kinds of events without what plugins did meanwhile, which rides on any commit."""
    return [event["kind"] for event in events if not event["kind"].startswith("plugin.")]


def cancelled(stage: Stage, run: str) -> None:
    """The command says that the run has ended, and that it was cancelled."""
    told = stage.purra("runs", "cancel", run, "--by", "a test", "--json")
    assert (told.returncode, told.stderr) == (0, "")
    assert objects(told.stdout) == [{"run": run, "asked": True, "status": "canceled"}]


@pytest.mark.parametrize("what", HANGING)
def test_a_running_run_ends_within_its_grace(tmp_path: Path, what: str) -> None:
    """RUN-11: whatever its adapters do; what is known of a write is told, never guessed."""
    step, until, effect = HANGING[what]
    stage = Stage(tmp_path).puppets(TOOLS)
    with running(stage, json.dumps([step, {"text": "too late"}]), until) as (process, events):
        run = events[0]["run"]
        cancelled(stage, run)
        *rest, result = rest_of(process)
        assert process.wait() == 130
    assert (result["status"], result["error"]["code"]) == ("canceled", "run_canceled")
    assert "a test" in result["error"]["message"]
    at_ms = {event["kind"]: event["at_ms"] for event in rest}
    assert at_ms["run.canceled"] - at_ms["inbox.taken"] <= CANCEL_GRACE_S * 1000
    assert [one["effect_state"] for one in result["effects"]] == ([effect] if effect else [])
    kinds = [event["kind"] for event in [*events, *rest]]
    assert kinds.count("stream.opened") == 1
    assert kinds[-1] == "run.canceled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_first_signal_ends_the_run_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    """APP-04: Ctrl-C on `purra run` is a cancel, with its result and its exit code."""
    stage = Stage(tmp_path).puppets(TOOLS)
    with running(stage, json.dumps([{"hang": "heed"}]), "stream.opened") as (process, _):
        process.send_signal(number)
        *rest, result = rest_of(process)
        assert process.wait() == 130
    assert of_the_run(rest) == ["inbox.taken", "attempt.superseded", "run.canceled"]
    assert result["status"] == "canceled"


def test_a_second_signal_leaves_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """APP-04: whatever hangs; no orphan, and the run can be taken up."""
    stage = Stage(tmp_path).puppets(TOOLS)
    dig = json.dumps([{"calls": [["hand.dig", {"heed": False}]]}])
    with adopted() as before:
        with running(stage, dig, "tool.call.claimed") as (process, events):
            assert process.stdout is not None and process.stderr is not None
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline().startswith("cancelling")
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait() == 130
        assert alive_after(before, 2.0) == []
    cancelled(stage, events[0]["run"])


def killed(stage: Stage, point: str) -> str:
    """A run whose kernel died at `point`."""
    stage.fuse.write_text(point)
    ran = stage.purra("run", WRITE, "--json")
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    return str(objects(ran.stdout)[0]["run"])


def journal(stage: Stage, run: str) -> list[dict[str, Any]]:
    return objects(stage.purra("runs", "events", run, "--json").stdout)


def test_an_unowned_run_is_ended_by_the_command_itself(tmp_path: Path) -> None:
    """The command takes the lease of a run whose kernel is gone; nobody waits for the lapse."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    run = killed(stage, "model:0:middle")
    cancelled(stage, run)
    events = journal(stage, run)
    kinds = [event["kind"] for event in events]
    opened = kinds.index("stream.opened")
    taken = kinds.index("run.owned", opened)
    assert of_the_run(events[taken:]) == [
        "run.owned",
        "inbox.taken",
        "attempt.superseded",
        "run.canceled",
    ]
    assert events[-1]["at_ms"] - events[taken]["at_ms"] < CANCEL_GRACE_S * 1000
    assert events[-1]["at_ms"] - events[opened]["at_ms"] < LEASE_TTL_MS
    assert stage.lines == []


@pytest.mark.parametrize("resumed", [True, False], ids=["blocked", "in doubt"])
def test_a_blocked_run_is_ended_at_once_and_its_doubt_is_kept(
    tmp_path: Path, resumed: bool
) -> None:
    """Invariant 7: what is not known stays unknown, by name, also in the end."""
    stage = Stage(tmp_path).puppets(["hand.write"], fused=True)
    run = killed(stage, "tool:after")
    if resumed:
        assert stage.purra("runs", "resume", run).returncode == 3
    cancelled(stage, run)
    (end,) = [event["data"] for event in journal(stage, run) if event["kind"] == "run.canceled"]
    assert [(one["tool"], one["effect_state"]) for one in end["effects"]] == [
        ("hand.write", "unknown")
    ]
    assert stage.lines == ["once"]
    again = stage.purra("runs", "resume", run, "--json")
    assert (again.returncode, objects(again.stdout)[-1]["status"]) == (130, "canceled")


def test_a_cancel_ends_one_run_and_no_other_of_its_session(tmp_path: Path) -> None:
    """RUN-10: a run that waits its turn is ended while the one before it goes on."""
    stage = Stage(tmp_path).puppets(TOOLS)
    hang, session = json.dumps([{"hang": "heed"}]), ("--session", "s")
    with running(stage, hang, "stream.opened", *session) as (first, events):
        with stage.started("run", hang, "--json", *session) as second:
            queued = waiting_run(stage, events[0]["run"])
            cancelled(stage, queued)
            assert [rest["kind"] for rest in rest_of(second)][-2:] == ["run.canceled", "result"]
            assert second.wait() == 130
        assert first.poll() is None
        assert of_the_run(journal(stage, events[0]["run"]))[-1] == "stream.opened"
        cancelled(stage, events[0]["run"])
        assert first.wait() == 130


def waiting_run(stage: Stage, first: str) -> str:
    """The run behind `first`, once there is one."""
    for _ in range(100):
        listed = [info["run"] for info in objects(stage.purra("runs", "list", "--json").stdout)]
        if len(listed) == 2:
            (second,) = [run for run in listed if run != first]
            return str(second)
    raise AssertionError("the second run was never listed")


def test_a_run_that_has_ended_or_never_was(tmp_path: Path) -> None:
    """RUN-10: a cancel after the end changes nothing and says so."""
    stage = Stage(tmp_path).puppets(TOOLS)
    *events, result = objects(stage.purra("run", json.dumps([{"text": "x"}]), "--json").stdout)
    told = stage.purra("runs", "cancel", result["run"], "--json")
    assert objects(told.stdout) == [{"run": result["run"], "asked": False, "status": "completed"}]
    assert told.returncode == 0
    assert journal(stage, result["run"]) == events
    unknown = stage.purra("runs", "cancel", "no-such-run")
    assert unknown.returncode == 2
    assert "[run_not_found]" in unknown.stderr
