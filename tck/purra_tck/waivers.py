"""Waivers: rules that are known to be red, each with the words of its failure, an issue and an end.

    [[waiver]]
    rule = "TOL-006"
    message = "acme.write: it went on for"
    issue = "https://example.org/issues/17"
    expires = 2030-01-31

A waiver covers that failure and no other: a rule that fails with other words stays red. One that
covers nothing any more, or has expired, is red itself (exit code 4), so that none outlives its
reason. What is flaky, and what is the kit's own fault, cannot be waived.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

from purra.errors import PurraError
from purra.manifest.source import Strict, parse_table
from purra_tck.rules import catalogue
from purra_tck.verdict import Outcome

__all__ = ["WAIVABLE", "Waiver", "covers", "load_waivers", "stale", "waived"]

WAIVABLE: Final = frozenset({"fail", "warn", "untestable"})


@dataclass(frozen=True, slots=True)
class Waiver:
    """One known failure. `message`: how its observed words, or its reason, begin."""

    rule: str
    message: str
    issue: str
    expires: date

    def __str__(self) -> str:
        return f"{self.rule} ({self.issue}, until {self.expires.isoformat()})"


class _Row(Strict):
    rule: str
    message: str
    issue: str
    expires: date


class _File(Strict):
    waiver: list[_Row]


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """The waivers in a file. Raises `PurraError(invalid_manifest)` with file, key and reason."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PurraError("invalid_manifest", str(error), where=str(path)) from None
    rows = parse_table(path, (), data, _File).waiver
    for number, row in enumerate(rows):
        where = f"{path}: waiver[{number}]"
        if row.rule not in catalogue():
            message = f"there is no rule {row.rule!r}"
            hint = "purra tck list"
            raise PurraError("invalid_manifest", message, where=f"{where}.rule", hint=hint)
        for name in ("message", "issue"):
            if not getattr(row, name).strip():
                hint = "how the failure begins" if name == "message" else "where it is worked on"
                raise PurraError(
                    "invalid_manifest", "must not be empty", where=f"{where}.{name}", hint=hint
                )
    return tuple(Waiver(row.rule, row.message, row.issue, row.expires) for row in rows)


def covers(waiver: Waiver, outcome: Outcome, today: date) -> bool:
    """Whether a red outcome is the failure that the waiver is about, and it has not expired."""
    words = outcome.observed or outcome.reason
    return (
        waiver.rule == outcome.rule
        and waiver.expires >= today
        and words.startswith(waiver.message)
        and outcome.status in WAIVABLE
    )


def waived(outcome: Outcome, waivers: Sequence[Waiver], today: date) -> Outcome:
    """The outcome, `waived` if a waiver covers it."""
    for waiver in waivers:
        if covers(waiver, outcome, today):
            text = f"waived: {waiver.issue}, until {waiver.expires.isoformat()}"
            reason = f"{outcome.reason}; {text}" if outcome.reason else text
            return replace(outcome, status="waived", reason=reason)
    return outcome


def stale(
    waivers: Sequence[Waiver], outcomes: Mapping[str, Outcome], today: date
) -> list[tuple[Waiver, str]]:
    """The waivers that cover nothing, and why. One whose rule was not asked is not judged."""
    found: list[tuple[Waiver, str]] = []
    for waiver in waivers:
        outcome = outcomes.get(waiver.rule)
        if outcome is None:
            continue
        words = outcome.observed or outcome.reason
        if waiver.expires < today:
            found.append((waiver, f"it has expired on {waiver.expires.isoformat()}"))
        elif outcome.status not in (*WAIVABLE, "waived"):
            found.append((waiver, f"the rule is {outcome.status}"))
        elif not words.startswith(waiver.message):
            found.append((waiver, f"the rule fails with other words: {words[:100]}"))
    return found
