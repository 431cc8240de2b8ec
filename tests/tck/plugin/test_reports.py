"""What a judgement leaves behind: codes, a page without the network, a rule asked again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from purra_tck import html
from purra_tck.saboteurs.plugin_notes import NOTES

ROWS: dict[str, dict[str, Any]] = {
    "MAN-001": {"clause": "13.1", "level": "MUST", "verdict": "pass", "observations": ["seen"]},
    "MAN-002": {
        "clause": "13.2",
        "level": "MUST",
        "verdict": "fail",
        "expected": "no <script>alert(1)</script>",
        "observed": "a 'quote' & more",
        "observations": ["<b>"],
        "durations_s": [0.5, 0.25],
        "frames": [
            {"ms": 1.25, "process": 1, "from": "host", "kind": "CALL", "call": 3, "decoded": "<x>"},
            {"ms": 2.5, "process": 1, "from": "plugin", "kind": "RESULT", "call": 3, "hex": "c0"},
        ],
    },
    "TOL-001": {"clause": "15.1", "level": "MUST", "verdict": "not-run"},
    "XYZ-001": {"clause": "99.1", "level": "SHOULD", "verdict": "n/a"},
}


def _value(name: str = "notes", **more: Any) -> dict[str, Any]:
    return {
        "suite": "manifest+tool",
        "kit": "0.1.0",
        "seed": 1,
        "subject": {"name": name, "version": "1.0", "kind": "plugin", "digest": "sha256:ab"},
        "host": {"os": "Linux", "python": "3.11"},
        "partial": False,
        "cutShort": False,
        "conformant": False,
        "totals": {"MUST": {"pass": 1, "fail": 1}, "SHOULD": {}},
        "rules": ROWS,
        **more,
    }


class _Page(HTMLParser):
    """Checks nesting, and collects texts and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        known = dict(attrs)
        self.links += [known[name] or "" for name in ("href", "src") if name in known]
        self.ids += [known["id"] or ""] if "id" in known else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text += data


def _parsed(*values: dict[str, Any]) -> _Page:
    page = _Page()
    page.feed(html.page(values))
    assert page.open == []
    return page


def test_a_page_needs_nothing_but_itself() -> None:
    """One offline file: every address leads into it, and the policy allows no other."""
    page = _parsed(_value())
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not re.search(r"https?://", html.page([_value()]))
    assert "default-src 'none'" in html.page([_value()])


def test_what_a_plugin_says_is_text_and_never_markup() -> None:
    page = _parsed(_value("<script>alert(2)</script>"))
    assert "no <script>alert(1)</script>" in page.text
    assert "<script>alert(2)</script>" in page.text
    assert "<script>alert" not in html.page([_value("<script>alert(2)</script>")])


def test_a_red_rule_shows_both_sides_and_its_frames_in_milliseconds() -> None:
    text = _parsed(_value()).text
    for part in ("expected", "observed", "a 'quote' & more", "1.2", "CALL", "<x>", "c0", "0.75 s"):
        assert part in text
    assert "purra tck explain MAN-002" in text


def test_several_reports_make_one_matrix() -> None:
    text = _parsed(_value("one"), _value("other", conformant=True), _value("third")).text
    assert "3 subjects" in text
    assert text.count("1/2") == 3
    assert "not conformant" in text
    assert "conformant in all that ran" in text


# --- the command --------------------------------------------------------------------------------


def _purra(*words: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "purra_hosts.app", "tck", *words]
    done = subprocess.run(argv, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    for name, text in {**NOTES.files(), f"{NOTES.package}/tck.toml": NOTES.fixtures}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_rule_is_asked_again_as_it_was(notes: Path, tmp_path: Path) -> None:
    """`replay`: the subject, its configuration and the seed are in the report."""
    root = f"root={notes}"
    words = ("--only", "MAN-006", "--seed", "7", "--once", "--report", str(tmp_path))
    code, told = _purra("plugin", str(notes), *words, "--config", root)
    assert code == 0, told
    value = json.loads((tmp_path / "tck.json").read_text())
    assert value["subject"]["argv"] == ["plugin", str(notes), "--config", f'root="{notes}"']
    assert {path.name for path in tmp_path.iterdir()} == {"tck.json", "junit.xml", "index.html"}
    code, told = _purra("replay", str(tmp_path / "tck.json"), "man-006")
    assert code == 0, told
    assert "--only MAN-006 --seed 7" in told
    assert "✓ MAN-006" in told


def test_codes_of_what_ends_before_a_rule_is_asked(notes: Path, tmp_path: Path) -> None:
    """2: no subject, no rule; 1: red; 4 would mean a stale waiver."""
    assert _purra("plugin", str(tmp_path))[0] == 2
    assert _purra("plugin", str(notes), "--only", "ABC-*")[0] == 2
    assert _purra("replay", str(tmp_path / "none.json"), "MAN-001")[0] == 2
    code, told = _purra("plugin", str(notes), "--only", "MAN-004", "--config", "root=/nowhere/x")
    assert code == 1
    assert "NOT CONFORMANT" in told
