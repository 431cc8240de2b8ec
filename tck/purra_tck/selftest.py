"""The kit on trial: every saboteur must be killed as expected, every reference must stay green.

A trial is judged in parts, some rules each, by worker processes (`purra_tck.selftest_work`): a
saboteur that takes its process down costs its own trial and no other. What comes out is the kill
matrix: which rule caught whom, with what words.

A trial fails if a rule that should catch its saboteur does not, catches it with other words than
expected, or ends in `error`, which says that the kit broke and not the subject. A rule that has a
check and no saboteur fails too: nobody has seen it fail yet.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from purra_tck import saboteurs, suites
from purra_tck.rules import catalogue, catalogue_digest
from purra_tck.runner import CHECK_TIMEOUT_S, Plan, SubjectInfo, run
from purra_tck.saboteurs import Saboteur
from purra_tck.verdict import Outcome

if TYPE_CHECKING:
    from purra_tck.saboteurs import OpenSubject

__all__ = [
    "Part",
    "Trial",
    "Verdict",
    "concluded",
    "judged",
    "matrix",
    "parts",
    "trials",
    "try_one",
    "unproven",
]

PART_RULES: Final = 4
"""Rules of a trial that one worker judges at one go, as long as others have something to do."""
REPORTED: Final = ("status", "expected", "observed", "reason", "durations_s")
GREEN: Final = frozenset({"pass", "n/a"})


@dataclass(frozen=True, slots=True)
class Trial:
    """Whom to try. `kind`: `saboteur` or `reference`."""

    suite: str
    kind: str
    name: str
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of it. `rules`: rule -> status, expected, observed, reason, durations.

    `faults`: why the kit did not prove what it should have; () = proven.
    """

    trial: Trial
    rules: Mapping[str, Mapping[str, Any]]
    faults: tuple[str, ...]
    duration_s: float = 0.0


def trials(suite: str = "", only: Sequence[str] = (), seed: int = 1) -> list[Trial]:
    """All trials of a suite, or of all suites; `only`: patterns of saboteurs and references."""
    found: list[Trial] = []
    for name in [suite] if suite else list(saboteurs.MODULES):
        subjects = [Trial(name, "reference", known, seed) for known in saboteurs.references(name)]
        subjects += [Trial(name, "saboteur", known.name, seed) for known in saboteurs.of(name)]
        found += [
            trial
            for trial in subjects
            if not only or any(fnmatch.fnmatch(trial.name, pattern) for pattern in only)
        ]
    return found


def unproven(suite: str) -> list[str]:
    """What the table says and no saboteur does, for the rules of a suite that have a check."""
    known = {saboteur.name: saboteur for saboteur in saboteurs.of(suite)}
    faults: list[str] = []
    for rule_id in suites.of(suite):
        rule = catalogue()[rule_id]
        for name in rule.saboteurs:
            if name not in known:
                faults.append(f"{rule_id}: its saboteur {name} does not exist")
            elif not _catches(known[name], rule_id):
                faults.append(f"{rule_id}: its saboteur {name} is not expected to be killed by it")
        if not rule.saboteurs:
            faults.append(f"{rule_id}: the table names no saboteur")
    return faults


def _catches(saboteur: Saboteur, rule_id: str) -> bool:
    return any(fnmatch.fnmatch(rule_id, pattern) for pattern in saboteur.kills)


@dataclass(frozen=True, slots=True)
class Part:
    """Some rules of a trial, judged at one go; together the parts are the whole trial."""

    trial: Trial
    rules: tuple[str, ...]

    @property
    def weight(self) -> float:
        """How long it takes, in runs of a check as they usually are: to begin with the longest."""
        known = _saboteur(self.trial)
        if known is None:
            return 2.0 * len(self.rules)
        patience = max(1.0, known.timeout_s / CHECK_TIMEOUT_S)
        return (2.0 if known.twice else 1.0) * patience * len(self.rules)


def parts(trial: Trial) -> list[Part]:
    """A trial in parts, at least one. Each rule opens a subject of its own, so a trial may be cut
    anywhere; but one that may die of any rule stays whole, because its subject may count openings.
    """
    rules = _rules_of(trial)
    known = _saboteur(trial)
    most = len(rules) if known is not None and known.dies == "any" else PART_RULES
    cuts = range(0, max(1, len(rules)), max(1, most))
    return [Part(trial, rules[start : start + most]) for start in cuts]


def _rules_of(trial: Trial) -> tuple[str, ...]:
    rules = tuple(suites.of(trial.suite))
    known = _saboteur(trial)
    if known is not None:
        return tuple(rule for rule in rules if _catches(known, rule))
    if trial.name not in saboteurs.references(trial.suite):
        return ()
    return tuple(rule for rule in rules if _applies(rule, trial.name))


def _applies(rule_id: str, reference: str) -> bool:
    """Whether a rule is about such a reference: that of a host is named as its kind."""
    hosts = catalogue()[rule_id].hosts
    return not hosts or reference in hosts


def _saboteur(trial: Trial) -> Saboteur | None:
    """The one on trial; None for a reference, or for a name that nobody has."""
    if trial.kind == "reference":
        return None
    return next((each for each in saboteurs.of(trial.suite) if each.name == trial.name), None)


async def judged(part: Part) -> dict[str, dict[str, Any]]:
    """Judges in this process: rule -> status, expected, observed, reason, durations.

    Raises `KeyError` for a trial that nobody knows.
    """
    trial, known = part.trial, _saboteur(part.trial)
    if known is None:
        opened = saboteurs.references(trial.suite)[trial.name]
        outcomes = await _outcomes(trial, opened, part.rules, twice=True)
    else:
        outcomes = await _outcomes(
            trial, known.make, part.rules, twice=known.twice, timeout_s=known.timeout_s
        )
    return {
        rule_id: {name: getattr(outcome, name) for name in REPORTED}
        for rule_id, outcome in outcomes.items()
    }


def concluded(
    trial: Trial,
    told: Mapping[str, Mapping[str, Any]],
    broken: Sequence[str] = (),
    duration_s: float = 0.0,
) -> Verdict:
    """The verdict from what all parts told. `broken`: what befell parts that told nothing."""
    rules = {rule_id: told[rule_id] for rule_id in _rules_of(trial) if rule_id in told}
    outcomes = {rule_id: Outcome(rule_id, **row) for rule_id, row in rules.items()}
    known = _saboteur(trial)
    if broken:
        faults = list(broken)
    elif known is not None:
        faults = _survival(known, outcomes)
    else:
        faults = [
            f"{rule_id} is {outcome.status}, not green: {_words(outcome)}"
            for rule_id, outcome in outcomes.items()
            if outcome.status not in GREEN
        ]
    return Verdict(trial, rules, tuple(faults), duration_s)


async def try_one(trial: Trial) -> Verdict:
    """Tries a subject in this process."""
    began_s = time.perf_counter()
    told: dict[str, dict[str, Any]] = {}
    for part in parts(trial):
        told |= await judged(part)
    return concluded(trial, told, duration_s=time.perf_counter() - began_s)


async def _outcomes(
    trial: Trial,
    opened: OpenSubject,
    rules: Iterable[str],
    *,
    twice: bool,
    timeout_s: float = 0.0,
) -> Mapping[str, Outcome]:
    plan = Plan(
        suite=trial.suite,
        subject=SubjectInfo(trial.name),
        rules=tuple(catalogue()[rule_id] for rule_id in rules),
        checks=suites.of(trial.suite),
        open=opened,
        twice=twice,
        seed=trial.seed,
        timeout_s=timeout_s or CHECK_TIMEOUT_S,
    )
    return (await run(plan)).outcomes


def _survival(saboteur: Saboteur, outcomes: Mapping[str, Outcome]) -> list[str]:
    """How it was not killed as it should have been; [] = it was."""
    if not outcomes:
        return [f"no rule with a check matches {', '.join(saboteur.kills)}"]
    faults = [
        f"{rule_id} ended in error, which blames the kit: {outcome.reason}"
        for rule_id, outcome in outcomes.items()
        if outcome.status == "error"
    ]
    dead = [rule_id for rule_id, o in outcomes.items() if o.status in saboteur.verdicts]
    if saboteur.dies == "never":
        return faults + [
            f"{rule_id} is {outcome.status}, and must not mind: {_words(outcome)}"
            for rule_id, outcome in outcomes.items()
            if outcome.status not in (*GREEN, "error")
        ]
    if saboteur.dies == "any":
        return faults if dead else [*faults, f"no rule said {' or '.join(saboteur.verdicts)}"]
    for rule_id, outcome in outcomes.items():
        if outcome.status == "error" or (saboteur.dies, outcome.status) == ("asked", "n/a"):
            continue
        if rule_id not in dead:
            faults.append(f"it survived {rule_id}, which is {outcome.status}")
        elif saboteur.message not in _words(outcome):
            faults.append(f"{rule_id} says {_words(outcome)!r}, not {saboteur.message!r}")
    return faults


def _words(outcome: Outcome) -> str:
    parts = (outcome.expected, outcome.observed, outcome.reason)
    return "; ".join(part for part in parts if part)


def matrix(verdicts: Sequence[Verdict], unproven_rules: Sequence[str]) -> dict[str, Any]:
    """The kill matrix, as the JSON value that is published."""
    rules: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.trial.kind == "saboteur":
            for rule_id, told in verdict.rules.items():
                if told["status"] not in GREEN:
                    rules.setdefault(rule_id, []).append(verdict.trial.name)
    return {
        "schemaVersion": 1,
        "rulesDigest": catalogue_digest(),
        "proven": not unproven_rules and not any(verdict.faults for verdict in verdicts),
        "unproven": list(unproven_rules),
        "rules": {rule_id: rules[rule_id] for rule_id in sorted(rules)},
        "trials": [
            {
                **asdict(verdict.trial),
                "proven": not verdict.faults,
                "faults": list(verdict.faults),
                "duration_s": round(verdict.duration_s, 3),
                "rules": verdict.rules,
            }
            for verdict in verdicts
        ],
    }
