"""Blobs: bytes by their digest, in chunks of one size.

An upload is collected outside the database, in memory and past `SPOOL_BYTES` in a nameless file,
and written in one transaction at its end. So a slow upload holds no lock, and one that breaks off
leaves nothing, not even after SIGKILL. Rejected: writing chunks as they come under a provisional
id, which needs a sweep for what crashed uploads left behind; and a folder of files beside the
database, which one copied file would then lack.

The transaction is not durable by itself. The log is one sequence, so the durable commit that
mentions the blob makes it durable as well.
"""

from __future__ import annotations

import errno
import hashlib
import sqlite3
from functools import partial

from purra_plugin_sqlite import statements
from purra_plugin_sqlite.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

    from purra_plugin_sqlite.database import Database

__all__ = ["BLOB_BYTES", "CHUNK_BYTES", "get", "put"]

CHUNK_BYTES = 64 * 1024
"""One row of a blob. All but a blob's last have this size, so an offset says which row."""
SPOOL_BYTES = 4 * 1024 * 1024
BLOB_BYTES = 256 * 1024 * 1024
"""Largest blob. Every other writer waits while it is copied in, about 1 s at this size."""


def put(database: Database, folder: str, chunks: Iterable[bytes]) -> str:
    """Stores the bytes and gives `sha256:` of them. Equal bytes are stored once.

    `folder`: where the nameless file of a large upload is made. Raises `EngineError`:
    invalid_argument past `BLOB_BYTES`, storage. Whatever `chunks` raises passes through, and
    nothing is stored.
    """
    import tempfile  # 20 modules that a run without large results never needs

    hasher = hashlib.sha256()
    size_bytes = 0
    try:
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES, dir=folder) as spool:
            for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > BLOB_BYTES:
                    raise EngineError("invalid_argument", f"a blob has at most {BLOB_BYTES} bytes")
                hasher.update(chunk)
                spool.write(chunk)
            digest = "sha256:" + hasher.hexdigest()
            if database.reading(lambda connection: _find(connection, digest)) is None:
                spool.seek(0)
                database.transaction(
                    lambda connection: _store(connection, digest, size_bytes, spool), durable=False
                )
            return digest
    except OSError as error:
        raise EngineError(
            "storage", f"cannot collect a blob: {error.strerror}", errno=error.errno or errno.EIO
        ) from error


def get(database: Database, digest: str, offset: int, length: int) -> Iterator[bytes]:
    """The bytes from `offset`, `length` of them or what there is, piece by piece.

    Raises `EngineError(not_found)`, before the first piece, for an unknown digest.
    """
    found = database.reading(lambda connection: _find(connection, digest))
    if found is None:
        raise EngineError("not_found", "there is no such blob", digest=digest)
    number, size_bytes = found
    return _pieces(database, number, offset, min(offset + length, size_bytes))


def _pieces(database: Database, number: int, start: int, end: int) -> Iterator[bytes]:
    # A blob never changes, so its pieces need not be read at one moment.
    while start < end:
        index, skip = divmod(start, CHUNK_BYTES)
        place = (number << statements.CHUNK_BITS) + index
        content = database.reading(partial(_chunk, place=place))
        piece = content[skip : skip + end - start]
        yield piece
        start += len(piece)


def _find(connection: sqlite3.Connection, digest: str) -> tuple[int, int] | None:
    row: tuple[int, int] | None = connection.execute(statements.FIND_BLOB, (digest,)).fetchone()
    return row


def _chunk(connection: sqlite3.Connection, place: int) -> bytes:
    row = connection.execute(statements.READ_CHUNK, (place,)).fetchone()
    if row is None:
        raise EngineError("storage", "a piece of a blob is missing", errno=errno.EIO)
    content: bytes = row[0]
    return content


def _store(connection: sqlite3.Connection, digest: str, size_bytes: int, spool: IO[bytes]) -> None:
    if _find(connection, digest) is not None:
        return  # another process was faster
    number = connection.execute(statements.ADD_BLOB, (digest, size_bytes)).lastrowid
    assert number is not None
    index = 0
    while content := spool.read(CHUNK_BYTES):
        place = (number << statements.CHUNK_BITS) + index
        connection.execute(statements.ADD_CHUNK, (place, content))
        index += 1
