"""Is a call to a store well formed? The first of the checks of a commit, the same for every store.

What passes here is made of strict, frozen values and needs no second look. Everything else about a
call (revisions, heads, seals, time) is for the store to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from purra import values
from purra.contracts.store import (
    ANY,
    NAME_BYTES,
    TTL_MS,
    VALUE_DEPTH,
    Append,
    Commit,
    Delete,
    Drop,
    Op,
    Project,
    Put,
    Scan,
    Seal,
    Touch,
)
from purra.errors import PurraError

__all__ = [
    "checked_commit",
    "require_blob_range",
    "require_keys",
    "require_name",
    "require_page",
    "require_prefix",
    "require_scan",
]

_REVISION_MAX: Final = 2**63 - 1


def checked_commit(commit: Commit) -> Commit:
    """`commit` with every value frozen and detached.

    Raises `PurraError`: `invalid_value` for a value outside the strict model, `invalid_argument`
    for anything else that no store could carry out, such as an append without a key.
    """
    ops = tuple(_checked_op(op, index) for index, op in enumerate(commit.ops))
    if commit.key is not None:
        require_name(commit.key[0], "key[0]")
        require_name(commit.key[1], "key[1]")
    elif any(isinstance(op, Append) for op in ops):
        raise _refuse("key", "a commit that appends needs an idempotency key")
    for key, revision in commit.require.items():
        require_name(key, "require")
        _require_number(revision, f"require[{key!r}]", least=0, most=_REVISION_MAX)
    return replace(commit, ops=ops, require=dict(commit.require))


def require_page(stream: str, after: int, limit: int) -> None:
    """Raises `PurraError(invalid_argument)` unless these are arguments of `Store.read`."""
    require_name(stream, "stream")
    _require_number(after, "after", least=0, most=_REVISION_MAX)
    _require_number(limit, "limit", least=1, most=_REVISION_MAX)


def require_scan(scan: Scan) -> None:
    """Raises `PurraError(invalid_argument)` unless `scan` can be carried out."""
    require_prefix(scan.prefix, "prefix")
    require_prefix(scan.after, "after")
    _require_number(scan.limit, "limit", least=1, most=_REVISION_MAX)


def require_keys(keys: Sequence[str]) -> None:
    """Raises `PurraError(invalid_argument)` unless each of `keys` is a name."""
    for key in keys:
        require_name(key, "keys")


def require_blob_range(offset: int, length: int) -> None:
    """Raises `PurraError(invalid_argument)` unless these say which bytes of a blob are meant."""
    _require_number(offset, "offset", least=0, most=_REVISION_MAX)
    _require_number(length, "length", least=1, most=_REVISION_MAX)


def require_name(name: object, where: str) -> None:
    """Raises `PurraError(invalid_argument)` unless `name` is text of 1 to `NAME_BYTES` bytes."""
    require_prefix(name, where)
    if not name:
        raise _refuse(where, "an empty name")


def require_prefix(prefix: object, where: str) -> None:
    """Raises `PurraError(invalid_argument)` unless `prefix` is text of at most `NAME_BYTES`."""
    if type(prefix) is not str:
        raise _refuse(where, f"text is needed, not {type(prefix).__name__}")
    try:
        size_bytes = len(prefix.encode())
    except UnicodeEncodeError:
        raise _refuse(where, "a lone surrogate is not allowed in a name") from None
    if size_bytes > NAME_BYTES:
        raise _refuse(where, f"{size_bytes} bytes; at most {NAME_BYTES} are allowed")


def _checked_op(op: Op, index: int) -> Op:
    where = f"ops[{index}]"
    match op:
        case Append():
            require_name(op.stream, f"{where}.stream")
            _require_number(op.expect, f"{where}.expect", least=ANY, most=_REVISION_MAX)
            if not op.records:
                raise _refuse(f"{where}.records", "an append without a record")
            return replace(
                op, records=_frozen(op.records, f"{where}.records", depth=VALUE_DEPTH + 1)
            )
        case Put():
            require_name(op.key, f"{where}.key")
            _require_number(op.expect, f"{where}.expect", least=0, most=_REVISION_MAX)
            _require_number(op.ttl_ms, f"{where}.ttl_ms", least=0, most=TTL_MS)
            return replace(op, value=_frozen(op.value, f"{where}.value"))
        case Touch():
            require_name(op.key, f"{where}.key")
            _require_number(op.expect, f"{where}.expect", least=1, most=_REVISION_MAX)
            _require_number(op.ttl_ms, f"{where}.ttl_ms", least=0, most=TTL_MS)
            return op
        case Delete():
            require_name(op.key, f"{where}.key")
            _require_number(op.expect, f"{where}.expect", least=1, most=_REVISION_MAX)
            return op
        case Seal() | Drop():
            require_name(op.stream, f"{where}.stream")
            return op
        case Project():
            require_name(op.name, f"{where}.name")
            return replace(op, payload=_frozen(op.payload, f"{where}.payload"))
    raise _refuse(where, f"an unknown op {type(op).__name__}")


def _frozen(value: Any, where: str, *, depth: int = VALUE_DEPTH) -> Any:
    if values.is_strict(value, depth):
        return values.seal(value)
    frozen = values.freeze(value, where=where)
    if values.deeper(frozen, depth):
        raise PurraError("invalid_value", f"nesting deeper than {VALUE_DEPTH}", where=where)
    return frozen


def _require_number(number: object, where: str, *, least: int, most: int) -> None:
    if type(number) is not int or not least <= number <= most:
        raise _refuse(where, f"a whole number from {least} to {most} is needed, not {number!r}")


def _refuse(where: str, message: str) -> PurraError:
    return PurraError("invalid_argument", message, where=where)
