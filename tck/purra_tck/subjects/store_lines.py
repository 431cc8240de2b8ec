"""What the kit and its store child say to each other: JSON, a line each.

Both ends need exactly the same forms, and neither may change a value on the way: also those that
no store must take have to arrive, so that it is the store that refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from purra.contracts.store import (
    Append,
    Commit,
    Delete,
    Document,
    Drop,
    Op,
    Page,
    Project,
    Put,
    Receipt,
    Scan,
    ScanPage,
    Seal,
    Touch,
)
from purra.errors import AdapterError, PurraError, StoreError
from purra.values import thaw

__all__ = [
    "commit_of",
    "commit_value",
    "error_of",
    "error_value",
    "line",
    "page_of",
    "receipt_of",
    "scan_of",
    "scan_page_of",
    "unpacked",
]

_OPS: Final[Mapping[str, type[Op]]] = {
    "Append": Append,
    "Put": Put,
    "Touch": Touch,
    "Delete": Delete,
    "Seal": Seal,
    "Drop": Drop,
    "Project": Project,
}
_STRANGE: Final = "$strange"
_SAMPLES: Final[Mapping[str, Any]] = {"bytes": b"bytes", "set": {1, 2}, "dict": {1: "a"}}
"""What stands for a value that JSON has no form for, by the name of its type."""


def line(value: Mapping[str, Any]) -> bytes:
    """One message."""
    return json.dumps(_packed(value)).encode() + b"\n"


def _packed(value: Any) -> Any:
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return {_STRANGE: "dict"}
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(item) for item in value]
    known = value is None or isinstance(value, (str, int, float))
    return value if known else {_STRANGE: type(value).__name__}


def unpacked(value: Any) -> Any:
    """The value that was sent."""
    if isinstance(value, dict):
        if set(value) == {_STRANGE}:
            return _SAMPLES.get(value[_STRANGE], object())
        return {key: unpacked(item) for key, item in value.items()}
    return [unpacked(item) for item in value] if isinstance(value, list) else value


def commit_value(commit: Commit) -> dict[str, Any]:
    """A commit as a message has it."""
    ops = [
        {"kind": type(op).__name__, **{name: getattr(op, name) for name in op.__slots__}}
        for op in commit.ops
    ]
    return {"ops": ops, "key": commit.key, "require": commit.require, "durable": commit.durable}


def commit_of(value: Mapping[str, Any]) -> Commit:
    """The commit that `commit_value` stands for."""
    ops: list[Op] = []
    for row in value["ops"]:
        parts = {name: part for name, part in row.items() if name != "kind"}
        if "records" in parts:
            parts["records"] = tuple(parts["records"])
        ops.append(_OPS[row["kind"]](**parts))
    key = value["key"]
    require, durable = value["require"], value["durable"]
    return Commit(tuple(ops), None if key is None else tuple(key), require, durable)


def scan_of(value: Mapping[str, Any]) -> Scan:
    """A scan."""
    return Scan(**value)


def receipt_of(value: Mapping[str, Any]) -> Receipt:
    """A receipt."""
    return Receipt(**value)


def page_of(value: Mapping[str, Any]) -> Page:
    """A page of records."""
    return Page(tuple(value["records"]), value["head"], value["sealed"])


def scan_page_of(value: Mapping[str, Any]) -> ScanPage:
    """A page of documents."""
    return ScanPage(tuple(Document(**row) for row in value["documents"]), value["more"])


def error_value(error: Exception) -> dict[str, Any]:
    """What went wrong, as a message has it."""
    told = error if isinstance(error, PurraError) else AdapterError("internal", repr(error))
    found = {"kind": type(told).__name__, "code": told.code, "message": told.message}
    return {**found, "detail": thaw(told.detail)}


def error_of(value: Mapping[str, Any]) -> PurraError:
    """The error that `error_value` stands for."""
    code, message, detail = value["code"], value["message"], value["detail"]
    if value["kind"] == "StoreError":
        return StoreError(code, message, detail=detail)
    if value["kind"] == "AdapterError":
        return AdapterError(code, message, detail=detail)
    return PurraError(code, message, detail=detail)
