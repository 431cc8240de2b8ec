"""Issue A, done when: `purra run --json` prints one object per committed event and the result;
`purra runs events --json` prints exactly the same events again (APP-03, RUN-03, RUN-05)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from purra.journal.events import KINDS, TERMINAL
from tests.acceptance.stage import Stage, objects, parse

RESULT = ["kind", "status", "text", "usage", "error", "effects", "run"]
EVENT = ["seq", "run", "thread", "kind", "at_ms", "parent", "data"]

ANSWERS: list[dict[str, Any]] = [
    {"text": "I look – and write «ü».", "calls": [["hand.write", {"line": "größe\u2028x"}]]},
    {"text": "Done: 🐈"},
]
FAILS: list[dict[str, Any]] = [{"text": "", "calls": []}, {"text": ""}]
REFUSED: list[dict[str, Any]] = [{"calls": [["hand.burn", {}]]}, {"text": "never said"}]


@pytest.mark.parametrize(
    ("steps", "code", "status"),
    [
        (ANSWERS, 0, "completed"),
        (FAILS, 1, "failed"),
        (REFUSED, 1, "failed"),
    ],
    ids=["answers", "fails", "refused"],
)
def test_the_journal_is_printed_once_live_and_the_same_again(
    tmp_path: Path, steps: list[dict[str, Any]], code: int, status: str
) -> None:
    """EVT-01, STR-02, STR-05, APP-03, RUN-09: exactly one result, last, with exactly its fields,
    and its exit code."""
    stage = Stage(tmp_path).puppets(["hand.write", "hand.burn"])
    ran = stage.purra("run", json.dumps(steps), "--json")
    assert (ran.returncode, ran.stderr) == (code, "")
    *events, result = objects(ran.stdout)
    assert list(result) == RESULT
    assert (result["kind"], result["status"]) == ("result", status)
    for event in events:
        assert list(event) == EVENT
        assert KINDS[event["kind"]].fields <= event["data"].keys()
        assert event["run"] == result["run"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["kind"] for event in events if event["kind"] in TERMINAL] == [f"run.{status}"]
    assert events[-1]["kind"] == f"run.{status}"
    end = events[-1]["data"]
    assert result["text"] == end.get("text", "")
    for field in ("usage", "effects"):
        assert result[field] == end[field]
    assert result["error"] == end.get("error")

    told = stage.purra("runs", "events", result["run"], "--json")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == ran.stdout.splitlines()[:-1]


def test_effects_and_text_are_those_of_the_run(tmp_path: Path) -> None:
    """OUT-05, invariant 7: the answer stands once, a committed write is said to be committed; and
    another run in the same file changes nothing of it (RUN-19)."""
    stage = Stage(tmp_path).puppets(["hand.write"])
    printed = stage.purra("run", json.dumps(ANSWERS), "--json").stdout
    *events, result = objects(printed)
    assert result["text"] == ANSWERS[1]["text"]
    assert result["error"] is None
    assert result["effects"] == [
        {
            "call": "1.0",
            "tool": "hand.write",
            "effect": "world_write",
            "effect_state": "committed",
        }
    ]
    assert result["usage"] == {"input_tokens": 6, "output_tokens": 4, "unreported_attempts": 0}
    assert (stage.state / "lines").read_text() == "größe\u2028x\n"
    kinds = [event["kind"] for event in events]
    assert kinds.count("model.round") == 2
    assert kinds.count("output.promoted") == 2

    other = objects(stage.purra("run", json.dumps([{"text": "2"}]), "--json").stdout)
    assert other[-1]["run"] != result["run"]
    rest = stage.purra("runs", "events", result["run"], "--json", "--after", "3")
    assert rest.stdout.splitlines() == printed.splitlines()[3:-1]


def test_json_does_not_depend_on_the_locale(tmp_path: Path) -> None:
    """APP-03: strict JSON is UTF-8, and plain text never ends a command either."""
    stage = Stage(tmp_path).puppets(["hand.write"])
    prompt = json.dumps([{"text": "猫 🐈"}])
    told = stage.purra("run", prompt, "--json", PYTHONIOENCODING="latin-1")
    assert objects(told.stdout)[-1]["text"] == "猫 🐈"
    plain = stage.purra("run", prompt, PYTHONIOENCODING="latin-1")
    assert (plain.returncode, plain.stdout) == (0, "\\u732b \\U0001f408\n")


def test_a_reader_that_leaves_early_gets_no_trace(tmp_path: Path) -> None:
    """APP-03: `purra run … | head -1`; the run can be taken up afterwards."""
    stage = Stage(tmp_path).puppets(["hand.look"])
    steps = [{"calls": [["hand.look", {}]]}, {"text": "done"}]
    with stage.started("run", json.dumps(steps), "--json") as process:
        assert process.stdout is not None and process.stderr is not None
        run = parse(process.stdout.readline())["run"]
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1
    resumed = stage.purra("runs", "resume", run, "--json")
    assert objects(resumed.stdout)[-1]["text"] == "done"
