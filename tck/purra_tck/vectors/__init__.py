"""Values and sessions as bytes, shared by all implementations of the protocol, in any language.

`values-good.json`: `value`, its `canonical` form, and `other` forms that are legal too. Numbers,
bytes and containers are wrapped, because JSON cannot tell them apart: `{"int": "1"}`,
`{"float": "0x1.8p+0"}`, `{"bytes": "ff"}`, `{"list": [...]}`, `{"map": [[key, value], ...]}`.
`values-bad.json`: bodies that hold no strict value, and the `rule` that says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["Bad", "Good", "bad_values", "good_values", "rows"]


@dataclass(frozen=True, slots=True)
class Good:
    """A strict value and the forms that it may have. `other`: all legal forms but the canonical
    one, which is the shortest, save that a float has 64 bits."""

    name: str
    value: Any
    canonical: bytes
    other: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Bad:
    """A body that must be refused."""

    name: str
    rule: str
    body: bytes


@cache
def good_values() -> tuple[Good, ...]:
    """Every good value."""
    return tuple(
        Good(
            row["name"],
            _value(row["value"]),
            bytes.fromhex(row["canonical"]),
            tuple(bytes.fromhex(form) for form in row["other"]),
        )
        for row in rows("values-good.json")
    )


@cache
def bad_values() -> tuple[Bad, ...]:
    """Every bad body."""
    return tuple(
        Bad(row["name"], row["rule"], bytes.fromhex(row["hex"])) for row in rows("values-bad.json")
    )


def rows(name: str) -> Any:
    """The rows of a vector file."""
    return json.loads(files(__name__).joinpath(name).read_text(encoding="utf-8"))


def _value(told: Any) -> Any:
    if type(told) is not dict:
        return told
    ((kind, inner),) = told.items()
    if kind == "int":
        return int(inner)
    if kind == "float":
        return float.fromhex(inner)
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "list":
        return [_value(item) for item in inner]
    return {key: _value(item) for key, item in inner}
