"""`python -O` takes every `assert` away: the kit must judge the same without them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from purra_tck.saboteurs.plugin_notes import NOTES
from tests.architecture.sources import sources

pytestmark = pytest.mark.trial


def test_nothing_in_the_kit_rests_on_assert() -> None:
    """TCK: explicit raises. A check that asserts passes everything under `-O`."""
    found = [
        f"{file.path}:{node.lineno}"
        for file in sources()
        if "purra_tck/" in file.path
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def _plugin(folder: Path, *edits: tuple[str, str]) -> Path:
    for name, text in NOTES.changed("", *edits).files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / NOTES.package / "tck.toml").write_text(NOTES.fixtures)
    return folder


def _verdicts(into: Path, flags: tuple[str, ...], *words: str) -> tuple[int, dict[str, str]]:
    argv = [sys.executable, *flags, "-m", "purra_hosts.app", "tck", *words]
    ran = subprocess.run(
        [*argv, "--report", str(into)], capture_output=True, text=True, timeout=240
    )
    rows = json.loads((into / "tck.json").read_text())["rules"]
    return ran.returncode, {rule: row["verdict"] for rule, row in rows.items()}


@pytest.mark.parametrize(
    ("words", "code", "red"),
    [
        (("store", "memory", "--once"), 0, set()),
        (("plugin", "{good}", "--once", "--only", "MAN-*"), 0, set()),
        (("plugin", "{bad}", "--once", "--only", "MAN-00[1-6]"), 1, {"MAN-006"}),
    ],
    ids=["a store", "a plugin", "a plugin that is refused"],
)
def test_the_verdicts_are_the_same_without_assert(
    words: tuple[str, ...], code: int, red: set[str], tmp_path: Path
) -> None:
    """TCK, universal: suites give the same verdicts under `python -O`."""
    places = {
        "{good}": str(_plugin(tmp_path / "good")),
        "{bad}": str(_plugin(tmp_path / "bad", ("inflight = 16", "inflight = 0"))),
    }
    words = tuple(places.get(word, word) for word in words)
    usual = _verdicts(tmp_path / "usual", (), *words)
    assert usual == _verdicts(tmp_path / "optimised", ("-O",), *words)
    assert usual[0] == code
    assert {rule for rule, verdict in usual[1].items() if verdict == "fail"} == red
    assert "pass" in usual[1].values() or red
