"""Memory files into context blocks: whole, in the order configured, or not at all (CTX-18).

Files are read for each request, so that an edit counts from the next run on, and nothing is kept
that could grow stale. A memory file is small and somebody wrote it to be obeyed or known in full,
so it is never cut: the claim says what all of it costs, and a pool that is too small is refused by
the kernel, by name (CTX-02, CTX-04).

A file is read by whoever may read it: links are followed, because the operator names these files
in the host manifest. What is in them is another matter; that is what `trusted` is about.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, NamedTuple

__all__ = [
    "DEFAULT_MAX_BYTES",
    "Block",
    "MemoryFile",
    "MemoryFileError",
    "estimate",
    "files_of",
    "load",
]

DEFAULT_MAX_BYTES = 32 * 1024
"""All files together: some 8,000 tokens of English."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class MemoryFileError(Exception):
    """A memory file cannot be used. `code`: not_found, failed_precondition, resource_exhausted."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class MemoryFile(NamedTuple):
    """One configured file. A missing one is an error if `required`."""

    path: str
    required: bool


class Block(NamedTuple):
    """One file, exactly. `digest` is `sha256:` of its UTF-8; `tokens` its estimated cost."""

    name: str
    content: str
    source: str
    digest: str
    tokens: int


def files_of(configured: list[Any]) -> tuple[MemoryFile, ...]:
    """The files of `config.files`: paths, or `{path, required}` with `required` true unless said.

    Raises `MemoryFileError(failed_precondition)` for a path that is not absolute: it would mean
    another file in each working folder. (The host makes paths absolute.)
    """
    files = []
    for item in configured:
        path, required = (
            (item, True) if isinstance(item, str) else (item["path"], item.get("required", True))
        )
        if not os.path.isabs(path):
            raise MemoryFileError("failed_precondition", f"{path}: the path must be absolute")
        files.append(MemoryFile(path, required))
    return tuple(files)


def load(files: tuple[MemoryFile, ...], max_bytes: int) -> tuple[Block, ...]:
    """The blocks of all files that exist and are not empty, in order.

    Raises `MemoryFileError`: not_found (a required file is missing), resource_exhausted (all
    together are over `max_bytes`), failed_precondition (unreadable, not a file, not UTF-8).
    """
    blocks: list[Block] = []
    names: dict[str, int] = {}
    left_bytes = max_bytes
    for file in files:
        data = _read(file, left_bytes)
        if data is None:
            continue
        if len(data) > left_bytes:
            raise MemoryFileError(
                "resource_exhausted",
                f"{file.path}: the memory files are larger than max_bytes = {max_bytes}",
            )
        left_bytes -= len(data)
        try:
            content = data.decode()
        except UnicodeDecodeError as error:
            raise MemoryFileError(
                "failed_precondition", f"{file.path}: not UTF-8 (byte {error.start})"
            ) from None
        if content:
            blocks.append(_block(file, data, content, names))
    return tuple(blocks)


def estimate(text: str) -> int:
    """Estimated tokens of a text: non-ASCII characters 1 each, ASCII 1/4, rounded up (CTX-03)."""
    plain = len(text.encode("ascii", "ignore"))
    return (len(text) - plain) + -(-plain // 4)


def _read(file: MemoryFile, left_bytes: int) -> bytes | None:
    """At most one byte more than `left_bytes`; None if the file is missing and may be."""
    try:
        fd = os.open(file.path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        if file.required:
            raise MemoryFileError("not_found", f"{file.path}: a required file is missing") from None
        return None
    except OSError as error:
        raise MemoryFileError("failed_precondition", f"{file.path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise MemoryFileError("failed_precondition", f"{file.path}: not a regular file")
        data = b""
        while len(data) <= left_bytes and (more := os.read(fd, left_bytes + 1 - len(data))):
            data += more
        return data
    except OSError as error:
        raise MemoryFileError("failed_precondition", f"{file.path}: {error.strerror}") from None
    finally:
        os.close(fd)


def _block(file: MemoryFile, data: bytes, content: str, names: dict[str, int]) -> Block:
    """Blocks are named after their files; a name that comes again gets its number."""
    name = os.path.basename(file.path)
    names[name] = names.get(name, 0) + 1
    if names[name] > 1:
        name = f"{name} ({names[name]})"
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    return Block(name, content, file.path, digest, estimate(content))
