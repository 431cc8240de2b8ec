"""One connection to the file: transactions, patience with other processes, durability, errors.

Durability. In WAL mode `synchronous = FULL` flushes the log at each commit, before the commit can
be seen by anybody; `NORMAL` writes it without a flush, so a commit survives the process but not
always loss of power. Because the log is one sequence, a flush makes everything before it durable
too. The level cannot change inside a transaction, so it is set before BEGIN, and only when it
differs from the last one (2 us here; a flush costs 150). It goes through `executescript`, which
compiles its text each time: this pragma acts when it is compiled, and a statement from the cache is
not. Rejected: a second connection for the other level (each finds its page cache void after the
other has written), and a flush of our own after a NORMAL commit (others would see what power can
still take).

Patience. Every writing transaction begins as a writer (BEGIN IMMEDIATE), since only the beginning
of a transaction can be tried again without loss. SQLite's own waiting sleeps in a fixed pattern, in
which several busy processes can starve one; ours adds chance, and has a bound after which the call
fails as `storage`, EBUSY. Reads do not wait for writers; they can meet a lock only while the log is
recovered or removed, and are then tried again as a whole.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time

from purra_plugin_sqlite.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["PATIENCE_S", "Database", "storage_refusal"]

PATIENCE_S = 20.0
"""How long a call waits for other processes to let go of the file."""
FIRST_PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.025
WAL_KEPT_BYTES = 64 * 1024 * 1024
"""The log is cut back to this once it has been copied into the file."""

_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.ENOENT,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_AUTH: errno.EACCES,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_PROTOCOL: errno.EBUSY,
    sqlite3.SQLITE_CORRUPT: errno.EBADMSG,
    sqlite3.SQLITE_NOTADB: errno.EBADMSG,
}


class Database:
    """A connection that several threads may use; one at a time is let in.

    Raises `EngineError(storage)` for whatever SQLite reports. Exceptions of the functions that are
    passed in leave it unchanged, after the transaction was rolled back.
    """

    def __init__(self, path: str, *, patience_s: float = PATIENCE_S, uri: bool = False) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._durable: bool | None = None
        try:
            # Our own waiting does the work; SQLite's (`timeout`) would only sleep longer at once.
            self._connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False, uri=uri
            )
        except sqlite3.Error as error:
            raise storage_refusal(error) from error

    @property
    def connection(self) -> sqlite3.Connection:
        """For set-up and for tests; the methods below are for everything else."""
        return self._connection

    def prepare(self) -> None:
        """Puts the file into WAL mode and sets what holds for the whole connection."""
        mode = self._patiently(lambda: self._pragma("journal_mode = WAL"))
        if mode != "wal":
            raise EngineError(
                "storage",
                "the file system does not support the write-ahead log that the store needs",
                errno=errno.ENOTSUP,
            )
        self._pragma("fullfsync = 1")  # macOS: a plain fsync leaves data in the drive's cache
        self._pragma(f"journal_size_limit = {WAL_KEPT_BYTES}")
        self._pragma("trusted_schema = 0")

    def transaction(self, work: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        """What `work` gives, after all it wrote was committed, as durably as asked; or nothing was.

        `work` runs once, alone among all writers of all processes.
        """
        with self._lock:
            try:
                self._patiently(lambda: self._begin(durable))
                try:
                    outcome = work(self._connection)
                    # Busy only before the file is in WAL mode; the transaction stays open then.
                    self._patiently(lambda: self._connection.execute("COMMIT"))
                except BaseException:  # whatever it is, nothing of it may stay in the file
                    self._roll_back()
                    raise
            except sqlite3.Error as error:
                raise storage_refusal(error) from error
            return outcome

    def reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, all of it seen at one moment. It may run more than once."""

        def attempt() -> T:
            try:
                self._connection.execute("BEGIN")
                return work(self._connection)
            finally:
                self._roll_back()

        with self._lock:
            try:
                return self._patiently(attempt)
            except sqlite3.Error as error:
                raise storage_refusal(error) from error

    def close(self) -> None:
        """Idempotent. The last connection of all processes copies the log into the file."""
        with self._lock:
            try:
                self._connection.close()
            except sqlite3.Error:
                pass  # nothing is lost: what was committed is in the log

    def _begin(self, durable: bool) -> None:
        if durable is not self._durable:
            level = "FULL" if durable else "NORMAL"
            self._connection.executescript(f"PRAGMA synchronous = {level}")
            self._durable = durable
        self._connection.execute("BEGIN IMMEDIATE")

    def _roll_back(self) -> None:
        # Some errors (disk full, I/O) have ended the transaction already.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _pragma(self, text: str) -> object:
        try:
            row = self._connection.execute(f"PRAGMA {text}").fetchone()
        except sqlite3.Error as error:
            if _code(error) in _PASSING:
                raise
            raise storage_refusal(error) from error
        return row[0] if row else None

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives once no other process is in its way; tried for `patience_s`."""
        deadline_s = time.monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                left_s = deadline_s - time.monotonic()
                if _code(error) not in _PASSING or left_s <= 0:
                    raise
            chance = 0.5 + os.urandom(1)[0] / 256
            time.sleep(min(pause_s * chance, left_s))
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


def storage_refusal(error: sqlite3.Error) -> EngineError:
    """The refusal that says what SQLite reported, with the errno that fits it best."""
    code = _code(error)
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return EngineError(
        "storage",
        f"{error} ({name})",
        passing=code in _PASSING,
        errno=_ERRNO.get(code, errno.EIO),
        sqlite=name,
    )


def _code(error: sqlite3.Error) -> int:
    """The primary result code: the low byte of an extended one."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
