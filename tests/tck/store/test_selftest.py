"""Broken stores are caught by their own rules, in the expected words; the good ones are not.

`purra tck selftest` tries everything. Here stands one trial of each sort: that the machinery works,
without its minutes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from purra_tck import saboteurs, selftest, suites
from purra_tck.command import app
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.store_memory import NeverExpiresAnyoneReleases
from purra_tck.selftest import Trial, Verdict, concluded, matrix, parts, try_one, unproven
from purra_tck.selftest_work import run_trials
from purra_tck.subjects.store import MemoryStorage, alone, memory

pytestmark = pytest.mark.trial

SORTS = ("memory", "late-append-ok", "never-expires", "never-syncs", "migrates-in-place")
"""A reference; an object, a clock, a trace of system calls and a file that are wrong."""
TRIALS = [trial for trial in selftest.trials("store") if trial.name in SORTS]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_trial(trial: Trial) -> None:
    """TST-02, TCK, saboteurs: killed by its rules with the expected message; a reference stays
    green."""

    async def main() -> list[Verdict]:
        return await run_trials([trial], jobs=1)

    (verdict,) = anyio.run(main)
    assert verdict.faults == ()
    assert verdict.rules


def test_each_sort_is_there() -> None:
    assert {trial.name for trial in TRIALS} == set(SORTS)


def test_each_rule_that_is_built_has_its_saboteurs() -> None:
    """TCK, acceptance per rule: the table names them, they exist, and they are expected to die."""
    assert unproven("store") == []


def _try(monkeypatch: Any, *broken: Saboteur) -> list[Verdict]:
    monkeypatch.setattr(saboteurs, "of", lambda suite: broken)
    return [anyio.run(try_one, Trial("store", "saboteur", each.name)) for each in broken]


def test_the_selftest_can_fail(monkeypatch: Any) -> None:
    """TST-02: a survivor, a kill in other words, and a kit that breaks are faults."""

    def breaks() -> Any:
        raise RuntimeError("the kit's own")

    good = alone(memory)
    verdicts = _try(
        monkeypatch,
        Saboteur("survives", ("STO-005",), "x", good),
        Saboteur("other-words", ("STO-013",), "never said", _never_expires()),
        Saboteur("breaks", ("STO-005",), "x", breaks),
        Saboteur("no-rule", ("XYZ-*",), "x", good),
        Saboteur("harmless", ("STO-013",), "", _never_expires(), dies="never"),
        Saboteur("any", ("STO-004", "STO-005"), "", good, dies="any"),
    )
    faults = ["; ".join(verdict.faults) for verdict in verdicts]
    assert faults[0] == "it survived STO-005, which is pass"
    assert "not 'never said'" in faults[1]
    assert "STO-005 ended in error" in faults[2]
    assert "no rule with a check" in faults[3]
    assert "must not mind" in faults[4]
    assert "no rule said fail or warn" in faults[5]
    assert not matrix(verdicts, [])["proven"]


def _never_expires() -> Any:
    return alone(lambda: MemoryStorage(NeverExpiresAnyoneReleases))


def test_a_rule_without_its_saboteur_is_a_fault(monkeypatch: Any) -> None:
    known = [each for each in saboteurs.of("store") if each.name != "full-scan"]
    monkeypatch.setattr(saboteurs, "of", lambda suite: tuple(known))
    assert unproven("store") == ["STO-018: its saboteur full-scan does not exist"]


def test_the_matrix_is_written(tmp_path: Path) -> None:
    """The command: the kill matrix as JSON, exit codes 0 and 2."""
    path = tmp_path / "matrix.json"
    arguments = ["selftest", "--suite", "store", "--only", "ignores-*", "--matrix", str(path)]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert "1 saboteurs, 0 references, 1 rules seen red: as expected" in ran.output
    value = json.loads(path.read_text())
    assert value["proven"]
    assert value["rules"] == {"STO-005": ["ignores-cursor"]}
    (trial,) = value["trials"]
    assert trial["rules"]["STO-005"]["status"] == "fail"
    ran = CliRunner().invoke(app, ["selftest", "--suite", "store", "--only", "nobody"])
    assert ran.exit_code == 2


def test_a_worker_that_dies_costs_its_trial_only() -> None:
    """A trial that nobody knows takes its worker down; the next one gets another."""
    wanted = [Trial("store", "saboteur", "nobody"), Trial("store", "saboteur", "global-keys")]

    async def main() -> list[Verdict]:
        return await run_trials(wanted, jobs=1)

    first, second = anyio.run(main)
    assert "its worker process died" in first.faults[0]
    assert second.faults == ()


def test_parts_are_the_whole_trial() -> None:
    """Cut anywhere, each rule once; one that may die of any rule stays whole."""
    for trial in selftest.trials("store"):
        cut = parts(trial)
        rules = [rule for part in cut for rule in part.rules]
        assert len(rules) == len(set(rules))
        known = {each.name: each for each in saboteurs.of("store")}.get(trial.name)
        if known is None:
            assert set(rules) == set(suites.of("store"))
            assert len(cut) > 1
        elif known.dies == "any":
            assert len(cut) == 1


def test_the_longest_begin_first() -> None:
    """What is slow by design, then whole suites; a saboteur of one rule is last."""
    line = sorted(
        (part for trial in selftest.trials("store") for part in parts(trial)),
        key=lambda part: -part.weight,
    )
    names = list(dict.fromkeys(part.trial.name for part in line))
    order = ["slow-100ms", "sqlite", "echo-expected", "never-expires"]
    assert sorted(order, key=names.index) == order


def test_parts_of_a_trial_make_one_verdict() -> None:
    """A fault of one part is the trial's; the rules of all parts are in it."""
    trial = next(each for each in selftest.trials("store") if each.name == "memory")
    rules = [rule for part in parts(trial) for rule in part.rules]
    told = {rule: {"status": "pass"} for rule in rules}
    assert concluded(trial, told).faults == ()
    assert list(concluded(trial, told).rules) == rules
    broken = concluded(trial, {**told, "STO-005": {"status": "fail", "observed": "no"}})
    assert broken.faults == ("STO-005 is fail, not green: no",)
    assert concluded(trial, told, ["its worker process died"]).faults != ()
