"""The rules of the plugin suites: each is checked, or says what it waits for."""

from __future__ import annotations

import pytest

from purra_tck import rules, saboteurs, suites
from purra_tck.plugin_plan import NOT_BUILT, SUITES_OF_KIND
from purra_tck.rules import of_suite
from purra_tck.selftest import unproven

SUITES = ("manifest", "model", "tool", "context", "compression")


@pytest.mark.parametrize("suite", SUITES)
def test_every_rule_is_checked_or_says_why_not(suite: str) -> None:
    """The table may never say more than the kit does."""
    rules = {rule.id for rule in of_suite(suite)}
    checked = set(suites.of(suite))
    listed = {rule_id for rule_id in NOT_BUILT if rule_id in rules}
    assert checked | listed == rules
    assert not checked & listed


def test_nothing_is_listed_that_is_no_rule() -> None:
    known = {rule.id for suite in SUITES for rule in of_suite(suite)}
    assert set(NOT_BUILT) <= known
    assert all(reason for reason in NOT_BUILT.values())


@pytest.mark.parametrize("suite", SUITES)
def test_every_check_has_the_saboteurs_of_the_table(suite: str) -> None:
    """TST-02: a rule does not count before somebody is killed by it."""
    assert unproven(suite) == []


@pytest.mark.parametrize("suite", rules.SUITES)
def test_the_universal_saboteurs_are_tried_on_every_suite(suite: str) -> None:
    universal = {each.name for each in saboteurs.of(suite) if each.universal}
    assert {"null", "refuse-all", "echo-expected", "crash-at-start"} <= universal


def test_a_host_that_does_nothing_passes_no_rule_at_all() -> None:
    """A rule of hosts that one of these passes asks nothing; the selftest tries all of them."""
    universal = {each.name: each for each in saboteurs.of("host") if each.universal}
    assert {each.dies for each in universal.values()} == {"asked"}
    assert {each.kills for each in universal.values()} == {("*",)}


def test_every_kind_of_adapter_has_its_suites() -> None:
    assert {name for names in SUITES_OF_KIND.values() for name in names} | {"manifest"} == set(
        SUITES
    )
