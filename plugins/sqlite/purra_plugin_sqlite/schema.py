"""The format of the file: its mark, its versions, and the way from one to the next (SVC-08).

The mark is in SQLite's own header: `application_id` says that the file is ours, `user_version` is
the format. It is looked at before the file is opened for writing, because that alone may change it:
SQLite copies or removes a log that it finds. First a look that touches nothing (`immutable`, the
file alone); if there is a log, which may hold a newer header, or if the first look failed, a
read-only one, which takes locks and reads the log. A file that is not ours, or newer than this
program, is refused and stays as it is, byte by byte.

Only SQLite may open the file. If this process opened it in any other way, closing that descriptor
would drop all locks that the process has on it (POSIX), also those of connections it knows nothing
of. Another process would then find itself alone with the file, remove the log, and with it what
was written later.

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

LOOK_PATIENCE_S = 20.0
"""How long the read-only look waits for a process that is making the file."""

Mark = tuple[int, int, bool]
"""application_id, user_version, whether there is no table."""


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
    current = _look(path, newest)
    database = Database(path, patience_s=patience_s)
    try:
        if not current:
            database.transaction(
                lambda connection: _migrate(path, connection, migrations), durable=True
            )
        database.prepare()
    except BaseException:  # the caller gets no connection, so nobody else would close it
        database.close()
        raise
    return database


def _make(path: str) -> None:
    """Makes an empty file for this user only: journals hold what people wrote and read.

    Its name, and those of new folders, are flushed: a durable commit in a file that has no name
    after a loss of power would be lost.
    """
    if os.path.isfile(path):
        return
    folder = os.path.dirname(path)
    new_folders: list[str] = []
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        new_folders.append(folder)
        folder = os.path.dirname(folder)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for each in (*new_folders, folder):
            _flush_folder(each)
    except OSError as error:
        if not os.path.isfile(path):  # else another process was faster, and nothing was opened
            raise EngineError(
                "storage", f"{path}: {error.strerror}", errno=error.errno or errno.EIO
            ) from error


def _flush_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _look(path: str, newest: int) -> bool:
    """Whether the file is of the newest format already; raises if it is not to be opened."""
    try:
        version = _judge(path, _mark_at(path, "immutable=1"), newest)
    except EngineError as error:
        if error.detail.get("sqlite") is None:
            raise
        version = None  # perhaps only caught while another process was writing it
    if version is None or os.path.exists(f"{path}-wal") or os.path.exists(f"{path}-journal"):
        try:
            version = _judge(path, _mark_at(path, "mode=ro"), newest)
        except EngineError as error:
            if not error.detail.get("sqlite", "").startswith("SQLITE_READONLY"):
                raise
            version = 0  # its making was cut off: SQLite takes that back once it may write
    return version == newest


def _mark_at(path: str, how: str) -> Mark:
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    database = Database(f"file:{escaped}?{how}", patience_s=LOOK_PATIENCE_S, uri=True)
    try:
        return database.reading(_mark)
    finally:
        database.close()


def _mark(connection: sqlite3.Connection) -> Mark:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    table = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    return application, version, table is None


def _judge(path: str, mark: Mark, newest: int) -> int:
    """The file's format; 0 = it has none yet. Raises `EngineError` for one that is not for us."""
    application, version, empty = mark
    if (application, version, empty) == (0, 0, True):
        return 0
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
    return version


def _migrate(
    path: str, connection: sqlite3.Connection, migrations: Sequence[Sequence[str]]
) -> None:
    # Judged again, now that nobody else can write: another process may have been faster.
    version = _judge(path, _mark(connection), len(migrations))
    if version == len(migrations):
        return
    for step in migrations[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
