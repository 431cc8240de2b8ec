"""Strict values as text in the file, and the digest of a commit.

JSON text is lossless for them: floats are written in their shortest exact form and read back to the
same bits, whole floats keep their point, integers stay integers, and maps keep their order. It can
be read with any SQLite shell, which a binary form could not.
"""

from __future__ import annotations

import hashlib
import json

from purra_plugin_sqlite.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["decode", "digest", "encode"]

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_canonical = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    sort_keys=True,
    separators=(",", ":"),
).encode
_decode = json.JSONDecoder().decode


def encode(value: Any) -> str:
    """The text of a strict value. Raises `EngineError(invalid_argument)` for any other value."""
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()  # a lone surrogate has no UTF-8
    except (TypeError, ValueError, RecursionError) as error:
        raise EngineError("invalid_argument", f"not a strict value: {error}") from None
    return text


def decode(text: str) -> Any:
    """The value that `encode` wrote."""
    return _decode(text)


def digest(ops: list[Any]) -> bytes:
    """SHA-256 of the canonical text: sorted keys, -0.0 as 0.0 (contract, order of checks, 2)."""
    text = _canonical(ops)
    if "-0.0" in text:
        text = _canonical(_without_negative_zero(ops))
    return hashlib.sha256(text.encode()).digest()


def _without_negative_zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_negative_zero(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_negative_zero(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value
