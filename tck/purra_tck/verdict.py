"""Statuses that cannot lie: how a check's course becomes a verdict, and verdicts a conclusion.

A check observes and demands through its `Case`. What makes a pass hard to get wrong:

- a check that ends without one recorded observation is `untestable`, not passed;
- an exception that is neither a violation nor the subject's failure is `error`: the kit's own
  fault, which is red and is not blamed on the subject;
- every check runs twice on the same subject, and two different verdicts are `flaky`, which is red;
- a rule without a result is `not-run` and stands in every denominator.

Explicit raises only: the kit behaves the same under `python -O`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from purra_tck.rules import Rule

__all__ = [
    "RED",
    "STATUSES",
    "Case",
    "NotApplicable",
    "Outcome",
    "RuleViolation",
    "Status",
    "SubjectFailed",
    "Untestable",
    "conclude",
    "exit_code",
    "judge",
    "merge",
]

Status = Literal["pass", "fail", "warn", "n/a", "waived", "untestable", "flaky", "error", "not-run"]
STATUSES: Final[tuple[Status, ...]] = (
    "pass",
    "fail",
    "warn",
    "n/a",
    "waived",
    "untestable",
    "flaky",
    "error",
    "not-run",
)
RED: Final = frozenset({"fail", "untestable", "flaky", "error"})
"""Statuses that make a MUST rule fail the subject."""


class RuleViolation(Exception):  # noqa: N818  # a verdict, not a fault of the kit
    """The subject did not do what the rule demands.

    `place`: where a person has to look. `mend`: what to do, where that is known better than from
    the rule.
    """

    def __init__(self, expected: str, observed: str, evidence: str = "") -> None:
        super().__init__(f"expected {expected}; observed {observed}")
        self.expected = expected
        self.observed = observed
        self.evidence = evidence
        self.place = self.mend = ""


class SubjectFailed(RuleViolation):
    """The subject itself broke (did not start, crashed, hung) while the rule was checked."""


class Untestable(Exception):  # noqa: N818  # a verdict, not a fault of the kit
    """The trigger cannot reach the subject; `mend` is what to add so that it can."""

    def __init__(self, reason: str, mend: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.mend = mend


class NotApplicable(Exception):  # noqa: N818  # a verdict, not a fault of the kit
    """The subject does not declare the capability that the rule is about."""


class Case:
    """What a check writes down. `seed` drives all chance of the check."""

    def __init__(self, rule: Rule, seed: int) -> None:
        self.rule = rule
        self.seed = seed
        self.observations: list[str] = []
        self.frames: list[Mapping[str, Any]] = []

    def saw(self, what: str) -> None:
        """Records that the trigger reached the subject, or what it did."""
        self.observations.append(what)

    def require(self, holds: bool, expected: str, observed: object, evidence: str = "") -> None:
        """Records the observation, then demands it. Raises `RuleViolation`."""
        self.saw(str(observed))
        if not holds:
            raise RuleViolation(expected, str(observed), evidence)

    def equal(self, observed: object, expected: object, what: str) -> None:
        """Demands that `what` is exactly `expected`. Raises `RuleViolation`."""
        self.require(observed == expected, f"{what} = {expected!r}", f"{what} = {observed!r}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one rule. Times in seconds, one per run of the check. `place`: file and line
    of the subject that it is about, "" where that cannot be told. `mend`: as in `RuleViolation`.
    """

    rule: str
    status: Status
    expected: str = ""
    observed: str = ""
    evidence: str = ""
    reason: str = ""
    place: str = ""
    mend: str = ""
    observations: tuple[str, ...] = ()
    durations_s: tuple[float, ...] = ()
    seed: int = 0
    frames: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


async def judge(rule: Rule, check: Callable[[Case], Awaitable[None]], seed: int) -> Outcome:
    """Runs a check once. Raises nothing but cancellation."""
    case = Case(rule, seed)
    began = time.perf_counter()
    found: dict[str, Any] = {"status": "pass"}
    try:
        await _unwrapped(check(case))
        if not case.observations:
            found = {"status": "untestable", "reason": "the check observed nothing"}
    except RuleViolation as violation:
        found = {
            "status": "warn" if rule.level == "SHOULD" else "fail",
            "expected": violation.expected,
            "observed": violation.observed,
            "evidence": violation.evidence,
            "place": violation.place,
            "mend": violation.mend,
        }
    except Untestable as why:
        mend = f"; add: {why.mend}" if why.mend else ""
        found = {"status": "untestable", "reason": f"{why.reason}{mend}"}
    except NotApplicable as why:
        found = {"status": "n/a", "reason": str(why)}
    except Exception as fault:  # the kit's own fault, whatever it is, must not look like a pass
        found = {"status": "error", "reason": f"{type(fault).__name__}: {fault}"}
    return Outcome(
        rule.id,
        observations=tuple(case.observations),
        durations_s=(time.perf_counter() - began,),
        seed=seed,
        frames=tuple(case.frames),
        **found,
    )


async def _unwrapped(check: Awaitable[None]) -> None:
    """Lets through what a task group wrapped: a verdict among it, else its first exception."""
    try:
        await check
    except ExceptionGroup as group:
        leaves = list(_leaves(group))
        verdicts = [leaf for leaf in leaves if isinstance(leaf, _VERDICTS)]
        raise (verdicts or leaves)[0] from group


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


_VERDICTS: Final = (RuleViolation, Untestable, NotApplicable)


def merge(first: Outcome, second: Outcome) -> Outcome:
    """The verdict of two runs on the same subject: they agree, or the rule is flaky.

    A fault of the kit in one of them stays one: it says nothing about the subject.
    """
    durations = first.durations_s + second.durations_s
    if second.status == "error":
        return _with(second, durations_s=durations)
    if first.status == second.status:
        worse = second if second.status == "fail" else first
        return _with(worse, durations_s=durations)
    reason = f"{first.status}, then {second.status} on the same subject"
    told = first if first.status != "pass" else second
    return _with(told, status="flaky", reason=reason, durations_s=durations)


def _with(outcome: Outcome, **changes: Any) -> Outcome:
    values = {name: getattr(outcome, name) for name in Outcome.__slots__}
    return Outcome(**{**values, **changes})


@dataclass(frozen=True, slots=True)
class Conclusion:
    """All verdicts of a report in numbers. `level` -> status -> count."""

    counts: Mapping[str, Mapping[str, int]]
    conformant: bool

    def count(self, status: str) -> int:
        return sum(row.get(status, 0) for row in self.counts.values())


def conclude(rules: Iterable[Rule], outcomes: Mapping[str, Outcome]) -> Conclusion:
    """Counts every rule of the table; one without an outcome is `not-run`. Nobody is conformant of
    whom nothing was asked.
    """
    counts: dict[str, dict[str, int]] = {"MUST": {}, "SHOULD": {}}
    red = ran = 0
    for rule in rules:
        outcome = outcomes.get(rule.id)
        status = outcome.status if outcome else "not-run"
        level = "SHOULD" if rule.level == "SHOULD" else "MUST"
        counts[level][status] = counts[level].get(status, 0) + 1
        red += level == "MUST" and status in RED
        red += status == "error"
        ran += status != "not-run"
    return Conclusion(counts, ran > 0 and red == 0)


def exit_code(conclusion: Conclusion, *, cut_short: bool, stale_waivers: bool) -> int:
    """0 conformant in all that ran; 1 not; 2 nothing ran; 3 the kit's fault; 4 waivers; 5 cut."""
    ran = sum(conclusion.count(status) for status in STATUSES if status != "not-run")
    if ran == 0:
        return 5 if cut_short else 2
    if conclusion.count("error"):
        return 3
    if stale_waivers:
        return 4
    if not conclusion.conformant:
        return 1
    return 5 if cut_short else 0
