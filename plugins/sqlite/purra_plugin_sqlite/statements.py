"""Every SQL statement of the plugin, and the tables they work on.

Each statement finds its rows by an index, so that a call costs the same however many other runs the
file holds. A test explains every constant of this file but `FORMAT_1` and fails on a SCAN or a
temporary B-tree; another traces real work and fails on a statement from elsewhere.

The tables
- `purra_log`: what was committed, in the order of arrival. `kind` says what a row is: a record of a
  stream, the receipt of a commit with a key, or the news of a commit without one (kept only for
  watchers, the last `NEWS_KEPT` rows or so). A transaction writes its records first and its
  receipts and news last, so the end of the log says who changed what.
- `purra_places`: where in the log the rows of a stream are. `place` is a sequence number (INTEGER)
  for a record, an idempotency key (TEXT) for a receipt; SQLite orders every INTEGER before every
  TEXT, so `place < ''` are the records. Both in one table, because then a commit to a stream writes
  two pages: the last one of the log, which all commits of a transaction share, and its stream's.
- `purra_streams`: a row per stream. Its head is not kept here but read from its last place, so an
  append to a known stream writes nothing here. `dropped` = the head at the last drop.
- `purra_documents`: live documents only. Deleted ones are in `purra_tombstones`, where they cost a
  scan nothing, and only for their last revision: revisions of a key never go back.
- `purra_blobs`, `purra_blob_chunks`: a chunk's `id` is the blob's id in the upper bits and the
  chunk's place in the lower `CHUNK_BITS`.

Rejected for records: rows of a stream side by side, in one table by (stream, seq). Every commit
then changes pages in the middle of a large tree and splits them; 64 commits to 64 streams wrote 241
pages (now 62), one commit 5.6 (now 3), at about 5 us each.

Text is compared bytewise as UTF-8 (collation BINARY), which is the order of keys in the contract.
"""

from __future__ import annotations

__all__ = [
    "ADD_BLOB",
    "ADD_CHUNK",
    "ADD_PLACE",
    "ADD_ROW",
    "ADD_STREAM",
    "BURY_DOCUMENT",
    "CHUNK_BITS",
    "DELETE_DOCUMENT",
    "DROP_PLACES",
    "DROP_RECORDS",
    "FIND_BLOB",
    "FIND_DOCUMENT",
    "FIND_RECEIPT",
    "FIND_STREAM",
    "FIND_TOMBSTONE",
    "FORGET_NEWS",
    "FORMAT_1",
    "LAST_ROW",
    "NEWS",
    "NEWS_KEPT",
    "NEWS_SINCE",
    "PUT_DOCUMENT",
    "READ_CHUNK",
    "READ_DOCUMENT",
    "READ_RECORDS",
    "RECEIPT",
    "RECORD",
    "SCAN_BACKWARD",
    "SCAN_FORWARD",
    "SCAN_LAPSED_BACKWARD",
    "SCAN_LAPSED_FORWARD",
    "TOUCH_DOCUMENT",
    "UPDATE_STREAM",
]

RECORD, RECEIPT, NEWS = 1, 2, 3
"""Kinds of rows in the log."""
NEWS_KEPT = 4096
"""Rows of the log. A watcher that falls further behind is told to look at everything again."""
CHUNK_BITS = 20

FORMAT_1 = (
    """CREATE TABLE purra_log(
        id INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        digest BLOB,
        value TEXT NOT NULL
    )""",
    "CREATE INDEX purra_log_news ON purra_log(id) WHERE kind = 3",
    """CREATE TABLE purra_places(
        stream INTEGER NOT NULL,
        place NOT NULL,
        row INTEGER NOT NULL,
        PRIMARY KEY(stream, place)
    ) WITHOUT ROWID""",
    """CREATE TABLE purra_streams(
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        dropped INTEGER NOT NULL,
        sealed INTEGER NOT NULL
    )""",
    """CREATE TABLE purra_documents(
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        expires_ms INTEGER,
        value TEXT NOT NULL
    )""",
    """CREATE INDEX purra_documents_expiry ON purra_documents(expires_ms, key)
        WHERE expires_ms IS NOT NULL""",
    """CREATE TABLE purra_tombstones(
        key TEXT PRIMARY KEY NOT NULL,
        revision INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE purra_blobs(
        id INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        size_bytes INTEGER NOT NULL
    )""",
    "CREATE TABLE purra_blob_chunks(id INTEGER PRIMARY KEY, content BLOB NOT NULL)",
)

LAST_ROW = "SELECT id FROM purra_log WHERE id > 0 ORDER BY id DESC LIMIT 1"
ADD_ROW = "INSERT INTO purra_log(id, kind, digest, value) VALUES (?, ?, ?, ?)"
ADD_PLACE = "INSERT INTO purra_places(stream, place, row) VALUES (?, ?, ?)"
NEWS_SINCE = "SELECT id, value FROM purra_log WHERE id > ? AND kind <> 1 ORDER BY id"
FORGET_NEWS = "DELETE FROM purra_log WHERE kind = 3 AND id <= ?"

FIND_STREAM = """
    SELECT s.id, s.dropped, s.sealed, coalesce((
        SELECT p.place FROM purra_places p
        WHERE p.stream = s.id AND p.place < '' ORDER BY p.place DESC LIMIT 1
    ), s.dropped)
    FROM purra_streams s WHERE s.name = ?"""
ADD_STREAM = "INSERT INTO purra_streams(name, dropped, sealed) VALUES (?, 0, 0)"
UPDATE_STREAM = "UPDATE purra_streams SET dropped = ?, sealed = ? WHERE id = ?"
FIND_RECEIPT = """
    SELECT l.digest, l.value FROM purra_places p CROSS JOIN purra_log l ON l.id = p.row
    WHERE p.stream = ? AND p.place = ?"""
READ_RECORDS = """
    SELECT l.value FROM purra_places p CROSS JOIN purra_log l ON l.id = p.row
    WHERE p.stream = ? AND p.place > ? AND p.place < '' ORDER BY p.place LIMIT ?"""
DROP_RECORDS = """
    DELETE FROM purra_log WHERE id IN (
        SELECT row FROM purra_places WHERE stream = ? AND place > 0 AND place <= ?
    )"""
DROP_PLACES = "DELETE FROM purra_places WHERE stream = ? AND place > 0 AND place <= ?"

FIND_DOCUMENT = "SELECT revision, coalesce(expires_ms, 0) FROM purra_documents WHERE key = ?"
FIND_TOMBSTONE = "SELECT revision FROM purra_tombstones WHERE key = ?"
READ_DOCUMENT = """
    SELECT key, value, revision, coalesce(expires_ms, 0) FROM purra_documents WHERE key = ?"""
PUT_DOCUMENT = """
    INSERT INTO purra_documents(key, revision, expires_ms, value) VALUES (?1, ?2, nullif(?3, 0), ?4)
    ON CONFLICT(key) DO UPDATE SET revision = ?2, expires_ms = nullif(?3, 0), value = ?4"""
TOUCH_DOCUMENT = "UPDATE purra_documents SET expires_ms = nullif(?, 0) WHERE key = ?"
DELETE_DOCUMENT = "DELETE FROM purra_documents WHERE key = ?"
BURY_DOCUMENT = """
    INSERT INTO purra_tombstones(key, revision) VALUES (?1, ?2)
    ON CONFLICT(key) DO UPDATE SET revision = ?2"""

SCAN_FORWARD = """
    SELECT key, value, revision, coalesce(expires_ms, 0) FROM purra_documents
    WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"""
SCAN_BACKWARD = """
    SELECT key, value, revision, coalesce(expires_ms, 0) FROM purra_documents
    WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT ?"""
SCAN_LAPSED_FORWARD = """
    SELECT key, value, revision, expires_ms FROM purra_documents
    WHERE (expires_ms, key) > (?, ?) AND expires_ms <= ?
    AND key >= ? AND key < ? ORDER BY expires_ms, key LIMIT ?"""
SCAN_LAPSED_BACKWARD = """
    SELECT key, value, revision, expires_ms FROM purra_documents
    WHERE (expires_ms, key) < (?, ?) AND expires_ms <= ?
    AND key >= ? AND key < ? ORDER BY expires_ms DESC, key DESC LIMIT ?"""

FIND_BLOB = "SELECT id, size_bytes FROM purra_blobs WHERE digest = ?"
ADD_BLOB = "INSERT INTO purra_blobs(digest, size_bytes) VALUES (?, ?)"
ADD_CHUNK = "INSERT INTO purra_blob_chunks(id, content) VALUES (?, ?)"
READ_CHUNK = "SELECT content FROM purra_blob_chunks WHERE id = ?"
