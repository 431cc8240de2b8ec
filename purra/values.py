"""Strict JSON-like values (design invariant 8) and their digests.

Everything that enters the kernel is checked here, once, and frozen; what is frozen is trusted and
never checked again. A frozen map is a `MappingProxyType` over a private dict and a frozen list a
tuple, so no later change of the source can reach the inside (JSON-08).

Digests are taken over one canonical text: JSON with sorted keys, no spaces, UTF-8. `-0.0` counts as
`0.0`, and a whole float is not an integer (JSON-10).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from purra.errors import PurraError

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "Value",
    "canonical_text",
    "check",
    "deeper",
    "digest",
    "freeze",
    "is_strict",
    "seal",
    "thaw",
]

Value = Any
"""None, bool, int64, finite float, text without lone surrogates, sequence or map of such values."""

MAX_DEPTH: Final = 64
"""Levels of nesting, as on the wire."""
MAX_NODES: Final = 1_000_000
"""Scalars and containers in one value."""
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


def freeze(value: object, *, where: str = "value") -> Value:
    """A deeply frozen, detached copy of `value`.

    Raises `PurraError(invalid_value)` naming the path of the first part that is not a strict value:
    another type, a non-text key, NaN or an infinity, an integer outside int64 (send such numbers as
    text), a lone surrogate, nesting over `MAX_DEPTH` (which also ends cycles).
    """
    if 0 <= _parts((value,), MAX_DEPTH, frozen=False) <= MAX_NODES:
        return seal(value)
    return _Freezer(where).freeze(value, (), 0)  # slowly: other kinds of maps, or what is wrong


def check(value: object, *, where: str = "value") -> None:
    """Raises as `freeze` does, without keeping a copy."""
    freeze(value, where=where)


_OPEN: Final = frozenset({dict, list, tuple})
_CONTAINERS: Final = _OPEN | {MappingProxyType}
_TEXT: Final = frozenset({str})


def seal(value: Any) -> Value:
    """A frozen form of a value that is known to be strict; what is frozen already is kept as it is.

    For values of ours: nothing is checked, so it costs only the containers that are still open.
    """
    kind = type(value)
    if kind is dict:
        if _OPEN.isdisjoint(map(type, value.values())):
            return MappingProxyType(value.copy())
        return MappingProxyType(
            {key: seal(item) if type(item) in _OPEN else item for key, item in value.items()}
        )
    if kind is tuple and _OPEN.isdisjoint(map(type, value)):
        return value
    if kind is list or kind is tuple:
        return tuple([seal(item) if type(item) in _OPEN else item for item in value])
    return value


def is_strict(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether `freeze` would take `value`, at a fifth of its price: without a copy or a place.

    For values of ours on their way out. A frozen map counts as what `freeze` made of it, and is not
    looked into.
    """
    return _parts((value,), depth, frozen=True) >= 0


def _parts(items: Collection[Any], depth: int, *, frozen: bool) -> int:
    """How many scalars and containers there are in strict `items`; -1 if one of them is not strict.

    `frozen`: maps that are frozen are ours.
    """
    count = len(items)
    for item in items:
        kind = type(item)
        if kind is str:
            if not (item.isascii() or _encodes(item)):
                return -1
        elif kind is int:
            if not _INT_MIN <= item <= _INT_MAX:
                return -1
        elif kind is float:
            if not math.isfinite(item):
                return -1
        elif kind is dict:
            if depth <= 0 or not _TEXT.issuperset(map(type, item)):
                return -1
            if not (all(map(str.isascii, item)) or all(map(_encodes, item))):
                return -1
            inner = _parts(item.values(), depth - 1, frozen=frozen)
            if inner < 0:
                return -1
            count += inner
        elif kind is list or kind is tuple:
            inner = _parts(item, depth - 1, frozen=frozen) if depth > 0 else -1
            if inner < 0:
                return -1
            count += inner
        elif kind is not bool and item is not None and not (frozen and kind is MappingProxyType):
            return -1
    return count


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def deeper(value: Value, levels: int) -> bool:
    """Whether a strict value nests deeper than `levels` containers."""
    kind = type(value)
    if kind is MappingProxyType or kind is dict:
        value = value.values()
    elif kind is not tuple and kind is not list:
        return False
    inner = [item for item in value if type(item) in _CONTAINERS]
    return levels == 0 or any(deeper(item, levels - 1) for item in inner)


def thaw(value: Value) -> Any:
    """A fresh mutable copy made of dicts and lists; shares nothing with `value`."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [thaw(item) for item in value]
    return value


def canonical_text(value: Value) -> str:
    """The one text that stands for `value` in digests."""
    text = _CANONICAL.encode(value)
    # The encoder writes -0.0 as it is; only then is it worth while to look for it.
    return text if "-0.0" not in text else _CANONICAL.encode(_without_negative_zero(value))


_CANONICAL: Final = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    default=dict,  # a frozen map; nothing else that is strict is unknown to the encoder
)


def digest(value: Value) -> str:
    """`sha256:` and 64 hex digits over the canonical text."""
    return "sha256:" + hashlib.sha256(canonical_text(value).encode()).hexdigest()


def _without_negative_zero(value: Value) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_negative_zero(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_without_negative_zero(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value  # -0.0 + 0.0 is 0.0


class _Freezer:
    def __init__(self, where: str) -> None:
        self._where = where
        self._nodes = 0

    def freeze(self, value: object, path: tuple[str | int, ...], depth: int) -> Value:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._refuse(path, f"more than {MAX_NODES} parts")
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return self._text(value, path)
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:  # type: ignore[operator]
                raise self._refuse(path, "an integer outside int64; send it as text")
            return value
        if kind is float:
            if not math.isfinite(value):  # type: ignore[arg-type]
                raise self._refuse(path, "a float that is not finite")
            return value
        return self._container(value, path, depth)

    def _container(self, value: object, path: tuple[str | int, ...], depth: int) -> Value:
        if depth >= MAX_DEPTH:
            raise self._refuse(path, f"nesting deeper than {MAX_DEPTH}")
        if isinstance(value, Mapping):
            frozen = {}
            for key, item in value.items():
                if type(key) is not str:
                    raise self._refuse(path, f"a key of type {type(key).__name__}")
                frozen[self._text(key, path)] = self.freeze(item, (*path, key), depth + 1)
            return MappingProxyType(frozen)
        if isinstance(value, (list, tuple)):
            return tuple(
                self.freeze(item, (*path, index), depth + 1) for index, item in enumerate(value)
            )
        raise self._refuse(path, f"a value of type {type(value).__name__}")

    def _text(self, text: Any, path: tuple[str | int, ...]) -> str:
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise self._refuse(path, f"a lone surrogate at character {error.start}") from None
        return str(text)

    def _refuse(self, path: Sequence[str | int], what: str) -> PurraError:
        place = "".join(f"[{part!r}]" for part in path)
        return PurraError("invalid_value", f"{what} is not allowed", where=self._where + place)
