"""Reading: a page of a stream, documents by key, documents by order. Each sees one moment.

A page is also bounded by `PAGE_BYTES`, because it must fit one message of the wire: a page that
was cut short says so (`more`, or a last record below the head), and has at least one item.
"""

from __future__ import annotations

import sqlite3

from purra_plugin_sqlite import requests, statements, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

__all__ = ["PAGE_BYTES", "get_documents", "read_stream", "scan_documents"]

PAGE_BYTES = 4 * 1024 * 1024
"""Text of one page. A value can grow to 3 times its JSON text on the wire, where 16 MiB are
allowed."""


def read_stream(
    connection: sqlite3.Connection, stream: str, after: int, limit: int
) -> dict[str, Any]:
    """The payload of `read`: records, head, sealed."""
    row = connection.execute(statements.FIND_STREAM, (stream,)).fetchone()
    if row is None:
        return {"records": [], "head": 0, "sealed": False}
    number, _, sealed, head = row
    records: list[Any] = []
    if after < head:
        rows = connection.execute(
            statements.READ_RECORDS, (number, after, min(limit, requests.PAGE_ITEMS))
        )
        size = 0
        for (record,) in rows:
            size += len(record)
            if size > PAGE_BYTES and records:
                break
            records.append(text.decode(record))
        rows.close()
    return {"records": records, "head": head, "sealed": bool(sealed)}


def get_documents(
    connection: sqlite3.Connection, keys: Sequence[str], now_ms: int
) -> dict[str, Any]:
    """The payload of `get`: a document or None for each key, in their order."""
    documents: list[dict[str, Any] | None] = []
    for key in keys:
        row = connection.execute(statements.READ_DOCUMENT, (key,)).fetchone()
        documents.append(None if row is None else _document(row, now_ms))
    return {"documents": documents}


def scan_documents(
    connection: sqlite3.Connection, scan: dict[str, Any], now_ms: int
) -> dict[str, Any]:
    """The payload of `scan`: documents, more. `scan`: what `requests.scan_request` gave."""
    limit = min(scan["limit"], requests.PAGE_ITEMS)
    order = _lapsed_rows if scan["lapsed_only"] else _key_rows
    rows = order(connection, scan, limit + 1, now_ms)
    documents: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        size += len(row[1])
        if len(documents) == limit or (size > PAGE_BYTES and documents):
            return {"documents": documents, "more": True}
        documents.append(_document(row, now_ms))
    return {"documents": documents, "more": False}


def _key_rows(
    connection: sqlite3.Connection, scan: dict[str, Any], limit: int, now_ms: int
) -> Iterable[tuple[Any, ...]]:
    after = scan["after"]
    first, end = requests.prefix_range(scan["prefix"])
    if not scan["reverse"]:
        # The text right behind `after`, in the order of bytes, is `after` and a zero byte.
        first = max(first, after + "\x00") if after else first
        return connection.execute(statements.SCAN_FORWARD, (first, end, limit))
    if after and (isinstance(end, bytes) or after < end):
        end = after
    return connection.execute(statements.SCAN_BACKWARD, (first, end, limit))


def _lapsed_rows(
    connection: sqlite3.Connection, scan: dict[str, Any], limit: int, now_ms: int
) -> Iterable[tuple[Any, ...]]:
    place = (now_ms + 1, "") if scan["reverse"] else (0, "")
    if scan["after"]:
        row = connection.execute(statements.FIND_DOCUMENT, (scan["after"],)).fetchone()
        if row is not None and 0 < row[1] <= now_ms:
            place = (row[1], scan["after"])
    statement = (
        statements.SCAN_LAPSED_BACKWARD if scan["reverse"] else statements.SCAN_LAPSED_FORWARD
    )
    bounds = requests.prefix_range(scan["prefix"])
    return connection.execute(statement, (*place, now_ms, *bounds, limit))


def _document(row: tuple[Any, ...], now_ms: int) -> dict[str, Any]:
    key, value, revision, expires_ms = row
    return {
        "key": key,
        "value": text.decode(value),
        "revision": revision,
        "lapsed": 0 < expires_ms <= now_ms,
        "expires_ms": expires_ms,
    }
