"""The rule table and the page that is made from it."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from purra_tck.command import app
from purra_tck.rules import SUITES, catalogue, of_suite

PAGE = Path(__file__).parents[2] / "docs/spec/rules.md"


def test_the_page_is_current() -> None:
    """If this fails: `purra tck list --page > docs/spec/rules.md`, and look at the difference."""
    made = CliRunner().invoke(app, ["list", "--page"])
    assert made.exit_code == 0
    assert PAGE.read_text(encoding="utf-8") == made.output


def test_the_table_is_whole() -> None:
    """TCK, catalogue: 216 rules, each in a suite, each a sentence with a saboteur of its own."""
    rules = catalogue()
    assert len(rules) == 216
    counts = {suite: len(of_suite(suite)) for suite in SUITES}
    assert counts == {
        "host": 130,
        "manifest": 10,
        "model": 17,
        "tool": 13,
        "context": 9,
        "compression": 9,
        "store": 28,
    }
    for rule in rules.values():
        assert re.fullmatch(r"[A-Z]{3}-\d{3}", rule.id)
        assert re.fullmatch(r"\d{1,2}\.\d{1,2}", rule.clause), rule.id
        assert rule.text.endswith("."), rule.id
        assert rule.text[0].isupper() or rule.text.startswith("`"), rule.id
        assert rule.saboteurs or rule.untestable, rule.id
        assert ("process" in rule.hosts or "inproc" in rule.hosts or "wasm" in rule.hosts) == (
            rule.suite == "host"
        ), rule.id
    texts = [rule.text for rule in rules.values()]
    assert len(set(texts)) == len(texts)
