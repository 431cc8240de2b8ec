"""`fs.grep`: lines that match, in one fixed order, within bounds (VFS-04)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from purra_plugin_files.automaton import Automaton, ExhaustedError, PathGlob
from purra_plugin_files.faults import FsError
from purra_plugin_files.patterns import MAX_PATTERN_CHARS, compile_regex
from purra_plugin_files.places import Root, open_regular, parts_of
from purra_plugin_files.text import bare_lines, is_binary, read_whole
from purra_plugin_files.walking import MAX_DEPTH, Entry, Notes, walk

__all__ = ["MAX_LINE_CHARS", "MAX_SCAN_BYTES", "Search", "grep"]

MAX_LINE_CHARS = 4096
"""A longer line is shown by its beginning and marked `cut`, so that nobody quotes it as whole."""
MAX_SCAN_BYTES = 64 * 1024 * 1024
"""Read by one search: about a second for literal text."""
_MATCH_OVERHEAD_CHARS = 40
"""What the JSON around one match takes."""
_LINES_PER_LOOK = 2048
"""Lines between two looks at the clock."""


class Search(NamedTuple):
    """What `fs.grep` is asked. `pattern` is literal text unless `regex`."""

    pattern: str
    path: str = "."
    glob: str = ""
    regex: bool = False
    ignore_case: bool = False
    hidden: bool = False
    max_matches: int = 100
    max_chars: int = 16_000


class _BoundError(Exception):
    """The search has reached a bound; the message is its name."""


class _Found:
    """The matches so far, within the bounds on number and size."""

    def __init__(self, search: Search) -> None:
        self.matches: list[dict[str, Any]] = []
        self._most = search.max_matches
        self._chars_left = search.max_chars

    def add(self, path: str, number: int, line: str) -> None:
        text = line[:MAX_LINE_CHARS]
        cost = len(path) + len(text) + _MATCH_OVERHEAD_CHARS
        if len(self.matches) == self._most:
            raise _BoundError("max_matches")
        if cost > self._chars_left and self.matches:
            raise _BoundError("max_chars")
        self._chars_left -= cost
        match: dict[str, Any] = {"path": path, "line": number, "text": text}
        if len(text) < len(line):
            match["cut"] = True
        self.matches.append(match)


def grep(root: Root, search: Search, expired: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Every matching line as `{path, line, text}`; `limit` says what ended it early.

    `expired` is asked now and then whether to stop with what there is. Left out and counted in
    `skipped`: files that are binary (a NUL), not UTF-8, too large or unreadable, links and special
    files. Raises `FsError`: not_found, denied, invalid_argument.
    """
    matches = _finder(search)
    notes = Notes()
    found = _Found(search)
    limit = ""
    try:
        for path, text in _files(root, search, notes):
            for number, line in enumerate(bare_lines(text), 1):
                if matches(line):
                    found.add(path, number, line)
                if number % _LINES_PER_LOOK == 0 and expired():
                    raise _BoundError("time")
            if expired():
                raise _BoundError("time")
    except _BoundError as stop:
        limit = str(stop)
    except ExhaustedError:
        limit = "pattern_cost"
    if not limit and (notes.truncated or notes.unentered):
        limit = "depth" if notes.unentered else "folder_size"
    result: dict[str, Any] = {"matches": found.matches, "truncated": bool(limit)}
    if limit:
        result["limit"] = limit
    result["skipped"] = notes.skipped
    return result


def _finder(search: Search) -> Callable[[str], bool]:
    """Whether one line matches. May raise `ExhaustedError` when called."""
    pattern = search.pattern
    if search.regex:
        return Automaton(compile_regex(pattern, ignore_case=search.ignore_case)).search
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise FsError("invalid_argument", f"a pattern has 1 to {MAX_PATTERN_CHARS} characters")
    if "\n" in pattern:
        raise FsError("invalid_argument", "a pattern is searched for within one line")
    if search.ignore_case:
        folded = re.compile(re.escape(pattern), re.IGNORECASE)
        return lambda line: folded.search(line) is not None
    return lambda line: pattern in line


def _files(root: Root, search: Search, notes: Notes) -> Iterator[tuple[str, str]]:
    """Path and text of each file to search. Raises `FsError`, `_BoundError`, `ExhaustedError`."""
    parts = parts_of(search.path)
    start = "/".join(parts)
    if not root.is_folder(parts):
        with root.file(parts) as fd:
            data = read_whole(fd, start)
        yield from _searchable(start, data, notes)
        return
    wanted = PathGlob(search.glob) if search.glob else None
    scanned = 0
    with root.folder(parts) as folder:
        for entry in walk(folder, start, MAX_DEPTH, search.hidden, notes):
            if entry.type == "folder" or (wanted is not None and not wanted(entry.path)):
                continue
            data = _bytes(entry, notes)
            scanned += len(data)
            if scanned > MAX_SCAN_BYTES:
                raise _BoundError("scanned_bytes")
            yield from _searchable(entry.path, data, notes)


def _bytes(entry: Entry, notes: Notes) -> bytes:
    """What is in the file found; empty, and counted, if it is not to be read."""
    if entry.type != "file":
        notes.skip(entry.type)
        return b""
    try:
        fd = open_regular(entry.parent, entry.name, entry.path)
    except FsError:  # no right to it, or it is no regular file any more
        notes.skip("unreadable")
        return b""
    try:
        return read_whole(fd, entry.path)
    except FsError as fault:
        notes.skip("too_large" if fault.code == "too_large" else "unreadable")
        return b""
    finally:
        os.close(fd)


def _searchable(path: str, data: bytes, notes: Notes) -> Iterator[tuple[str, str]]:
    """The file as text, or nothing, counted."""
    if is_binary(data):
        notes.skip("binary")
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        notes.skip("not_utf8")
        return
    yield path, text
