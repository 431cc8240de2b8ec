"""The format of the file: its mark, its versions, and the way from one to the next (SVC-08).

The mark is in SQLite's own header: `application_id` says that the file is ours, `user_version` is
the format. It is looked at before anything is opened for writing, because opening alone may change
a file: SQLite replays or removes a log that it finds. So first the header's bytes are read; if
there is a log, which may hold a newer header, a read-only connection looks again, since that one
never writes the file. A file that is not ours, or newer than this program, is refused and stays as
it is, byte by byte.

A new file gets its tables before it is put into WAL mode, so that its header is never only in a
log. A migration is one durable transaction: a crash leaves the old format or the new one.
"""

from __future__ import annotations

import errno
import os
import sqlite3

from purra_plugin_sqlite.database import Database
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.statements import FORMAT_1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["APPLICATION_ID", "MIGRATIONS", "open_file"]

APPLICATION_ID = 0x50555252
"""`PURR`."""
MIGRATIONS: tuple[tuple[str, ...], ...] = (FORMAT_1,)
"""Step n leads from format n to format n + 1; format 0 is an empty file. Never changed, only added
to."""

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"


def open_file(
    path: str,
    *,
    patience_s: float,
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
) -> Database:
    """A connection to the store at `path`, made or brought to the newest format if need be.

    Raises `EngineError(storage)`: not ours, newer than `migrations` leads to, or not to be opened.
    """
    newest = len(migrations)
    _make(path)
    header = _header(path)
    if header is not None:
        _judge(path, *header, newest)
        if os.path.exists(f"{path}-wal"):
            _judge(path, *_header_in_log(path), newest)
    database = Database(path, patience_s=patience_s)
    try:
        if header is None or header[1] < newest:
            database.transaction(
                lambda connection: _migrate(path, connection, migrations), durable=True
            )
        database.prepare()
    except BaseException:  # the caller gets no connection, so nobody else would close it
        database.close()
        raise
    return database


def _make(path: str) -> None:
    """Makes an empty file for this user only: journals hold what people wrote and read."""
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise EngineError(
            "storage", f"{path}: {error.strerror}", errno=error.errno or errno.EIO
        ) from error


def _header(path: str) -> tuple[int, int] | None:
    """(application_id, user_version) as the file's bytes say, None for a file without content."""
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header or os.path.exists(f"{path}-journal"):
        # Empty, or its making was cut off: SQLite takes that back when the migration begins.
        return None
    if not header.startswith(_MAGIC):
        raise EngineError("storage", f"{path} is not an SQLite file", errno=errno.EBADMSG)
    return int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")


def _header_in_log(path: str) -> tuple[int, int]:
    """(application_id, user_version) as of the last commit in the log; changes nothing."""
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    database = Database(f"file:{escaped}?mode=ro", patience_s=1.0, uri=True)
    try:
        return database.reading(_mark)
    finally:
        database.close()


def _mark(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _judge(path: str, application: int, version: int, newest: int) -> None:
    if application != APPLICATION_ID:
        raise EngineError("storage", f"{path} is not a store of this program", errno=errno.EBADMSG)
    if not 1 <= version <= newest:
        raise EngineError(
            "storage",
            f"{path} has format {version}; this version of the plugin reads up to {newest}",
            errno=errno.ENOTSUP,
            format=version,
            newest=newest,
        )


def _migrate(
    path: str, connection: sqlite3.Connection, migrations: Sequence[Sequence[str]]
) -> None:
    application, version = _mark(connection)  # again: another process may have been faster
    if (application, version) != (0, 0):
        _judge(path, application, version, len(migrations))
        if version == len(migrations):
            return
    elif connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise EngineError("storage", f"{path} is not a store of this program", errno=errno.EBADMSG)
    for step in migrations[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
