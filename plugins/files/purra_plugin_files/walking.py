"""What is under a folder: one order, bounded, never through a link (VFS-04).

Depth first; in each folder the names in the order of their code points, a folder before what is in
it. Names that start with a dot are left out unless asked for; `.git`, `.hg` and `.svn` always are,
unless the walk starts inside. Names that are not UTF-8 cannot be said in JSON: they are left out
and counted.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["MAX_DEPTH", "MAX_FOLDER_NAMES", "Entry", "Notes", "walk"]

MAX_DEPTH = 32
"""Levels below the start. Each open level holds one descriptor."""
MAX_FOLDER_NAMES = 20_000
"""Names taken of one folder: the first ones in order, whatever order the disk gives."""
_NEVER = frozenset({".git", ".hg", ".svn"})
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """One thing found. `parent` is the descriptor of its folder, open until the walk goes on."""

    path: str
    name: str
    type: str
    parent: int


class Notes:
    """What a walk or a search left out, and why. `unentered`: folders below the depth asked for."""

    def __init__(self) -> None:
        self.truncated = False
        self.unentered = 0
        self.skipped: dict[str, int] = {}

    def skip(self, reason: str) -> None:
        """Counts one thing left out."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def walk(folder: int, prefix: str, depth: int, hidden: bool, notes: Notes) -> Iterator[Entry]:
    """Everything in the open folder `folder`, `depth` levels deep (1 = only what is in it).

    `prefix` is its path, "" for the root. What cannot be opened is counted in `notes`.
    """
    for name, kind in _names(folder, hidden, notes):
        path = f"{prefix}/{name}" if prefix else name
        yield Entry(path, name, kind, folder)
        if kind != "folder":
            continue
        if depth <= 1:
            notes.unentered += 1
            continue
        try:
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
        except OSError:  # no right to it, or it is no folder any more
            notes.skip("unreadable")
            continue
        try:
            yield from walk(inner, path, depth - 1, hidden, notes)
        finally:
            os.close(inner)


def _names(folder: int, hidden: bool, notes: Notes) -> list[tuple[str, str]]:
    try:
        with os.scandir(folder) as found:
            names = ((entry.name, _type(entry)) for entry in found)
            shown = [pair for pair in names if _shown(pair[0], hidden, notes)]
    except OSError:
        notes.skip("unreadable")
        return []
    if len(shown) > MAX_FOLDER_NAMES:
        notes.truncated = True
        return heapq.nsmallest(MAX_FOLDER_NAMES, shown)
    return sorted(shown)


def _shown(name: str, hidden: bool, notes: Notes) -> bool:
    if name in _NEVER or (name.startswith(".") and not hidden):
        return False
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            notes.skip("name_not_utf8")
            return False
    return True


def _type(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
