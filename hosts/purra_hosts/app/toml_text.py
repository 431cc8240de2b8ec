"""TOML as text: statements with their places, values written, and a file replaced whole or not.

Manifests are written by people, with comments and an order that mean something to them, so our
commands change the statements that they must change and leave every other byte as it is. A library
that keeps comments (tomlkit) was not taken: it would be one more dependency of everybody for two
commands of authors, and what is needed of TOML's grammar is where a statement ends.

That is decided here by strings, brackets and comments; whatever else is wrong with a file has been
found by `tomllib` before. What comes out is read by `tomllib` again before it counts.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Statement", "key_text", "replace_file", "statements", "value_text"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z", re.ASCII)
_EXACT: Final = 2.0**53
"""Whole floats below it are written as people write them, without a point."""
_QUOTES: Final = ('"""', "'''", '"', "'")


@dataclass(frozen=True, slots=True)
class Statement:
    """A header, a pair, or what stands between them. `text`: with its newline, every byte.

    `keys`: of a header or a pair, its dotted key as parts; empty for blank lines and comments.
    `header`: 1 for `[table]`, 2 for `[[table]]`, 0 for anything else.
    """

    text: str
    keys: tuple[str, ...] = ()
    header: int = 0


def statements(text: str) -> list[Statement]:
    """The whole of a document that is TOML. Their texts joined are `text`."""
    found: list[Statement] = []
    start = 0
    while start < len(text):
        end = _end(text, start)
        found.append(_statement(text[start:end]))
        start = end
    return found


def _statement(text: str) -> Statement:
    line = text.strip()
    if not line or line.startswith("#"):
        return Statement(text)
    header = 2 if line.startswith("[[") else 1 if line.startswith("[") else 0
    return Statement(text, _keys(line[header:]), header)


def _end(text: str, start: int) -> int:
    """Where the statement that begins at `start` ends: after the newline that is in no bracket."""
    depth, at = 0, start
    while at < len(text):
        quote = next((mark for mark in _QUOTES if text.startswith(mark, at)), "")
        if quote:
            at = _after_string(text, at + len(quote), quote)
            continue
        char = text[at]
        if char == "#":
            at = text.find("\n", at)
            if at < 0:
                return len(text)
            continue
        depth += (char in "[{") - (char in "]}")
        at += 1
        if char == "\n" and depth <= 0:
            return at
    return len(text)


def _after_string(text: str, at: int, quote: str) -> int:
    while at < len(text):
        if text[at] == "\\" and quote[0] == '"':
            at += 2
        elif text.startswith(quote, at):
            at += len(quote)
            while len(quote) == 3 and text[at : at + 1] == quote[0]:
                at += 1  # a multi-line string may end with quotes of its own
            return at
        else:
            at += 1
    return at


def _keys(text: str) -> tuple[str, ...]:
    """The dotted key that `text` begins with."""
    parts: list[str] = []
    at = 0
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if text[at] in "\"'":
            end = _after_string(text, at + 1, text[at])
            parts.append(str(tomllib.loads(f"k = {text[at:end]}")["k"]))
        else:
            end = at
            while end < len(text) and _BARE.match(text[end]):
                end += 1
            parts.append(text[at:end])
        rest = text[end:].lstrip()
        if not rest.startswith("."):
            return tuple(parts)
        at = len(text) - len(rest) + 1


def key_text(key: str) -> str:
    """A key as it is written."""
    return key if _BARE.match(key) else _basic(key)


def value_text(value: Any, *, long_text: bool = False) -> str:
    """A strict value as it is written: maps as inline tables. `long_text`: text of several lines
    stands in three quotes.

    Raises `ValueError` for null, which TOML does not have.
    """
    if isinstance(value, str):
        return _lines(value) if long_text and "\n" in value else _basic(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{key_text(key)} = {value_text(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(value_text, value)) + "]"
    raise ValueError(f"TOML has no {value!r}")


def _basic(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(text: str) -> str:
    escaped = (_basic(line)[1:-1].replace('\\"', '"') for line in text.split("\n"))
    return '"""\n' + "\n".join(escaped).replace('"""', '\\"\\"\\"') + '"""'


def replace_file(path: Path, text: str) -> None:
    """Puts `text` in the place of the file at `path`, whole, with its mode. Raises `OSError`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o7777)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
