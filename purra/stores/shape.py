"""Is a call to a store well formed? The first of the checks of a commit, the same for every store.

What passes here is made of strict, frozen values and needs no second look. Everything else about a
call (revisions, heads, seals, time) is for the store to judge.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
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
    """`commit` with every value of its ops frozen and detached.

    Raises `PurraError`: `invalid_value` for a value outside the strict model, `invalid_argument`
    for anything else that no store could carry out, such as an append without a key.
    """
    ops = tuple([_checked_op(op, index) for index, op in enumerate(commit.ops)])
    if commit.key is not None:
        require_name(commit.key[0], "key[0]")
        require_name(commit.key[1], "key[1]")
    elif any(type(op) is Append for op in ops):
        raise _refuse("key", "a commit that appends needs an idempotency key")
    for key, revision in commit.require.items():
        require_name(key, "require")
        _require_number(revision, "require", least=0, most=_REVISION_MAX)
    if all(map(operator.is_, ops, commit.ops)):
        return commit  # frozen through and through
    return Commit(ops, commit.key, commit.require, commit.durable)


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
    if type(name) is str and name.isascii() and 0 < len(name) <= NAME_BYTES:
        return  # as nearly all are: what follows would find the same, by counting bytes
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
    check = _CHECKS.get(type(op))
    if check is None:
        raise _refuse(f"ops[{index}]", f"an unknown op {type(op).__name__}")
    try:
        return check(op)
    except PurraError as error:
        error.where = f"ops[{index}].{error.where}"
        raise


def _append(op: Append) -> Append:
    require_name(op.stream, "stream")
    _require_number(op.expect, "expect", least=ANY, most=_REVISION_MAX)
    if not op.records:
        raise _refuse("records", "an append without a record")
    records = _frozen(op.records, "records", depth=VALUE_DEPTH + 1)
    return op if records is op.records else Append(op.stream, op.expect, records)


def _put(op: Put) -> Put:
    require_name(op.key, "key")
    _require_number(op.expect, "expect", least=0, most=_REVISION_MAX)
    _require_number(op.ttl_ms, "ttl_ms", least=0, most=TTL_MS)
    return Put(op.key, _frozen(op.value, "value"), op.expect, op.ttl_ms)


def _touch(op: Touch) -> Touch:
    require_name(op.key, "key")
    _require_number(op.expect, "expect", least=1, most=_REVISION_MAX)
    _require_number(op.ttl_ms, "ttl_ms", least=0, most=TTL_MS)
    return op


def _delete(op: Delete) -> Delete:
    require_name(op.key, "key")
    _require_number(op.expect, "expect", least=1, most=_REVISION_MAX)
    return op


def _of_stream(op: Seal | Drop) -> Seal | Drop:
    require_name(op.stream, "stream")
    return op


def _project(op: Project) -> Project:
    require_name(op.name, "name")
    return Project(op.name, _frozen(op.payload, "payload"))


_CHECKS: Final[Mapping[type[Op], Callable[[Any], Op]]] = MappingProxyType(
    {
        Append: _append,
        Put: _put,
        Touch: _touch,
        Delete: _delete,
        Seal: _of_stream,
        Drop: _of_stream,
        Project: _project,
    }
)


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
