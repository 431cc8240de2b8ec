"""The plugins of this project and the example in another language: conformant in all that runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from purra_tck.plugin_plan import NOT_BUILT, Asked, judged_package, plan_of
from purra_tck.runner import run

pytestmark = pytest.mark.trial

ROOT = Path(__file__).parents[3]
OURS = ("agentsmd", "files", "offline", "scripted", "sqlite")


def _judge(where: Path) -> None:
    asked = Asked(str(where), twice=False)
    with judged_package(asked) as package:
        report = anyio.run(run, plan_of(package, asked))
    red = {
        name: f"{outcome.status}: {outcome.expected} / {outcome.observed} {outcome.reason}"
        for name, outcome in report.outcomes.items()
        if outcome.status not in ("pass", "n/a")
    }
    assert red == {}
    assert report.conclusion.conformant
    left_out = {rule.id for rule in report.rules} - report.outcomes.keys()
    assert left_out <= set(NOT_BUILT)


@pytest.mark.parametrize("name", OURS)
def test_our_plugins_keep_their_own_rules(name: str) -> None:
    """PLG-21, issue C: every first-party plugin is conformant in all that run."""
    _judge(ROOT / "plugins" / name)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_the_example_in_another_language_is_judged_as_any_plugin() -> None:
    """Issue C: a plugin without an SDK."""
    _judge(ROOT / "docs" / "examples" / "node")
