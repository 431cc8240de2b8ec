"""The rules that nothing checks: `docs/status.md` lists them, with what each waits for."""

from __future__ import annotations

import re

from purra_tck import suites
from purra_tck.plugin_plan import NOT_BUILT
from purra_tck.rules import SUITES, catalogue
from tests.docs.pages import ROOT

STATUS = (ROOT / "docs" / "status.md").read_text()
SECTION = STATUS.partition("## Rules that nothing checks\n")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| ([A-Z]{3}-\d{3}) \| (.+) \|$", SECTION, re.MULTILINE))


def test_the_page_lists_what_the_kit_does_not_check() -> None:
    """Issue C: the table of rules less the checks that there are; a row goes with its check."""
    checked = {rule for suite in SUITES for rule in suites.of(suite)}
    assert set(ROWS) == catalogue().keys() - checked


def test_each_says_what_it_waits_for() -> None:
    """The same words as the kit's own, where it has some."""
    for rule, reason in ROWS.items():
        assert len(reason) > 20, rule
        assert NOT_BUILT.get(rule, reason) == reason
