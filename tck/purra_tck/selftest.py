"""The kit on trial: every saboteur must be killed as expected, every reference must stay green.

Each subject is tried in one of several worker processes (`python -m purra_tck.selftest`), which
take one after the other: a saboteur that takes its process down costs its own trial and no other.
What comes out is the kill matrix: which rule caught whom, with what words.

A trial fails if a rule that should catch its saboteur does not, catches it with other words than
expected, or ends in `error`, which says that the kit broke and not the subject. A rule that has a
check and no saboteur fails too: nobody has seen it fail yet.
"""

from __future__ import annotations

import ctypes
import fnmatch
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from purra_tck import saboteurs, suites
from purra_tck.rules import catalogue, catalogue_digest
from purra_tck.runner import CHECK_TIMEOUT_S, Plan, SubjectInfo, run
from purra_tck.saboteurs import Saboteur
from purra_tck.verdict import Outcome

if TYPE_CHECKING:
    from purra_tck.saboteurs import OpenSubject

__all__ = ["Trial", "Verdict", "matrix", "run_trials", "trials", "try_one", "unproven"]

TRIAL_TIMEOUT_S: Final = 600.0
"""Longest time of one trial; only a universal saboteur, tried on every rule, comes near it."""
DIE_WITH_PARENT: Final = 1
"""`PR_SET_PDEATHSIG`."""
ANSWER_BYTES: Final = 64 * 1024 * 1024
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


async def try_one(trial: Trial) -> Verdict:
    """Tries a subject in this process."""
    began_s = time.perf_counter()
    if trial.kind == "reference":
        opened = saboteurs.references(trial.suite)[trial.name]
        outcomes = await _outcomes(trial, opened, list(suites.of(trial.suite)), twice=True)
        faults = [
            f"{rule_id} is {outcome.status}, not green: {_words(outcome)}"
            for rule_id, outcome in outcomes.items()
            if outcome.status not in GREEN
        ]
    else:
        saboteur = next(each for each in saboteurs.of(trial.suite) if each.name == trial.name)
        rules = [rule for rule in suites.of(trial.suite) if _catches(saboteur, rule)]
        outcomes = await _outcomes(
            trial, saboteur.make, rules, twice=saboteur.twice, timeout_s=saboteur.timeout_s
        )
        faults = _survival(saboteur, outcomes)
    told = {
        rule_id: {name: getattr(outcome, name) for name in REPORTED}
        for rule_id, outcome in outcomes.items()
    }
    return Verdict(trial, told, tuple(faults), time.perf_counter() - began_s)


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
        if outcome.status == "error":
            continue
        if rule_id not in dead:
            faults.append(f"it survived {rule_id}, which is {outcome.status}")
        elif saboteur.message not in _words(outcome):
            faults.append(f"{rule_id} says {_words(outcome)!r}, not {saboteur.message!r}")
    return faults


def _words(outcome: Outcome) -> str:
    parts = (outcome.expected, outcome.observed, outcome.reason)
    return "; ".join(part for part in parts if part)


async def run_trials(
    wanted: Sequence[Trial], *, jobs: int, tell: Callable[[Verdict], None] = lambda _: None
) -> list[Verdict]:
    """Tries all of `wanted`, `jobs` at a time, each in a worker process; in the given order."""
    found: dict[Trial, Verdict] = {}
    waiting = list(reversed(wanted))

    async def work() -> None:
        while waiting:
            async with _worker() as ask:
                while waiting:
                    trial = waiting.pop()
                    found[trial] = verdict = await ask(trial)
                    tell(verdict)
                    if not verdict.rules:
                        break  # its worker may be gone: the next trial gets another

    async with anyio.create_task_group() as tasks:
        for _ in range(max(1, min(jobs, len(wanted)))):
            tasks.start_soon(work)
    return [found[trial] for trial in wanted]


Ask = Callable[[Trial], Any]


@asynccontextmanager
async def _worker() -> AsyncIterator[Ask]:
    command = [sys.executable, *(["-O"] if sys.flags.optimize else []), "-m", __name__]
    process = await anyio.open_process(command, stderr=None, start_new_session=True)
    if process.stdout is None or process.stdin is None:
        raise OSError("a worker without pipes")
    answers = BufferedByteReceiveStream(process.stdout)

    async def ask(trial: Trial) -> Verdict:
        with anyio.move_on_after(TRIAL_TIMEOUT_S):
            return await _ask(process, answers, trial)
        return Verdict(trial, {}, (f"no verdict within {TRIAL_TIMEOUT_S:g} s",), TRIAL_TIMEOUT_S)

    try:
        yield ask
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def _ask(process: Process, answers: BufferedByteReceiveStream, trial: Trial) -> Verdict:
    try:
        if process.stdin is not None:
            await process.stdin.send(json.dumps(asdict(trial)).encode() + b"\n")
        value = json.loads(await answers.receive_until(b"\n", ANSWER_BYTES))
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, OSError) as error:
        return Verdict(trial, {}, (f"its worker process died: {type(error).__name__}",))
    return Verdict(trial, value["rules"], tuple(value["faults"]), value["duration_s"])


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


def serve() -> None:
    """A worker: one trial per line of standard input, one verdict per line of standard output.

    What a subject prints goes to standard error. Nothing of it outlives the selftest, also where a
    subject holds it up for ever.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        verdict = anyio.run(try_one, Trial(**json.loads(line)))
        told = {
            "rules": {rule_id: dict(row) for rule_id, row in verdict.rules.items()},
            "faults": verdict.faults,
            "duration_s": verdict.duration_s,
        }
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
