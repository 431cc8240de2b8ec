"""Runs the checks of one suite on one subject and gives a report. Sequential, seeded, cut off in
time.

A subject is opened anew for each rule by its factory, so that what one rule broke cannot help or
hurt another; `twice` runs each check two times. A check that does not end in its time is a failure
of the subject, not of the kit: nothing in a check waits longer than it must.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

import anyio

from purra_tck import patience
from purra_tck.checks import Check
from purra_tck.rules import Rule, catalogue_digest
from purra_tck.verdict import Case, Conclusion, Outcome, SubjectFailed, conclude, judge, merge
from purra_tck.waivers import Waiver, waived

__all__ = ["CHECK_TIMEOUT_S", "Plan", "Report", "SubjectInfo", "run", "today"]

CHECK_TIMEOUT_S: Final = 30.0
"""Longest time of one run of one check."""


def today() -> date:
    """The day in UTC."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class SubjectInfo:
    """What is judged: for the head of a report. `argv`: the words after `purra tck` that judge it
    again, for `replay`.
    """

    name: str
    version: str = ""
    digest: str = ""
    kind: str = ""
    declared: Mapping[str, Any] = field(default_factory=dict)
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `rules`: all that apply, checked or not; `checks`: those that are built.

    `open`: gives the subject for one check. `only`: patterns of rule ids, () = all. `timeout_s`: of
    one run of one check. `waivers`: known failures.
    """

    suite: str
    subject: SubjectInfo
    rules: tuple[Rule, ...]
    checks: Mapping[str, Check]
    open: Callable[[], AbstractAsyncContextManager[Any]]
    only: tuple[str, ...] = ()
    twice: bool = True
    seed: int = 1
    timeout_s: float = CHECK_TIMEOUT_S
    waivers: tuple[Waiver, ...] = ()

    def selected(self) -> tuple[Rule, ...]:
        """The rules to run, in the order of the table."""
        return tuple(
            rule
            for rule in self.rules
            if rule.id in self.checks
            and (not self.only or any(fnmatch.fnmatch(rule.id, p) for p in self.only))
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All verdicts of one suite on one subject. `partial`: rules were left out by choice.

    `day`: when they were found, in UTC, which is what waivers expire by.
    """

    suite: str
    subject: SubjectInfo
    rules: tuple[Rule, ...]
    outcomes: Mapping[str, Outcome]
    seed: int
    partial: bool
    cut_short: bool
    rules_digest: str
    waivers: tuple[Waiver, ...] = ()
    day: date = field(default_factory=today)

    @property
    def conclusion(self) -> Conclusion:
        return conclude(self.rules, self.outcomes)


async def run(
    plan: Plan,
    tell: Callable[[Rule, Outcome], None] = lambda _r, _o: None,
    scope: anyio.CancelScope | None = None,
) -> Report:
    """Runs the plan; `tell` gets each verdict as it comes. Cancelling `scope` gives a report cut
    short.
    """
    outcomes: dict[str, Outcome] = {}
    day = today()
    selected = plan.selected()
    with scope or anyio.CancelScope() as scope:
        for rule in selected:
            outcome = waived(await _verdict(plan, rule), plan.waivers, day)
            outcomes[rule.id] = outcome
            tell(rule, outcome)
    return Report(
        plan.suite,
        plan.subject,
        plan.rules,
        outcomes,
        plan.seed,
        bool(plan.only),
        scope.cancelled_caught or len(outcomes) < len(selected),
        catalogue_digest(),
        plan.waivers,
        day,
    )


async def _verdict(plan: Plan, rule: Rule) -> Outcome:
    check = plan.checks[rule.id]

    async def once(case: Case) -> None:
        with patience.limit(plan.timeout_s):
            async with plan.open() as subject:
                await check(case, subject)
            return
        raise SubjectFailed(f"an end within {plan.timeout_s:g} s", "the subject hangs")

    outcome = await judge(rule, once, plan.seed)
    if plan.twice and outcome.status in ("pass", "fail", "warn"):
        outcome = merge(outcome, await judge(rule, once, plan.seed))
    return outcome
