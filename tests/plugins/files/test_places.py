"""Nothing outside the root is reached, by any path, at any moment (VFS-02, K83)."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_plugin_files import places
from purra_plugin_files.faults import FsError
from purra_plugin_files.places import Root, parts_of
from purra_plugin_files.reading import Listing, Reading, list_folder, read_file
from purra_plugin_files.searching import Search, grep
from purra_plugin_files.writing import Write, write_file

SECRET = "the secret outside"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A root `data`, a sibling `data-old` and a `secret` beside it; links that lead out and in."""
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    (data / "inner" / "plain.txt").write_text("plain\n")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    (tmp_path / "data-old").mkdir()
    (tmp_path / "data-old" / "secret").write_text(SECRET)
    (data / "out-file").symlink_to(tmp_path / "secret")
    (data / "out-folder").symlink_to(tmp_path / "outside")
    (data / "out-up").symlink_to("..")
    (data / "dangling").symlink_to(tmp_path / "outside" / "new")
    (data / "in-file").symlink_to("inner/plain.txt")
    (data / "in-folder").symlink_to("inner")
    return data


@pytest.fixture
def root(world: Path) -> Iterator[Root]:
    with Root(str(world)) as opened:
        yield opened


OPERATIONS: list[Callable[[Root, str], object]] = [
    lambda root, path: read_file(root, Reading(path)),
    lambda root, path: list_folder(root, Listing(path)),
    lambda root, path: grep(root, Search("secret", path=path)),
    lambda root, path: write_file(root, Write(path, "x", "create")),
    lambda root, path: write_file(root, Write(path, "x", "overwrite", parents=True)),
    lambda root, path: write_file(root, Write(path, "x", "append", parents=True)),
]
ESCAPES = [
    "../secret",
    "../data-old/secret",
    "inner/../../secret",
    "inner/..",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "out-folder/secret",
    "out-folder/new",
    "out-folder/new/deeper",
    "out-up/secret",
    "out-up/data-old/secret",
    "in-folder/plain.txt",
    "in-folder/new",
    "inner/plain.txt\0",
    "\0",
]
LINKS = ["out-file", "dangling", "in-file", "out-folder", "in-folder"]


def _outside(world: Path) -> dict[str, str]:
    """Everything beside the root, to show that nothing of it changed."""
    found = [path for path in world.parent.rglob("*") if world not in (path, *path.parents)]
    return {str(path): path.read_text() if path.is_file() else "" for path in sorted(found)}


@pytest.mark.parametrize("path", [*ESCAPES, *LINKS])
@pytest.mark.parametrize("operation", range(len(OPERATIONS)))
def test_every_way_out_is_denied(root: Root, world: Path, operation: int, path: str) -> None:
    """Parent, absolute, sibling prefix, every kind of link, targets that do not exist yet (K83)."""
    before = _outside(world)
    with pytest.raises(FsError) as caught:
        OPERATIONS[operation](root, path)
    assert caught.value.code == "denied"
    assert caught.value.effect_state == "not_started"
    assert _outside(world) == before


def test_searching_and_listing_do_not_follow_links(root: Root) -> None:
    assert grep(root, Search("secret"))["matches"] == []
    entries = list_folder(root, Listing(depth=9))["entries"]
    assert {"path": "out-folder", "type": "link"} in entries
    assert not [entry for entry in entries if entry["path"].startswith("out-folder/")]


def test_the_root_itself_may_be_named_through_a_link(world: Path) -> None:
    link = world.parent / "link"
    link.symlink_to(world)
    with Root(str(link)) as root:
        assert read_file(root, Reading("inner/plain.txt"))["content"] == "plain\n"


def test_pipes_are_never_opened(root: Root, world: Path) -> None:
    """Opening a pipe would wait for its other end, or let a writer go on."""
    os.mkfifo(world / "pipe")
    for operation in OPERATIONS:
        with pytest.raises(FsError):
            operation(root, "pipe")


def test_a_file_swapped_for_a_link_after_the_look_is_denied(
    root: Root, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swap after check: at the moment between the look at the name and the open."""
    looked = places.demand_regular

    def swap(status: os.stat_result, path: str) -> None:
        looked(status, path)
        (world / "inner" / "plain.txt").unlink(missing_ok=True)
        (world / "inner" / "plain.txt").symlink_to(world.parent / "secret")

    monkeypatch.setattr(places, "demand_regular", swap)
    with pytest.raises(FsError) as caught:
        read_file(root, Reading("inner/plain.txt"))
    assert caught.value.code == "denied"


def test_a_folder_swapped_for_a_link_does_not_lead_a_write_out(root: Root, world: Path) -> None:
    """The folder that was opened is the one that is written to, whatever has its name by then."""
    with root.folder(("inner",)) as opened:
        (world / "inner").rename(world / "moved")
        (world / "inner").symlink_to(world.parent / "outside")
        os.close(os.open("late", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=opened))
    assert (world / "moved" / "late").exists()
    assert not (world.parent / "outside" / "late").exists()


def test_swapping_all_the_time_never_leaks(root: Root, world: Path) -> None:
    """One thread swaps a file and a folder with links that lead out; no call ever gets through."""
    stop = threading.Event()
    target, folder = world / "flip", world / "flap"

    def swap_once() -> None:
        spare = world / "spare"
        spare.symlink_to(world.parent / "secret")
        spare.rename(target)
        spare.write_text("inside")
        spare.rename(target)
        spare.symlink_to(world.parent / "outside")
        spare.rename(folder)
        folder.unlink()
        folder.mkdir()
        shutil.rmtree(folder, ignore_errors=True)  # a write may have come in between

    def swap() -> None:
        while not stop.is_set():
            try:
                swap_once()
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                (world / "spare").unlink(missing_ok=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(400):
            for path in ("flip", "flap/secret"):
                try:
                    assert SECRET not in read_file(root, Reading(path))["content"]
                except FsError:
                    pass
            assert grep(root, Search(SECRET))["matches"] == []
            try:
                write_file(root, Write("flap/planted", "x", "overwrite"))
            except FsError:
                pass
    finally:
        stop.set()
        thread.join()
    assert not (world.parent / "outside" / "planted").exists()
    assert (world.parent / "secret").read_text() == SECRET


@given(st.text(max_size=30))
def test_parts_never_hold_anything_that_leaves(path: str) -> None:
    try:
        parts = parts_of(path)
    except FsError as error:
        assert error.code == "denied"
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)


@pytest.mark.parametrize("path", [".", "", "./", "inner/..x", "a//b", "./inner/./plain.txt"])
def test_harmless_spellings_are_taken(path: str) -> None:
    assert ".." not in parts_of(path)


def test_a_name_that_is_too_long_is_a_bad_argument(root: Root) -> None:
    for path in ("x" * 300, "x/" * 2049):
        with pytest.raises(FsError) as caught:
            read_file(root, Reading(path))
        assert caught.value.code == "invalid_argument"


def test_no_descriptor_is_left_open(root: Root) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for operation in OPERATIONS:
        for path in [*ESCAPES, *LINKS, "inner/plain.txt", "none/none", "inner"]:
            try:
                operation(root, path)
            except FsError:
                pass
    assert len(os.listdir("/proc/self/fd")) == before
