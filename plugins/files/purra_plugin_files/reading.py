"""`fs.read` and `fs.list`: one file's lines, one folder's entries."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from purra_plugin_files.automaton import ExhaustedError, PathGlob
from purra_plugin_files.places import Root, parts_of
from purra_plugin_files.text import decode, kept_lines, read_whole
from purra_plugin_files.walking import MAX_DEPTH, Entry, Notes, walk

__all__ = ["Listing", "Reading", "list_folder", "read_file"]


class Reading(NamedTuple):
    """What `fs.read` is asked. Lines count from 1."""

    path: str
    start_line: int = 1
    max_lines: int = 400
    max_chars: int = 20_000


class Listing(NamedTuple):
    """What `fs.list` is asked. `depth` 1 = only what is in the folder itself."""

    path: str = "."
    depth: int = 1
    glob: str = ""
    hidden: bool = False
    max_entries: int = 200


def read_file(root: Root, reading: Reading) -> dict[str, Any]:
    """Whole lines from `start_line` on, as many as fit `max_lines` and `max_chars`.

    Of a first line that alone is longer than `max_chars`, the beginning, with `line_cut`. Raises
    `FsError`: not_found, denied, conflict (a folder), too_large.
    """
    parts = parts_of(reading.path)
    path = "/".join(parts)
    with root.file(parts) as fd:
        text, encoding = decode(read_whole(fd, path))
    lines = kept_lines(text)
    start = reading.start_line - 1
    shown: list[str] = []
    left = reading.max_chars
    for line in lines[start : start + reading.max_lines]:
        if len(line) > left:
            break
        left -= len(line)
        shown.append(line)
    line_cut = not shown and start < len(lines)
    if line_cut:
        shown = [lines[start][: reading.max_chars]]
    end = start + len(shown)
    return {
        "path": path,
        "encoding": encoding,
        "start_line": reading.start_line,
        "end_line": max(end, 0),
        "total_lines": len(lines),
        "truncated": line_cut or end < len(lines),
        "line_cut": line_cut,
        "content": "".join(shown),
    }


def list_folder(root: Root, listing: Listing) -> dict[str, Any]:
    """The entries of a folder in one fixed order, each with its type and, for files, its size.

    Raises `FsError`: not_found, denied, invalid_argument (a bad glob).
    """
    parts = parts_of(listing.path)
    wanted = PathGlob(listing.glob) if listing.glob else None
    notes = Notes()
    entries: list[dict[str, Any]] = []
    with root.folder(parts) as folder:
        try:
            for entry in walk(folder, "/".join(parts), listing.depth, listing.hidden, notes):
                if wanted is not None and not wanted(entry.path):
                    continue
                if len(entries) == listing.max_entries:
                    notes.truncated = True
                    break
                entries.append(_described(entry))
        except ExhaustedError:
            notes.truncated = True
    return {
        "path": "/".join(parts) or ".",
        "entries": entries,
        "truncated": notes.truncated or (listing.depth == MAX_DEPTH and notes.unentered > 0),
        "skipped": notes.skipped,
    }


def _described(entry: Entry) -> dict[str, Any]:
    described: dict[str, Any] = {"path": entry.path, "type": entry.type}
    if entry.type == "file":
        try:
            status = os.stat(entry.name, dir_fd=entry.parent, follow_symlinks=False)
        except OSError:
            return described  # gone since; the listing is of a moment that has passed anyway
        described["size"] = status.st_size
    return described
