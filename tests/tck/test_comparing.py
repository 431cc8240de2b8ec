"""Reports of a run that was interrupted, two reports side by side, and a badge of one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from purra_tck.comparing import badge_of, differences
from purra_tck.report import report_value
from purra_tck.rules import catalogue_digest, of_suite
from purra_tck.runner import Report, SubjectInfo
from purra_tck.verdict import Outcome

TCK = (sys.executable, "-m", "purra_hosts.app", "tck")
GREEN = {rule.id: "pass" for rule in of_suite("store")}


def _value(statuses: dict[str, str], **more: Any) -> dict[str, Any]:
    outcomes: dict[str, Any] = {
        rule: Outcome(rule, status, observed="what it did", observations=("seen",))  # type: ignore[arg-type]
        for rule, status in statuses.items()
    }
    subject, digest = SubjectInfo("s", kind="store"), catalogue_digest()
    report = Report("store", subject, of_suite("store"), outcomes, 1, False, False, digest)
    return {**report_value(report), **more}


def _written(path: Path, value: dict[str, Any]) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def _tck(*words: str) -> tuple[int, str]:
    done = subprocess.run([*TCK, *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_a_run_that_is_interrupted_exits_5_and_its_report_says_so(tmp_path: Path) -> None:
    """Issue C: a report that was cut short exits 5; what is known by then stands in it."""
    words = ["store", "memory", "--report", str(tmp_path)]
    with subprocess.Popen([*TCK, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert "STO-" in first
    assert process.returncode == 5
    assert "CUT SHORT" in rest
    value = json.loads((tmp_path / "tck.json").read_text())
    assert value["cutShort"]
    assert not value["conformant"]
    assert value["totals"]["MUST"]["not-run"] > 0
    assert _tck("verify", str(tmp_path / "tck.json"))[0] == 0


def test_no_rule_is_no_verdict(tmp_path: Path) -> None:
    """Issue C: zero rules selected exits 2, whatever is judged."""
    assert _tck("store", "memory", "--only", "XYZ-*")[0] == 2


def test_differences_are_told_with_what_got_worse() -> None:
    before = _value({**GREEN, "STO-001": "fail", "STO-003": "warn", "STO-005": "fail"})
    after = _value({**GREEN, "STO-002": "fail", "STO-004": "n/a", "STO-005": "flaky"})
    found = {each.rule: each for each in differences(before, after)}
    assert set(found) == {"STO-001", "STO-002", "STO-003", "STO-004", "STO-005"}
    assert {rule for rule, each in found.items() if each.worse} == {"STO-002", "STO-004"}
    assert str(found["STO-002"]) == "✗ STO-002  pass → fail  what it did"
    assert str(found["STO-001"]).startswith("✓ STO-001  fail → pass")


def test_a_rule_that_is_not_asked_any_more_is_worse() -> None:
    fewer = {rule: status for rule, status in GREEN.items() if rule != "STO-007"}
    (found,) = differences(_value(GREEN), _value(fewer))
    assert (found.rule, found.before, found.after, found.worse) == (
        "STO-007",
        "pass",
        "not-run",
        True,
    )


def test_diff_is_a_command(tmp_path: Path) -> None:
    """Exit codes: 0 nothing is worse, 1 something is, 2 not comparable."""
    good = _written(tmp_path / "a.json", _value(GREEN))
    bad = _written(tmp_path / "b.json", _value({**GREEN, "STO-002": "fail"}, seed=7))
    other = _written(tmp_path / "c.json", _value(GREEN, suite="manifest"))
    code, told = _tck("diff", good, bad)
    assert code == 1
    assert "✗ STO-002  pass → fail" in told
    assert "seed: 1 → 7" in told
    assert _tck("diff", bad, good)[0] == 0
    assert _tck("diff", good, other)[0] == 2
    assert _tck("diff", good, str(tmp_path / "none.json"))[0] == 2


ALL = len(GREEN) - 1
"""Rules of stores that are a MUST."""


@pytest.mark.parametrize(
    ("value", "color", "message"),
    [
        (_value(GREEN), "brightgreen", f"{ALL}/{ALL} MUST · store"),
        (_value({**GREEN, "STO-012": "n/a"}), "brightgreen", f"{ALL - 1}/{ALL - 1} MUST · store"),
        (_value({**GREEN, "STO-028": "warn"}), "yellow", f"{ALL}/{ALL} MUST · store"),
        (
            _value({**GREEN, "STO-012": "waived"}),
            "yellow",
            f"{ALL - 1}/{ALL} MUST · 1 waived · store",
        ),
        (
            _value({rule: "pass" for rule in GREEN if rule != "STO-012"}),
            "yellow",
            f"{ALL - 1}/{ALL} MUST · store",
        ),
        (_value({**GREEN, "STO-012": "fail"}), "red", f"{ALL - 1}/{ALL} MUST · store"),
        (_value(GREEN, partial=True), "lightgrey", f"{ALL}/{ALL} MUST · store"),
        (_value(GREEN, cutShort=True), "lightgrey", f"{ALL}/{ALL} MUST · store"),
    ],
    ids=["all", "n/a", "should", "waived", "not run", "failed", "partial", "cut short"],
)
def test_a_badge_is_green_for_nothing_less_than_everything(
    value: dict[str, Any], color: str, message: str
) -> None:
    badge = badge_of(value)
    assert (badge["color"], badge["message"]) == (color, message)
    assert (badge["schemaVersion"], badge["label"]) == (1, "purra tck")


def test_a_report_that_does_not_add_up_gets_no_badge(tmp_path: Path) -> None:
    value = _value(GREEN)
    path = _written(tmp_path / "tck.json", value)
    into = tmp_path / "badge.json"
    assert _tck("badge", path, "--into", str(into))[0] == 0
    assert json.loads(into.read_text())["color"] == "brightgreen"
    del value["rules"]["STO-002"]
    code, told = _tck("badge", _written(tmp_path / "tck.json", value))
    assert code == 1
    assert "rule STO-002 is missing" in told
    assert "brightgreen" not in told
