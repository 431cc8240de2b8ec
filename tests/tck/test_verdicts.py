"""Statuses that cannot lie: each way in which a check can end, and what a report concludes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra_tck.report import footer, report_value, verify, write_report
from purra_tck.rules import Rule, catalogue, catalogue_digest, of_suite
from purra_tck.runner import Plan, Report, SubjectInfo, run
from purra_tck.verdict import (
    STATUSES,
    Case,
    NotApplicable,
    Outcome,
    RuleViolation,
    SubjectFailed,
    Untestable,
    conclude,
    exit_code,
    judge,
    merge,
)

MUST = catalogue()["STO-003"]
SHOULD = catalogue()["STO-028"]

Check = Callable[[Case], Awaitable[None]]


def _judged(check: Check, rule: Rule = MUST) -> Outcome:
    async def main() -> Outcome:
        return await judge(rule, check, 7)

    return anyio.run(main)


async def _passes(case: Case) -> None:
    case.saw("something")


async def _observes_nothing(case: Case) -> None:
    """Ends, and has looked at nothing."""


async def _violates(case: Case) -> None:
    case.equal(1, 2, "the answer")


async def _subject_breaks(case: Case) -> None:
    raise SubjectFailed("a start", "it crashed")


async def _cannot(case: Case) -> None:
    raise Untestable("nothing to try", "[store] open")


async def _does_not_apply(case: Case) -> None:
    raise NotApplicable("not declared")


async def _kit_breaks(case: Case) -> None:
    case.saw("something")
    raise KeyError("kit")


async def _in_a_group(case: Case) -> None:
    async def late() -> None:
        raise OSError("a consequence")

    async def verdict() -> None:
        case.require(False, "this", "that")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(late)
        tasks.start_soon(verdict)


@pytest.mark.parametrize(
    ("check", "rule", "status"),
    [
        (_passes, MUST, "pass"),
        (_observes_nothing, MUST, "untestable"),
        (_violates, MUST, "fail"),
        (_violates, SHOULD, "warn"),
        (_subject_breaks, MUST, "fail"),
        (_cannot, MUST, "untestable"),
        (_does_not_apply, MUST, "n/a"),
        (_kit_breaks, MUST, "error"),
        (_in_a_group, MUST, "fail"),
    ],
)
def test_how_a_check_ends_is_its_status(check: Check, rule: Rule, status: str) -> None:
    """A pass needs an observation, and the kit's own fault is never the subject's."""
    outcome = _judged(check, rule)
    assert outcome.status == status
    assert outcome.seed == 7
    assert len(outcome.durations_s) == 1


def test_what_a_violation_tells() -> None:
    outcome = _judged(_violates)
    assert (outcome.expected, outcome.observed) == ("the answer = 2", "the answer = 1")
    assert outcome.observations == ("the answer = 1",)
    assert _judged(_cannot).reason == "nothing to try; add: [store] open"
    assert _judged(_kit_breaks).reason == "KeyError: 'kit'"


def test_two_verdicts_on_one_subject_are_flaky() -> None:
    """Never retried to green; a fault of the kit stays one."""
    good, bad, broken = _judged(_passes), _judged(_violates), _judged(_kit_breaks)
    assert merge(good, good).status == "pass"
    assert merge(bad, bad).status == "fail"
    for pair in ((good, bad), (bad, good)):
        flaky = merge(*pair)
        assert flaky.status == "flaky"
        assert flaky.expected == "the answer = 2"
        assert len(flaky.durations_s) == 2
    assert merge(good, broken).status == "error"


def _report(statuses: dict[str, str], *, cut_short: bool = False) -> Report:
    rules = of_suite("store")
    outcomes: dict[str, Any] = {
        rule.id: Outcome(rule.id, statuses[rule.id], observations=("seen",))  # type: ignore[arg-type]
        for rule in rules
        if rule.id in statuses
    }
    subject = SubjectInfo("s", kind="store")
    return Report("store", subject, rules, outcomes, 1, False, cut_short, catalogue_digest())


def _code(statuses: dict[str, str], *, cut_short: bool = False, stale: bool = False) -> int:
    report = _report(statuses, cut_short=cut_short)
    return exit_code(report.conclusion, cut_short=cut_short, stale_waivers=stale)


GREEN = {rule.id: "pass" for rule in of_suite("store")}


@pytest.mark.parametrize(
    ("statuses", "how", "code"),
    [
        (GREEN, {}, 0),
        ({**GREEN, "STO-012": "n/a"}, {}, 0),
        ({**GREEN, "STO-012": "waived"}, {}, 0),
        ({**GREEN, "STO-028": "warn"}, {}, 0),
        ({**GREEN, "STO-012": "fail"}, {}, 1),
        ({**GREEN, "STO-012": "untestable"}, {}, 1),
        ({**GREEN, "STO-012": "flaky"}, {}, 1),
        ({}, {}, 2),
        ({**GREEN, "STO-028": "error", "STO-012": "fail"}, {}, 3),
        (GREEN, {"stale": True}, 4),
        (GREEN, {"cut_short": True}, 5),
        ({**GREEN, "STO-012": "fail"}, {"cut_short": True}, 1),
        ({}, {"cut_short": True}, 5),
    ],
)
def test_exit_codes(statuses: dict[str, str], how: dict[str, bool], code: int) -> None:
    """0 to 5; nothing run is never 0, and neither is a run that was cut short."""
    assert _code(statuses, **how) == code


def test_every_rule_stands_in_a_denominator() -> None:
    """A rule without an outcome is not-run and counted."""
    rules = of_suite("store")
    for status in STATUSES:
        told = {} if status == "not-run" else {"STO-001": Outcome("STO-001", status)}
        counts = conclude(rules, told).counts
        assert sum(n for row in counts.values() for n in row.values()) == len(rules)
        assert counts["MUST"].get(status, 0) >= 1


def test_the_footer_shows_all_denominators() -> None:
    report = _report({**GREEN, "STO-012": "n/a", "STO-011": "flaky", "STO-028": "warn"})
    assert footer(report) == (
        "MUST 25/26 · SHOULD 0/1 · warn 1 · n/a 1 · flaky 1: NOT CONFORMANT (store)"
    )
    assert "CUT SHORT" in footer(_report(GREEN, cut_short=True))


def _plan(checks: dict[str, Check], **more: Any) -> Plan:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[None, None]:
        yield None

    def with_subject(check: Check) -> Callable[[Case, Any], Awaitable[None]]:
        return lambda case, _subject: check(case)

    return Plan(
        suite="store",
        subject=SubjectInfo("s", kind="store"),
        rules=of_suite("store"),
        checks={rule: with_subject(check) for rule, check in checks.items()},
        open=opened,
        **more,
    )


def test_a_check_that_hangs_is_the_subjects_failure() -> None:
    async def hangs(case: Case) -> None:
        case.saw("something")
        await anyio.sleep_forever()

    report = anyio.run(run, _plan({"STO-003": hangs}, timeout_s=0.05, twice=False))
    outcome = report.outcomes["STO-003"]
    assert (outcome.status, outcome.observed) == ("fail", "the subject hangs")


def test_each_check_runs_twice_and_opens_its_subject_anew() -> None:
    runs: list[int] = []

    async def once_good(case: Case) -> None:
        runs.append(1)
        case.require(len(runs) != 2, "the same again", len(runs))

    report = anyio.run(run, _plan({"STO-003": once_good}))
    assert report.outcomes["STO-003"].status == "flaky"
    assert len(runs) == 2


def test_a_run_that_is_cancelled_reports_what_it_knows() -> None:
    async def main() -> Report:
        scope = anyio.CancelScope()

        async def cancels(case: Case) -> None:
            scope.cancel()
            await anyio.sleep(1)

        plan = _plan({"STO-003": _passes, "STO-004": cancels, "STO-005": _passes})
        return await run(plan, scope=scope)

    report = anyio.run(main)
    assert report.cut_short
    assert set(report.outcomes) == {"STO-003"}
    assert not report_value(report)["conformant"]


def test_verify_finds_what_was_taken_out(tmp_path: Path) -> None:
    """A deleted rule, a changed total, a changed conclusion, a pass without an observation."""
    write_report(_report({**GREEN, "STO-012": "fail"}), tmp_path)
    path = tmp_path / "tck.json"
    assert verify(path) == []
    whole = json.loads(path.read_text())

    def faults(change: Callable[[dict[str, Any]], object]) -> str:
        value = json.loads(json.dumps(whole))
        change(value)
        path.write_text(json.dumps(value))
        return "; ".join(verify(path))

    assert "rule STO-012 is missing" in faults(lambda v: v["rules"].pop("STO-012"))
    assert "totals" in faults(lambda v: v["rules"]["STO-012"].update(verdict="pass"))
    assert "conclusion" in faults(lambda v: v.update(conformant=True))
    assert "without an observation" in faults(
        lambda v: v["rules"]["STO-001"].update(observations=[])
    )
    assert "rule table" in faults(lambda v: v.update(rulesDigest="sha256:0"))
    assert "unknown" in faults(lambda v: v["rules"].update({"STO-999": {"verdict": "pass"}}))
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no report"):
        verify(path)


def test_the_report_is_stable(tmp_path: Path) -> None:
    """Snapshot of the shape: names and order of `tck.json`, and the cases of JUnit."""
    report = _report({**GREEN, "STO-012": "n/a", "STO-011": "fail", "STO-013": "error"})
    outcomes = dict(report.outcomes)
    outcomes["STO-011"] = replace(outcomes["STO-011"], expected="e", observed="o", seed=3)
    del outcomes["STO-001"]
    write_report(replace(report, outcomes=outcomes), tmp_path)
    value = json.loads((tmp_path / "tck.json").read_text())
    assert list(value) == [
        *("schemaVersion", "kit", "rulesDigest", "suite", "subject", "host", "seed"),
        *("partial", "cutShort", "date", "waivers", "rules", "totals", "conformant"),
    ]
    assert value["rules"]["STO-001"] == {
        "clause": "18.1",
        "level": "MUST",
        "verdict": "not-run",
    }
    assert value["rules"]["STO-011"] == {
        "clause": "18.4",
        "level": "MUST",
        "verdict": "fail",
        "observations": ["seen"],
        "durations_s": [],
        "seed": 3,
        "expected": "e",
        "observed": "o",
    }
    junit = (tmp_path / "junit.xml").read_text()
    assert junit.count("<testcase ") == 28
    assert '<failure message="fail: expected e; observed o" />' in junit
    assert junit.count("<error ") == 1
    assert junit.count("<skipped ") == 2


PROGRAM = """
import json, sys, anyio
from purra_tck.selftest import Trial, try_one
names = ["ignores-cursor", "never-expires", "anyone-releases", "unlocked-keys"]
found = [anyio.run(try_one, Trial("store", "saboteur", name)) for name in names]
print(json.dumps([[v.faults, {r: w["status"] for r, w in v.rules.items()}] for v in found]))
print(__debug__)
"""


def test_the_kit_does_not_rest_on_assert() -> None:
    """Under `python -O` the same subjects get the same verdicts."""
    told = []
    for flags in ([], ["-O"]):
        ran = subprocess.run(
            [sys.executable, *flags, "-c", PROGRAM], capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
        verdicts, debug = ran.stdout.splitlines()
        assert debug == str(not flags)
        told.append(json.loads(verdicts))
    assert told[0] == told[1]
    assert all(faults == [] for faults, _ in told[0])


def test_violations_carry_their_words() -> None:
    violation = RuleViolation("e", "o", "stderr")
    assert (violation.expected, violation.observed, violation.evidence) == ("e", "o", "stderr")
