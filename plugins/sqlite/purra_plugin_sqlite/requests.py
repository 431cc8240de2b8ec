"""The shape of what a caller sends: checked once, before the file is touched.

The host has decoded strict values already; what is left to check is whether they are a call of this
contract. A commit comes out as tuples that `commit` can carry out without looking twice, its values
already as text, so that no time is spent on them while the file is locked.
"""

from __future__ import annotations

from purra_plugin_sqlite import text
from purra_plugin_sqlite.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

__all__ = [
    "INT_MAX",
    "PAGE_ITEMS",
    "CommitRequest",
    "commit_request",
    "name",
    "names",
    "number",
    "prefix",
    "prefix_range",
    "scan_request",
]

ANY = -1
NAME_BYTES = 1024
PAGE_ITEMS = 1000
TTL_MS = 2**48
INT_MAX = 2**63 - 1


class CommitRequest:
    """A commit that is well formed. `ops`: (kind, arguments...), see `_OPS`."""

    __slots__ = ("digest", "durable", "key", "ops", "require")

    def __init__(
        self,
        ops: list[tuple[Any, ...]],
        key: tuple[str, str] | None,
        require: dict[str, int],
        durable: bool,
        digest: bytes,
    ) -> None:
        self.ops = ops
        self.key = key
        self.require = require
        self.durable = durable
        self.digest = digest


def commit_request(args: Any) -> CommitRequest:
    """Raises `EngineError(invalid_argument)` for anything that no store could carry out."""
    raw_ops = args.get("ops") if isinstance(args, dict) else None
    if not isinstance(raw_ops, (list, tuple)):
        raise _refuse("ops", "a list is needed")
    ops = [_op(raw, index) for index, raw in enumerate(raw_ops)]
    key = args.get("key")
    if key is None:
        if any(op[0] == "append" for op in ops):
            raise _refuse("key", "a commit that appends needs an idempotency key")
        digest = b""
    else:
        if not isinstance(key, (list, tuple)) or len(key) != 2:
            raise _refuse("key", "a stream and a text are needed")
        key = (name(key[0], "key[0]"), name(key[1], "key[1]"))
        digest = text.digest(list(raw_ops))
    require = args.get("require") or {}
    if not isinstance(require, dict):
        raise _refuse("require", "a map is needed")
    for required, revision in require.items():
        name(required, "require")
        number(revision, f"require[{required!r}]", 0, INT_MAX)
    return CommitRequest(ops, key, require, args.get("durable") is True, digest)


def scan_request(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a scan, complete. Raises `EngineError(invalid_argument)`."""
    return {
        "prefix": prefix(args.get("prefix"), "prefix"),
        "after": prefix(args.get("after", ""), "after"),
        "limit": number(args.get("limit", 100), "limit", 1, INT_MAX),
        "reverse": args.get("reverse") is True,
        "lapsed_only": args.get("lapsed_only") is True,
    }


def name(value: Any, where: str) -> str:
    """`value`, if it is text of 1 to `NAME_BYTES` bytes; else raises `EngineError`."""
    if prefix(value, where) == "":
        raise _refuse(where, "an empty name")
    return str(value)


def names(value: Any, where: str) -> Sequence[str]:
    """`value`, if it is a list of names; else raises `EngineError`."""
    if not isinstance(value, (list, tuple)):
        raise _refuse(where, "a list is needed")
    return [name(item, where) for item in value]


def prefix(value: Any, where: str) -> str:
    """`value`, if it is text of at most `NAME_BYTES` bytes; else raises `EngineError`."""
    if type(value) is not str:
        raise _refuse(where, f"text is needed, not {type(value).__name__}")
    if len(value) > NAME_BYTES // 4 or not value.isascii():
        try:
            size_bytes = len(value.encode())
        except UnicodeEncodeError:
            raise _refuse(where, "a lone surrogate is not allowed in a name") from None
        if size_bytes > NAME_BYTES:
            raise _refuse(where, f"{size_bytes} bytes; at most {NAME_BYTES} are allowed")
    return value


def number(value: Any, where: str, least: int, most: int) -> int:
    """`value`, if it is a whole number from `least` to `most`; else raises `EngineError`."""
    if type(value) is not int or not least <= value <= most:
        raise _refuse(where, f"a whole number from {least} to {most} is needed, not {value!r}")
    return value


def prefix_range(start: str) -> tuple[str, str | bytes]:
    """The half-open range of the texts that begin with `start`, in the order of UTF-8 bytes.

    The upper end is the last code point raised by one. Where there is no such text, it is an empty
    BLOB, which SQLite orders after every TEXT.
    """
    for index in range(len(start) - 1, -1, -1):
        point = ord(start[index])
        if point < 0x10FFFF:
            # U+D800 to U+DFFF are not characters: the next after U+D7FF is U+E000.
            following = 0xE000 if point == 0xD7FF else point + 1
            return start, start[:index] + chr(following)
    return start, b""


def _op(raw: Any, index: int) -> tuple[Any, ...]:
    where = f"ops[{index}]"
    kind = raw.get("op") if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in _OPS:
        raise _refuse(where, "an unknown op")
    return _OPS[kind](raw, where)


def _append(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    records = raw.get("records")
    if not isinstance(records, (list, tuple)) or not records:
        raise _refuse(f"{where}.records", "a list of at least one record is needed")
    stream = name(raw.get("stream"), f"{where}.stream")
    expect = number(raw.get("expect"), f"{where}.expect", ANY, INT_MAX)
    return "append", stream, expect, [text.encode(record) for record in records]


def _put(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    key = name(raw.get("key"), f"{where}.key")
    expect = number(raw.get("expect"), f"{where}.expect", 0, INT_MAX)
    ttl_ms = number(raw.get("ttl_ms", 0), f"{where}.ttl_ms", 0, TTL_MS)
    return "put", key, expect, ttl_ms, text.encode(raw.get("value"))


def _touch(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    key = name(raw.get("key"), f"{where}.key")
    expect = number(raw.get("expect"), f"{where}.expect", 1, INT_MAX)
    return "touch", key, expect, number(raw.get("ttl_ms"), f"{where}.ttl_ms", 0, TTL_MS)


def _delete(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    key = name(raw.get("key"), f"{where}.key")
    return "delete", key, number(raw.get("expect"), f"{where}.expect", 1, INT_MAX)


def _seal(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    return "seal", name(raw.get("stream"), f"{where}.stream")


def _drop(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    return "drop", name(raw.get("stream"), f"{where}.stream")


def _project(raw: dict[str, Any], where: str) -> tuple[Any, ...]:
    return "project", name(raw.get("name"), f"{where}.name"), raw.get("payload")


_OPS: dict[str, Callable[[dict[str, Any], str], tuple[Any, ...]]] = {
    "append": _append,
    "put": _put,
    "touch": _touch,
    "delete": _delete,
    "seal": _seal,
    "drop": _drop,
    "project": _project,
}


def _refuse(where: str, message: str) -> EngineError:
    return EngineError("invalid_argument", f"{where}: {message}")
