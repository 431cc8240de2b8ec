"""What is quoted is what is there: over any folder, any text, any question."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from purra_plugin_offline.evidence import Line
from purra_plugin_offline.quoting import can_quote, parse, quote
from purra_plugin_offline.words import held, terms_of
from tests.plugins.offline.talking import TOOLS, converse, file_tools, quotes_in

WORDS = st.text(alphabet="abcdefgéñ字ßкx0", min_size=2, max_size=9)
NOISE = st.sampled_from(
    [".*", "[", "(a|b)", "\\d+", "$^", "{2}", "\t", "  ", "|", "#", "- ", "`x`"]
)
SEPARATORS = st.sampled_from(["\u2028", "\x0b", "\x85", "\r", "\x1b[31m", "\u202e"])
LINES = st.one_of(
    st.lists(st.one_of(WORDS, WORDS, NOISE), max_size=7).map(" ".join),
    st.just(""),
    st.tuples(WORDS, SEPARATORS, WORDS).map("".join),
)
NAMES = st.sampled_from(["a.md", "b/c.txt", "b/d e.md", "é/字.md", "x:3.txt", "z.py"])
FOLDERS = st.dictionaries(
    NAMES,
    st.tuples(st.lists(LINES, max_size=25), st.sampled_from(["\n", "\r\n"]), st.booleans()),
    min_size=1,
)
ABSENT = "quizzaciously"


def _write(folder: Path, files: dict[str, tuple[list[str], str, bool]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, (lines, newline, ends) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((newline.join(lines) + (newline if ends else "")).encode())


def _assert_exact(folder: Path, answer: str) -> None:
    """Each quoted `path:line` equals that line of that file; the newline is all that is missing."""
    for path, number, text in quotes_in(answer):
        raw = (folder / path).read_bytes().split(b"\n")[number - 1].decode()
        assert raw in (text, text + "\r"), (path, number)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=FOLDERS, data=st.data())
def test_every_quote_equals_its_line(tmp_path: Path, files: Any, data: st.DataObject) -> None:
    """Words of the folder are asked for, so most answers have quotes."""
    folder = tmp_path / "docs"
    _write(folder, files)
    words = re.findall(r"[^\W_]+", " ".join(line for lines, *_ in files.values() for line in lines))
    asked = data.draw(st.lists(st.sampled_from(words or [ABSENT]), min_size=1, max_size=4))
    answer, _ = converse(f"What about {' and '.join(asked)}?", file_tools(folder))
    _assert_exact(folder, answer)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=FOLDERS, data=st.data())
def test_a_word_that_is_there_is_quoted(tmp_path: Path, files: Any, data: st.DataObject) -> None:
    """One plain word that stands in a printable line: some quote holds it."""
    plain = [
        (line, word)
        for lines, *_ in files.values()
        for line in lines
        for word in re.findall(r"\b[a-g]{4,9}\b", line)
        if line.isprintable()
    ]
    if not plain:
        return
    folder = tmp_path / "docs"
    _write(folder, files)
    _, word = data.draw(st.sampled_from(plain))
    answer, _ = converse(f"Where does it say {word}?", file_tools(folder))
    _assert_exact(folder, answer)
    terms = terms_of(word)
    assert any(held(terms, text) for _, _, text in quotes_in(answer)), answer


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=FOLDERS)
def test_a_question_without_a_match_has_no_quote(tmp_path: Path, files: Any) -> None:
    folder = tmp_path / "docs"
    _write(folder, files)
    answer, _ = converse(f"What does it say about {ABSENT}?", file_tools(folder))
    assert quotes_in(answer) == []
    assert "Nothing was found" in answer
    assert ABSENT in answer


def test_a_real_folder_is_answered_with_the_right_passage(tmp_path: Path) -> None:
    (tmp_path / "protocol.md").write_text(
        "# Wire\n\nFrames have ten bytes.\n\n## Cancelling\n\n"
        "The caller of a running tool sends CANCEL\nwith the id of its call.\n\nOther text.\n"
    )
    (tmp_path / "noise.md").write_text("a tool and a tool\n" * 300)
    answer, messages = converse("How does a caller cancel a running tool?", file_tools(tmp_path))
    assert quotes_in(answer)[:2] == [
        ("protocol.md", 7, "The caller of a running tool sends CANCEL"),
        ("protocol.md", 8, "with the id of its call."),
    ]
    assert [message["role"] for message in messages].count("assistant") == 2


def test_without_a_search_tool_files_are_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "cancel.md").write_text("first\nto cancel, press the button\n")
    (tmp_path / "other.md").write_text("nothing here\n")
    tools = [tool for tool in TOOLS if tool["name"] in ("fs.list", "fs.read", "fs.write")]
    answer, _ = converse("How to cancel?", file_tools(tmp_path), tools)
    assert ("sub/cancel.md", 2, "to cancel, press the button") in quotes_in(answer)


@pytest.mark.parametrize(
    "line",
    [
        Line("a", 1, "", True),
        Line("a", 1, "  ", True),
        Line("a", 1, "cut off", False),
        Line("a", 1, "two\nlines", True),
        Line("a", 1, "carriage\rreturn", True),
        Line("a", 1, "colour \x1b[31m", True),
        Line("a", 1, "turned \u202e", True),
        Line("a\nb", 1, "text", True),
        Line("a:2  > b", 1, "text", True),
        Line("", 1, "text", True),
    ],
)
def test_what_could_not_be_read_back_is_not_quoted(line: Line) -> None:
    """Nothing in a file can forge a quote, break a line or drive a terminal."""
    assert not can_quote(line)


@given(st.text(min_size=1), st.integers(1, 10**9), st.text(min_size=1))
def test_quotes_read_back(path: str, number: int, text: str) -> None:
    line = Line(path, number, text, True)
    if can_quote(line):
        assert parse(quote(line)) == (path, number, text)
        assert len(quote(line).splitlines()) == 1
