"""`fs.write`: whole or not at all, never over somebody else's file, never out of the root."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_files import writing
from purra_plugin_files.faults import FsError
from purra_plugin_files.places import Root
from purra_plugin_files.writing import MAX_WRITE_BYTES, Write, write_file


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with Root(str(tmp_path)) as opened:
        yield opened


def test_create_makes_a_file_and_never_replaces_one(root: Root, tmp_path: Path) -> None:
    made = write_file(root, Write("x", "é\r\n"))
    assert made == {"path": "x", "bytes": 4, "created": True}
    assert (tmp_path / "x").read_bytes() == "é\r\n".encode()
    with pytest.raises(FsError) as caught:
        write_file(root, Write("x", "other"))
    assert (caught.value.code, caught.value.effect_state) == ("conflict", "not_started")
    assert (tmp_path / "x").read_bytes() == "é\r\n".encode()


def test_overwrite_replaces_or_makes_and_keeps_permissions(root: Root, tmp_path: Path) -> None:
    assert write_file(root, Write("x", "1", "overwrite"))["created"] is True
    (tmp_path / "x").chmod(0o640)
    assert write_file(root, Write("x", "2", "overwrite"))["created"] is False
    assert (tmp_path / "x").read_text() == "2"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_append_adds_or_makes(root: Root, tmp_path: Path) -> None:
    assert write_file(root, Write("x", "1\n", "append"))["created"] is True
    assert write_file(root, Write("x", "2\n", "append"))["created"] is False
    assert (tmp_path / "x").read_text() == "1\n2\n"


def test_folders_are_made_only_on_request(root: Root, tmp_path: Path) -> None:
    with pytest.raises(FsError) as caught:
        write_file(root, Write("a/b/x", "1"))
    assert caught.value.code == "not_found"
    write_file(root, Write("a/b/x", "1", parents=True))
    assert (tmp_path / "a/b/x").read_text() == "1"


@pytest.mark.parametrize("mode", ["create", "overwrite", "append"])
@pytest.mark.parametrize(
    ("path", "code"),
    [
        (".git/hooks/pre-commit", "denied"),
        ("sub/.GIT/config", "denied"),
        ("folder", "conflict"),
        (".", "conflict"),
        ("new\nline", "invalid_argument"),
    ],
)
def test_what_is_never_written(root: Root, tmp_path: Path, mode: str, path: str, code: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FsError) as caught:
        write_file(root, Write(path, "x", mode, parents=True))
    assert (caught.value.code, caught.value.effect_state) == (code, "not_started")


def test_size_is_bounded_in_bytes(root: Root, tmp_path: Path) -> None:
    with pytest.raises(FsError) as caught:
        write_file(root, Write("x", "é" * (MAX_WRITE_BYTES // 2 + 1)))
    assert caught.value.code == "too_large"
    assert list(tmp_path.iterdir()) == []


def test_a_name_taken_at_the_last_moment_is_kept(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer makes the file after the look: `create` conflicts, and leaves nothing."""
    real = writing._write_new

    def late(*args: Any) -> None:
        real(*args)
        (tmp_path / "x").write_text("theirs")

    monkeypatch.setattr(writing, "_write_new", late)
    with pytest.raises(FsError) as caught:
        write_file(root, Write("x", "ours"))
    assert (caught.value.code, caught.value.effect_state) == ("conflict", "not_started")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "theirs"}


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_a_name_that_becomes_a_link_is_not_followed(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    outside = tmp_path.parent / f"outside-{mode}"
    outside.write_text("kept")
    real = writing._write_new

    def late(*args: Any) -> None:
        real(*args)
        (tmp_path / "x").symlink_to(outside)

    monkeypatch.setattr(writing, "_write_new", late)
    try:
        write_file(root, Write("x", "ours", mode))
    except FsError as error:
        assert error.code == "conflict"
    assert outside.read_text() == "kept"


def test_a_failed_write_leaves_the_old_content(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("old")

    def full(_fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FsError) as caught:
        write_file(root, Write("x", "new", "overwrite"))
    assert (caught.value.code, caught.value.effect_state) == ("storage", "not_started")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "old"}


def test_what_may_have_happened_is_unknown(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest effect states: a named file that may not be on the disk, an append that stopped."""
    real_sync, calls = os.fsync, []

    def sync(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 2:  # the folder, after the file
            raise OSError(errno.EIO, "broken")
        real_sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        with pytest.raises(FsError) as caught:
            write_file(root, Write("x", "new"))
    assert caught.value.effect_state == "unknown"
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: 1)
        with pytest.raises(FsError) as caught:
            write_file(root, Write("x", "more", "append"))
    assert caught.value.effect_state == "unknown"


def test_without_hard_links_create_still_does_not_replace(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have none (FAT, some network and user-space ones)."""

    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert write_file(root, Write("x", "1"))["created"] is True
    assert (tmp_path / "x").read_text() == "1"
    real = writing._write_new

    def late(*args: Any) -> None:
        real(*args)
        (tmp_path / "y").write_text("theirs")

    monkeypatch.setattr(writing, "_write_new", late)
    with pytest.raises(FsError) as caught:
        write_file(root, Write("y", "ours"))
    assert caught.value.code == "conflict"
    assert (tmp_path / "y").read_text() == "theirs"


def test_a_reader_sees_the_old_or_the_new_and_never_a_part(root: Root, tmp_path: Path) -> None:
    contents = ["a" * 200_000, "b" * 200_000]
    write_file(root, Write("x", contents[0]))
    seen: set[str] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add((tmp_path / "x").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(20):
            write_file(root, Write("x", contents[number % 2], "overwrite"))
    finally:
        stop.set()
        reader.join()
    assert seen <= set(contents)


def test_of_many_that_create_one_wins(root: Root, tmp_path: Path) -> None:
    results: list[str] = []

    def create(number: int) -> None:
        try:
            write_file(root, Write("x", str(number)))
            results.append(str(number))
        except FsError as error:
            results.append(error.code)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [result for result in results if result != "conflict"]
    assert len(winners) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == winners[0]
