"""Waivers: a known failure is waived, another one is not, and no waiver outlives its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.errors import PurraError
from purra_tck.report import footer, leave, verify, write_report
from purra_tck.rules import of_suite
from purra_tck.runner import Plan, Report, SubjectInfo, run, today
from purra_tck.saboteurs.store_memory import NeverExpiresAnyoneReleases
from purra_tck.subjects.store import MemoryStorage, alone
from purra_tck.suites import of
from purra_tck.verdict import Outcome
from purra_tck.waivers import Waiver, load_waivers, stale, waived

LATER = today() + timedelta(days=30)
ISSUE = "https://example.org/issues/17"
KNOWN = Waiver("STO-013", "False after", ISSUE, LATER)
FAILED = Outcome("STO-013", "fail", expected="a takeover", observed="False after 3 s")


def test_the_known_failure_is_waived_with_its_issue_and_its_end() -> None:
    outcome = waived(FAILED, (KNOWN,), today())
    assert outcome.status == "waived"
    assert outcome.observed == FAILED.observed
    assert ISSUE in outcome.reason
    assert LATER.isoformat() in outcome.reason


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("STO-013", "fail", observed="True, and False after"),
        Outcome("STO-014", "fail", observed="False after 3 s"),
        Outcome("STO-013", "flaky", observed="False after 3 s"),
        Outcome("STO-013", "error", reason="False after 3 s"),
        Outcome("STO-013", "pass"),
    ],
    ids=["other words", "another rule", "flaky", "the kit's fault", "green"],
)
def test_nothing_else_is_waived(outcome: Outcome) -> None:
    """The message is a prefix; what is flaky is never retried to green, and neither waived."""
    assert waived(outcome, (KNOWN,), today()) == outcome


def test_a_waiver_counts_until_the_end_of_its_day() -> None:
    assert waived(FAILED, (KNOWN,), LATER).status == "waived"
    assert waived(FAILED, (KNOWN,), LATER + timedelta(days=1)).status == "fail"


def test_what_cannot_be_asked_is_waived_by_its_reason() -> None:
    outcome = Outcome("STO-013", "untestable", reason="False after all")
    assert waived(outcome, (KNOWN,), today()).status == "waived"


@pytest.mark.parametrize(
    ("outcome", "day", "why"),
    [
        (Outcome("STO-013", "pass"), today(), "the rule is pass"),
        (Outcome("STO-013", "n/a"), today(), "the rule is n/a"),
        (Outcome("STO-013", "fail", observed="another"), today(), "other words: another"),
        (FAILED, LATER + timedelta(days=1), "expired on"),
    ],
)
def test_a_waiver_that_covers_nothing_is_stale(outcome: Outcome, day: date, why: str) -> None:
    ((waiver, told),) = stale((KNOWN,), {"STO-013": outcome}, day)
    assert waiver == KNOWN
    assert why in told


def test_a_waiver_of_a_rule_that_was_not_asked_is_not_judged() -> None:
    assert stale((KNOWN,), {"STO-001": Outcome("STO-001", "pass")}, today()) == []


def _report(*waivers: Waiver) -> Report:
    """A store whose leases never lapse, which anybody may release; those two rules are asked."""
    plan = Plan(
        "store",
        SubjectInfo("s", kind="store"),
        of_suite("store"),
        of("store"),
        alone(lambda: MemoryStorage(NeverExpiresAnyoneReleases)),
        only=("STO-013", "STO-005"),
        waivers=waivers,
    )
    return anyio.run(run, plan)


@pytest.fixture(scope="module")
def words() -> str:
    """How the failure really begins."""
    return _report().outcomes["STO-013"].observed


def test_a_run_with_waivers_says_so_and_exits_0(words: str, capsys: Any) -> None:
    report = _report(Waiver("STO-013", words[:12], ISSUE, LATER))
    assert report.outcomes["STO-013"].status == "waived"
    assert leave(report) == 0
    told = capsys.readouterr().out
    assert "WITH WAIVERS" in told
    assert "waived 1" in told


def test_another_failure_exits_1_or_4(words: str, capsys: Any) -> None:
    """A stale waiver is told before anything else: it is what has to be mended first."""
    report = _report(Waiver("STO-013", "something else", ISSUE, LATER))
    assert report.outcomes["STO-013"].status == "fail"
    assert leave(report) == 4
    assert "fails with other words" in capsys.readouterr().out
    assert leave(_report()) == 1


def test_a_waiver_of_what_has_been_mended_exits_4(words: str) -> None:
    known = Waiver("STO-013", words[:12], ISSUE, LATER)
    assert leave(_report(known, Waiver("STO-005", "x", ISSUE, LATER))) == 4
    assert leave(_report(Waiver("STO-013", words[:12], ISSUE, date(2020, 1, 1)))) == 4


def test_a_report_cannot_waive_what_no_waiver_covers(words: str, tmp_path: Path) -> None:
    """`verify`: a waiver that was taken out, changed or prolonged."""
    write_report(_report(Waiver("STO-013", words[:12], ISSUE, LATER)), tmp_path)
    path = tmp_path / "tck.json"
    assert verify(path) == []
    whole = json.loads(path.read_text())

    def faults(change: Callable[[dict[str, Any]], object]) -> str:
        value = json.loads(json.dumps(whole))
        change(value)
        path.write_text(json.dumps(value))
        return "; ".join(verify(path))

    told = "rule STO-013 is waived, and no waiver of the report covers it"
    assert told in faults(lambda v: v.update(waivers=[]))
    assert told in faults(lambda v: v["waivers"][0].update(message="something else"))
    assert told in faults(lambda v: v.update(date=(LATER + timedelta(days=1)).isoformat()))
    assert "NOT CONFORMANT" in footer(_report())


FILE = """
[[waiver]]
rule = "STO-013"
message = "False after"
issue = "https://example.org/issues/17"
expires = 2030-01-31
"""


def test_waivers_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tck-waivers.toml"
    path.write_text(FILE)
    assert load_waivers(path) == (Waiver("STO-013", "False after", ISSUE, date(2030, 1, 31)),)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (("STO-013", "STO-999"), "waiver[0].rule: there is no rule 'STO-999'"),
        (("False after", " "), "waiver[0].message: must not be empty"),
        (("https://example.org/issues/17", ""), "waiver[0].issue: must not be empty"),
        (("2030-01-31", '"soon"'), "waiver[0].expires"),
        (("expires", "until"), "waiver[0].until"),
        (("[[waiver]]", "[[waiver]"), "line 2"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(
    edit: tuple[str, str], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "tck-waivers.toml"
    path.write_text(FILE.replace(*edit))
    with pytest.raises(PurraError) as refused:
        load_waivers(path)
    assert refused.value.code == "invalid_manifest"
    assert told in str(refused.value)
