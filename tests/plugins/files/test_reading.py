"""`fs.read` and `fs.list`: exact content, an escape form for the rest, fixed order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from purra_plugin_files import reading as reading_module
from purra_plugin_files.faults import FsError
from purra_plugin_files.places import Root
from purra_plugin_files.reading import Listing, Reading, list_folder, read_file
from purra_plugin_files.text import bare_lines, decode, kept_lines


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with Root(str(tmp_path)) as opened:
        yield opened


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab\n\r é\u2028\x85\0", max_size=30), at_once=st.integers(1, 4))
def test_reading_on_gives_the_whole_file_again(tmp_path: Path, text: str, at_once: int) -> None:
    """Page by page, from end_line + 1 while truncated, content joins to exactly the file."""
    (tmp_path / "x").write_bytes(text.encode())
    pages, start = [], 1
    with Root(str(tmp_path)) as root:
        while True:
            page = read_file(root, Reading("x", start, at_once))
            pages.append(page["content"])
            assert page["encoding"] == "utf-8"
            if not page["truncated"]:
                break
            start = page["end_line"] + 1
    assert "".join(pages) == text


@given(st.binary(max_size=60))
def test_any_bytes_have_a_form_that_can_be_undone(data: bytes) -> None:
    """No surrogates, ever; escaped text leads back to the very bytes (VFS-05)."""
    text, encoding = decode(data)
    text.encode()
    if encoding == "utf-8":
        assert text.encode() == data
        return
    undone = re.sub(
        rb"\\(\\|x([0-9a-f]{2}))",
        lambda found: bytes.fromhex(found[2].decode()) if found[2] else b"\\",
        text.encode(),
    )
    assert undone == data


@given(st.text(alphabet="a\n\r\u2028"))
def test_lines_with_and_without_newlines_correspond(text: str) -> None:
    assert "".join(kept_lines(text)) == text
    assert len(kept_lines(text)) == len(bare_lines(text))
    for kept, bare in zip(kept_lines(text), bare_lines(text), strict=True):
        assert kept in (bare, bare + "\n", bare + "\r\n")
        assert "\n" not in bare


def test_a_page_says_where_it_stands(root: Root, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one\ntwo\nthree\n")
    page = read_file(root, Reading("x", 2, 1))
    assert page == {
        "path": "x",
        "encoding": "utf-8",
        "start_line": 2,
        "end_line": 2,
        "total_lines": 3,
        "truncated": True,
        "line_cut": False,
        "content": "two\n",
    }
    beyond = read_file(root, Reading("x", 9))
    assert (beyond["content"], beyond["truncated"], beyond["total_lines"]) == ("", False, 3)


def test_whole_lines_only_unless_the_first_is_too_long(root: Root, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("short\n" + "y" * 500 + "\nend\n")
    page = read_file(root, Reading("x", 1, 10, 100))
    assert (page["content"], page["end_line"], page["truncated"]) == ("short\n", 1, True)
    cut = read_file(root, Reading("x", 2, 10, 100))
    assert (len(cut["content"]), cut["line_cut"], cut["truncated"]) == (100, True, True)


def test_large_files_are_refused_while_they_are_read(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"x" * 2000)
    monkeypatch.setattr("purra_plugin_files.text.MAX_FILE_BYTES", 1000)
    with pytest.raises(FsError) as caught:
        read_file(root, Reading("x"))
    assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("none", "not_found"),
        ("none/x", "not_found"),
        ("x/y", "not_found"),
        ("d", "conflict"),
        (".", "conflict"),
    ],
)
def test_errors_are_typed(root: Root, tmp_path: Path, path: str, code: str) -> None:
    """VFS-01; no message tells a path outside the root."""
    (tmp_path / "x").write_text("x")
    (tmp_path / "d").mkdir()
    with pytest.raises(FsError) as caught:
        read_file(root, Reading(path))
    assert caught.value.code == code
    assert str(tmp_path) not in caught.value.message


def test_a_listing_has_one_order_types_and_sizes(root: Root, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "z.md").write_text("12345")
    (tmp_path / "a.md").write_text("é")
    (tmp_path / "l").symlink_to("a.md")
    (tmp_path / ".hidden").write_text("")
    entries = list_folder(root, Listing(depth=2))["entries"]
    assert entries == [
        {"path": "a.md", "type": "file", "size": 2},
        {"path": "b", "type": "folder"},
        {"path": "b/z.md", "type": "file", "size": 5},
        {"path": "l", "type": "link"},
    ]
    flat = list_folder(root, Listing())
    assert [entry["path"] for entry in flat["entries"]] == ["a.md", "b", "l"]
    assert flat["truncated"] is False
    named = list_folder(root, Listing(depth=9, glob="*.md"))
    assert [entry["path"] for entry in named["entries"]] == ["a.md", "b/z.md"]
    inner = list_folder(root, Listing("b"))
    assert [entry["path"] for entry in inner["entries"]] == ["b/z.md"]


def test_a_listing_says_when_there_is_more(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    assert list_folder(root, Listing(max_entries=3))["truncated"] is False
    assert list_folder(root, Listing(max_entries=2))["truncated"] is True
    monkeypatch.setattr(reading_module, "MAX_DEPTH", 1)
    assert list_folder(root, Listing(depth=1))["truncated"] is True, "the deepest it can go"
