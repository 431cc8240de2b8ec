"""Memory files: whole, exact, capped, in order, or a coded error (CTX-18)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from purra.context import budget
from purra_plugin_agentsmd.memory import MemoryFile, MemoryFileError, estimate, files_of, load


def _files(*paths: Path, required: bool = True) -> tuple[MemoryFile, ...]:
    return tuple(MemoryFile(str(path), required) for path in paths)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=60))
def test_a_block_is_the_file_and_proves_it(tmp_path: Path, content: str) -> None:
    """Exact content, its path, the digest of its bytes (CTX-004), the estimate of the kernel."""
    path = tmp_path / "AGENTS.md"
    path.write_bytes(content.encode())
    (block,) = load(_files(path), 10_000)
    assert (block.name, block.content, block.source) == ("AGENTS.md", content, str(path))
    assert block.digest == "sha256:" + hashlib.sha256(content.encode()).hexdigest()
    assert block.tokens == budget.estimate(content)


@given(st.text())
def test_the_estimate_is_the_kernels(text: str) -> None:
    """The plugin has its own copy of the rule, since it imports nothing of the kernel (CTX-03)."""
    assert estimate(text) == budget.estimate(text)


def test_files_come_in_the_configured_order_and_names_stay_distinct(tmp_path: Path) -> None:
    paths = [tmp_path / "b" / "AGENTS.md", tmp_path / "a" / "AGENTS.md", tmp_path / "x.md"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.parent.name)
    blocks = load(_files(*paths), 1000)
    assert [block.source for block in blocks] == [str(path) for path in paths]
    assert [block.name for block in blocks] == ["AGENTS.md", "AGENTS.md (2)", "x.md"]
    assert load(_files(*paths), 1000) == blocks, "the same bytes each time (CTX-005)"


def test_the_cap_is_on_all_files_together_and_nothing_is_cut(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"x" * 60)
    two.write_bytes("é".encode() * 20)
    assert len(load(_files(one, two), 100)) == 2
    with pytest.raises(MemoryFileError, match="two") as caught:
        load(_files(one, two), 99)
    assert caught.value.code == "resource_exhausted"


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for missing in (tmp_path / "none", tmp_path / "none" / "deeper", tmp_path / "file" / "x"):
        assert load(_files(missing, required=False), 100) == ()
        with pytest.raises(MemoryFileError, match="missing") as caught:
            load(_files(missing), 100)
        assert caught.value.code == "not_found"


def test_unusable_files_are_errors_even_if_not_required(tmp_path: Path) -> None:
    """Undecodable, not a file, a link in a circle: an error, not a gap (CTX-18, CTX-009)."""
    (tmp_path / "latin1").write_bytes(b"caf\xe9")
    (tmp_path / "surrogate").write_bytes(b"\xed\xa0\x80")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("latin1", "surrogate", "folder", "pipe", "loop"):
        with pytest.raises(MemoryFileError, match=name) as caught:
            load(_files(tmp_path / name, required=False), 100)
        assert caught.value.code == "failed_precondition"


def test_links_are_followed_because_the_operator_names_the_files(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("text")
    (tmp_path / "AGENTS.md").symlink_to("real")
    (block,) = load(_files(tmp_path / "AGENTS.md"), 100)
    assert (block.name, block.content) == ("AGENTS.md", "text")


def test_an_empty_file_gives_no_block(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("")
    assert load(_files(tmp_path / "AGENTS.md"), 100) == ()


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (["/a"], [MemoryFile("/a", True)]),
        ([{"path": "/a"}], [MemoryFile("/a", True)]),
        (
            [{"path": "/a", "required": False}, "/b"],
            [MemoryFile("/a", False), MemoryFile("/b", True)],
        ),
    ],
)
def test_configured_forms(configured: list[Any], expected: list[MemoryFile]) -> None:
    assert list(files_of(configured)) == expected


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(MemoryFileError) as caught:
        files_of(["AGENTS.md"])
    assert caught.value.code == "failed_precondition"
