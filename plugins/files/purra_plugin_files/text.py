"""Lines and encodings: what of a file can be said in JSON text, exactly (VFS-05).

A line ends at `\\n`. `\\r\\n` is one newline; every other character, a lone `\\r` or U+2028 too,
is part of a line. So line numbers are those of grep and of editors.
"""

from __future__ import annotations

import os

from purra_plugin_files.faults import FsError, fs_error

__all__ = ["MAX_FILE_BYTES", "bare_lines", "decode", "is_binary", "kept_lines", "read_whole"]

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Larger files are not read: a file is held whole, so that line numbers are true."""
_BLOCK_BYTES = 1024 * 1024


def read_whole(fd: int, path: str) -> bytes:
    """All bytes of an open file. Raises `FsError`: too_large over `MAX_FILE_BYTES`, storage.

    The size is counted while reading: what `fstat` says may have grown.
    """
    blocks: list[bytes] = []
    total = 0
    try:
        while block := os.read(fd, _BLOCK_BYTES):
            total += len(block)
            if total > MAX_FILE_BYTES:
                raise FsError("too_large", f"{path}: more than {MAX_FILE_BYTES} bytes")
            blocks.append(block)
    except OSError as error:
        raise fs_error(error, path) from None
    return b"".join(blocks)


def decode(data: bytes) -> tuple[str, str]:
    """The text of a file and how it is written: `utf-8`, or `escaped`.

    Escaped, for files that are not UTF-8: a backslash is written twice and a byte that is no part
    of a UTF-8 character as `\\xNN`. That can be undone without loss, and holds no surrogates.
    """
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return data.replace(b"\\", b"\\\\").decode(errors="backslashreplace"), "escaped"


def is_binary(data: bytes) -> bool:
    """Whether a search should leave the file out: it holds a NUL byte."""
    return b"\0" in data


def kept_lines(text: str) -> list[str]:
    """The lines of `text` with their newlines; joined they are `text` again."""
    parts = text.split("\n")
    last = parts.pop()
    lines = [part + "\n" for part in parts]
    if last:
        lines.append(last)
    return lines


def bare_lines(text: str) -> list[str]:
    """The lines of `text` without their newlines."""
    parts = text.split("\n")
    last = parts.pop()
    if "\r" in text:
        parts = [part.removesuffix("\r") for part in parts]
    if last:
        parts.append(last)
    return parts
