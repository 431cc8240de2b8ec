"""`fs.grep`: exact lines, one order, bounds that say so (VFS-04, VFS-05)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from purra_plugin_files import searching, walking
from purra_plugin_files.faults import FsError
from purra_plugin_files.places import Root
from purra_plugin_files.searching import MAX_LINE_CHARS, Search, grep

LINE = st.text(alphabet="abc é字.*[(\\$|\t\r\x0b\u2028\x85", max_size=8)
FILE = st.tuples(st.lists(LINE, max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with Root(str(tmp_path)) as opened:
        yield opened


def _places(result: dict[str, Any]) -> list[tuple[str, int]]:
    return [(match["path"], match["line"]) for match in result["matches"]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(FILE, min_size=1, max_size=4), pattern=LINE, ignore_case=st.booleans())
def test_finds_exactly_the_lines_that_hold_the_text(
    tmp_path: Path, files: list[tuple[list[str], str, bool]], pattern: str, ignore_case: bool
) -> None:
    """Against a plain reading of the bytes; lines end at \\n or \\r\\n, nowhere else."""
    pattern = pattern.replace("\r", "") or "a"
    expression = re.compile(re.escape(pattern), re.IGNORECASE if ignore_case else 0)
    expected = []
    for number, (lines, newline, ends) in enumerate(files):
        data = (newline.join(lines) + (newline if ends else "")).encode()
        (tmp_path / f"{number}.txt").write_bytes(data)
        for place, raw in enumerate(data.split(b"\n"), 1):
            line = raw.decode()
            if expression.search(line):
                expected.append((f"{number}.txt", place))
    for old in range(len(files), 4):
        (tmp_path / f"{old}.txt").unlink(missing_ok=True)
    with Root(str(tmp_path)) as root:
        result = grep(root, Search(pattern, ignore_case=ignore_case))
        assert _places(result) == expected
        for match in result["matches"]:
            raw = (tmp_path / match["path"]).read_bytes().split(b"\n")[match["line"] - 1]
            assert match["text"] in (raw.decode(), raw.decode().removesuffix("\r"))
        json.dumps(result, allow_nan=False).encode()


def test_order_is_by_path_then_line(root: Root, tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/b/y.txt", "C.txt", "é.txt", "a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("word\nother\nword\n")
    found = _places(grep(root, Search("word")))
    order = ["C.txt", "a/b/y.txt", "a/z.txt", "a.txt", "b.txt", "é.txt"]
    assert found == [(path, line) for path in order for line in (1, 3)]


def test_a_regular_expression_is_opt_in(root: Root, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a.c\nabc\n")
    assert _places(grep(root, Search("a.c"))) == [("x", 1)]
    assert _places(grep(root, Search("a.c", regex=True))) == [("x", 1), ("x", 2)]


def test_what_is_not_utf8_text_is_left_out_and_counted(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never surrogates: neither from content nor from names (VFS-05)."""
    (tmp_path / "latin1").write_bytes(b"word caf\xe9\n")
    (tmp_path / "surrogate").write_bytes(b"word \xed\xa0\x80\n")
    (tmp_path / "binary").write_bytes(b"word\0\n")
    (tmp_path / "large").write_bytes(b"word\n" * 400)
    (tmp_path / "good").write_text("word é\n")
    (tmp_path / "link").symlink_to("good")
    (tmp_path / os.fsdecode(b"\xff")).write_text("word\n")
    monkeypatch.setattr("purra_plugin_files.text.MAX_FILE_BYTES", 1000)
    result = grep(root, Search("word"))
    assert result["matches"] == [{"path": "good", "line": 1, "text": "word é"}]
    assert result["skipped"] == {
        "not_utf8": 2,
        "binary": 1,
        "too_large": 1,
        "link": 1,
        "name_not_utf8": 1,
    }
    assert result["truncated"] is False


def test_hidden_files_only_on_request_and_git_never(root: Root, tmp_path: Path) -> None:
    for name in (".hidden", ".git/config", "sub/.git/x", ".config/a", "seen"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("word\n")
    assert _places(grep(root, Search("word"))) == [("seen", 1)]
    shown = grep(root, Search("word", hidden=True))
    assert _places(shown) == [(".config/a", 1), (".hidden", 1), ("seen", 1)]


def test_path_may_name_a_file_or_a_folder_and_glob_narrows(root: Root, tmp_path: Path) -> None:
    for name in ("a/x.md", "a/x.txt", "b/x.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("word\n")
    assert _places(grep(root, Search("word", path="a/x.txt"))) == [("a/x.txt", 1)]
    assert _places(grep(root, Search("word", path="a", glob="*.md"))) == [("a/x.md", 1)]
    assert _places(grep(root, Search("word", glob="b/*"))) == [("b/x.md", 1)]
    with pytest.raises(FsError, match="no such") as caught:
        grep(root, Search("word", path="none"))
    assert caught.value.code == "not_found"


def test_bounds_on_matches_and_characters_are_told(root: Root, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("word\n" * 10)
    exact = grep(root, Search("word", max_matches=10))
    assert (len(exact["matches"]), exact["truncated"]) == (10, False)
    fewer = grep(root, Search("word", max_matches=9))
    assert (len(fewer["matches"]), fewer["truncated"], fewer["limit"]) == (9, True, "max_matches")
    short = grep(root, Search("word", max_chars=100))
    assert (len(short["matches"]), short["truncated"], short["limit"]) == (2, True, "max_chars")


def test_a_long_line_is_cut_and_says_so(root: Root, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("word" + "x" * MAX_LINE_CHARS + "\n")
    (match,) = grep(root, Search("word"))["matches"]
    assert match["cut"] is True
    assert len(match["text"]) == MAX_LINE_CHARS


def test_bounds_on_bytes_time_depth_and_names_are_told(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("word\n" * 100)
    with monkeypatch.context() as patch:
        patch.setattr(searching, "MAX_SCAN_BYTES", 1200)
        assert grep(root, Search("none"))["limit"] == "scanned_bytes"
    looks = iter([False, True])
    late = grep(root, Search("word", max_matches=1000), lambda: next(looks))
    assert (late["limit"], len(late["matches"])) == ("time", 200)
    with monkeypatch.context() as patch:
        patch.setattr(walking, "MAX_FOLDER_NAMES", 2)
        cut = grep(root, Search("word", max_matches=1000))
        assert {match["path"] for match in cut["matches"]} == {"0.txt", "1.txt"}
        assert cut["limit"] == "folder_size"
    with monkeypatch.context() as patch:
        patch.setattr(searching, "MAX_DEPTH", 2)
        (tmp_path / "a/b/c").mkdir(parents=True)
        assert grep(root, Search("none"))["limit"] == "depth"


def test_a_costly_pattern_ends_the_search_and_says_so(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("word abab\n" * 50)
    monkeypatch.setattr("purra_plugin_files.automaton.MAX_WORK", 20)
    assert grep(root, Search("(a|b)*c", regex=True))["limit"] == "pattern_cost"


@pytest.mark.parametrize("pattern", ["", "a\nb", "x" * 501])
def test_patterns_that_cannot_match_a_line_are_refused(root: Root, pattern: str) -> None:
    with pytest.raises(FsError) as caught:
        grep(root, Search(pattern))
    assert caught.value.code == "invalid_argument"


def test_an_unreadable_folder_is_counted(root: Root, tmp_path: Path) -> None:
    """Tests may run as root, who can read everything: the refusal is made here."""
    (tmp_path / "gone").mkdir()
    real_open = os.open

    def refuse(name: str, *args: Any, **kwargs: Any) -> int:
        if name == "gone":
            raise PermissionError(13, "no")
        return int(real_open(name, *args, **kwargs))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert grep(root, Search("x"))["skipped"] == {"unreadable": 1}


def test_the_search_leaves_the_tree_as_it_was(root: Root, tmp_path: Path) -> None:
    """A read tool leaves nothing behind (TOL-007)."""
    (tmp_path / "x").write_text("word\n")
    before = [(path, path.stat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))]
    assert grep(root, Search("word")) == grep(root, Search("word"))
    assert [(path, path.stat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))] == before
