"""What a run leaves behind: `tck.json`, `junit.xml`, `index.html`, and lines on the terminal.

`tck.json` is the report; everything else is made from it, and `verify` judges it without the
subject: it recounts the totals, compares the digest of the rule table, and names rules that are
missing.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from purra_tck import html
from purra_tck.mends import mends
from purra_tck.rules import Rule, catalogue, catalogue_digest, of_suite
from purra_tck.runner import Report
from purra_tck.verdict import RED, STATUSES, Outcome, conclude, exit_code
from purra_tck.waivers import Waiver, covers, stale

__all__ = [
    "SCHEMA_VERSION",
    "Told",
    "footer",
    "leave",
    "lines_of",
    "report_value",
    "verify",
    "write_report",
]

SCHEMA_VERSION: Final = 1
LOG_OBSERVATIONS: Final = 50
"""Observations kept of one rule in the report."""


def report_value(report: Report) -> dict[str, Any]:
    """The strict value of `tck.json`."""
    subject = report.subject
    return {
        "schemaVersion": SCHEMA_VERSION,
        "kit": version("purra-kernel"),
        "rulesDigest": report.rules_digest,
        "suite": report.suite,
        "subject": {
            "name": subject.name,
            "version": subject.version,
            "digest": subject.digest,
            "kind": subject.kind,
            "declared": dict(subject.declared),
            "argv": list(subject.argv),
        },
        "host": {"os": platform.platform(), "python": platform.python_version()},
        "seed": report.seed,
        "partial": report.partial,
        "cutShort": report.cut_short,
        "date": report.day.isoformat(),
        "waivers": [
            {**asdict(each), "expires": each.expires.isoformat()} for each in report.waivers
        ],
        "rules": {
            rule.id: _rule_value(rule, report.outcomes.get(rule.id)) for rule in report.rules
        },
        "totals": {level: dict(row) for level, row in report.conclusion.counts.items()},
        "conformant": report.conclusion.conformant and not report.cut_short,
    }


def _rule_value(rule: Rule, outcome: Outcome | None) -> dict[str, Any]:
    value: dict[str, Any] = {"clause": rule.clause, "level": rule.level}
    if outcome is None:
        return {**value, "verdict": "not-run"}
    value |= {
        "verdict": outcome.status,
        "observations": list(outcome.observations[:LOG_OBSERVATIONS]),
        "durations_s": [round(duration, 4) for duration in outcome.durations_s],
        "seed": outcome.seed,
    }
    for name in ("expected", "observed", "evidence", "reason", "place", "mend"):
        if getattr(outcome, name):
            value[name] = getattr(outcome, name)
    if outcome.frames:
        value["frames"] = [dict(frame) for frame in outcome.frames]
    return value


def write_report(report: Report, folder: Path) -> None:
    """Writes `tck.json`, `junit.xml` and `index.html` into `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    value = report_value(report)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)
    (folder / "tck.json").write_text(text + "\n", encoding="utf-8")
    ElementTree.ElementTree(_junit(report)).write(
        folder / "junit.xml", encoding="utf-8", xml_declaration=True
    )
    (folder / "index.html").write_text(html.page([value]), encoding="utf-8")


def _junit(report: Report) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=f"purra-tck {report.suite}")
    for rule in report.rules:
        outcome = report.outcomes.get(rule.id)
        case = ElementTree.SubElement(suite, "testcase", classname=report.suite, name=rule.id)
        status = outcome.status if outcome else "not-run"
        if outcome and outcome.durations_s:
            case.set("time", f"{sum(outcome.durations_s):.3f}")
        message = _why(outcome)
        if status in ("fail", "untestable", "flaky"):
            ElementTree.SubElement(case, "failure", message=f"{status}: {message}")
        elif status == "error":
            ElementTree.SubElement(case, "error", message=message)
        elif status in ("n/a", "waived", "not-run"):
            ElementTree.SubElement(case, "skipped", message=f"{status}: {message}")
    return suite


def _why(outcome: Outcome | None) -> str:
    if outcome is None:
        return "no check ran"
    if outcome.expected:
        return f"expected {outcome.expected}; observed {outcome.observed}"
    return outcome.reason


Told = dict[tuple[str, ...], str]
"""Words of verdicts that were shown -> the rule that they were shown for."""


def lines_of(
    rule: Rule, outcome: Outcome, *, verbose: bool = False, told: Told | None = None
) -> Iterator[str]:
    """What the terminal shows of one verdict: a line, and for a red one what a person needs.

    `told`: what was shown before, to say it once; one defect makes many rules red.
    """
    mark = _MARKS[outcome.status]
    seconds = sum(outcome.durations_s)
    yield f"{mark} {rule.id} {rule.level} §{rule.clause}  {rule.text[:90]}  {seconds:.2f} s"
    if outcome.status in ("pass", "n/a") and not verbose:
        return
    words = (outcome.expected, outcome.observed, outcome.reason, outcome.place)
    if told is not None and any(words):
        before = told.setdefault(words, rule.id)
        if before != rule.id:
            yield f"    as {before}"
            return
    shown = {
        "expected": outcome.expected,
        "observed": outcome.observed,
        "reason": outcome.reason,
        "place": outcome.place,
        "mend": _mend(rule, outcome),
        "evidence": outcome.evidence,
        "explain": f"purra tck explain {rule.id}" if outcome.status != "pass" else "",
    }
    for name, text in shown.items():
        for line in text.splitlines():
            yield f"    {name:<9} {line}"
            name = ""


def _mend(rule: Rule, outcome: Outcome) -> str:
    red = outcome.status in (*RED, "warn")
    return outcome.mend or (mends().get(rule.id, "") if red and not outcome.reason else "")


_MARKS: Final[Mapping[str, str]] = {
    "pass": "✓",
    "fail": "✗",
    "warn": "!",
    "n/a": "-",
    "waived": "~",
    "untestable": "?",
    "flaky": "≈",
    "error": "E",
    "not-run": " ",
}


def footer(report: Report) -> str:
    """All denominators in one line, and the conclusion."""
    conclusion = report.conclusion
    parts = []
    for level in ("MUST", "SHOULD"):
        row = conclusion.counts[level]
        applicable = sum(row.values()) - row.get("n/a", 0)
        parts.append(f"{level} {row.get('pass', 0)}/{applicable}")
    for status in STATUSES:
        count = conclusion.count(status)
        if status != "pass" and count:
            parts.append(f"{status} {count}")
    word = "conformant in all that ran" if conclusion.conformant else "NOT CONFORMANT"
    if conclusion.count("waived"):
        word += " WITH WAIVERS"
    if not report.outcomes:
        word = "NOTHING RAN"
    if report.cut_short:
        word = "CUT SHORT"
    return f"{' · '.join(parts)}: {word} ({report.suite})"


def verify(path: Path) -> list[str]:
    """What is wrong with a report, [] if nothing. Raises `ValueError` if it is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        rules: dict[str, Any] = value["rules"]
        suite, kind = value["suite"], value["subject"]["kind"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no report: {error}") from error
    wrong: list[str] = []
    if value["rulesDigest"] != catalogue_digest():
        wrong.append("it was made with another rule table than this kit's")
    due = [
        rule for name in suite.split("+") for rule in of_suite(name, kind if name == "host" else "")
    ]
    missing = [rule.id for rule in due if rule.id not in rules]
    unknown = [rule_id for rule_id in rules if rule_id not in catalogue()]
    wrong += [f"rule {rule_id} is missing" for rule_id in missing]
    wrong += [f"rule {rule_id} is unknown" for rule_id in unknown]
    for rule_id, row in rules.items():
        if row.get("verdict") == "pass" and not row.get("observations"):
            wrong.append(f"rule {rule_id} passed without an observation")
    outcomes = {
        rule_id: Outcome(rule_id, row["verdict"])
        for rule_id, row in rules.items()
        if row["verdict"] != "not-run" and rule_id in catalogue()
    }
    recount = conclude([catalogue()[i] for i in rules if i in catalogue()], outcomes)
    if {level: dict(row) for level, row in recount.counts.items()} != value["totals"]:
        wrong.append("the totals are not the sum of the verdicts")
    wrong += _unwaived(value)
    claimed = value["conformant"]
    if claimed != (recount.conformant and not value["cutShort"]):
        wrong.append("the conclusion does not follow from the verdicts")
    return wrong


def _unwaived(value: Mapping[str, Any]) -> Iterator[str]:
    """Rules of a report that no waiver in it covers, though it says so."""
    day = date.fromisoformat(value.get("date", date.max.isoformat()))
    rows = value.get("waivers", ())
    waivers = [Waiver(**{**row, "expires": date.fromisoformat(row["expires"])}) for row in rows]
    for rule_id, row in value["rules"].items():
        if row["verdict"] == "waived":
            observed, reason = str(row.get("observed", "")), str(row.get("reason", ""))
            failed = Outcome(rule_id, "fail", observed=observed, reason=reason)
            if not any(covers(each, failed, day) for each in waivers):
                yield f"rule {rule_id} is waived, and no waiver of the report covers it"


def leave(report: Report) -> int:
    """Prints what is wrong with the waivers, and the footer; gives the exit code."""
    old = stale(report.waivers, report.outcomes, report.day)
    for waiver, why in old:
        sys.stdout.write(f"✗ waiver {waiver}: {why}\n")
    sys.stdout.write(footer(report) + "\n")
    return exit_code(report.conclusion, cut_short=report.cut_short, stale_waivers=bool(old))
