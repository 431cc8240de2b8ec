"""Who wants to know of which names, and how they learn it.

Commits of this process are told as soon as they are in the file, by the thread that made them.
Those of other processes are found by one thread, which exists only while somebody watches, and
every `POLL_S` reads the receipts and news at the end of the log, after the last row it has seen.
Rows of the log are numbered without gaps, so what was told already is not told again. Whoever is
too far behind to read them all is told to look again.

Rejected: `PRAGMA data_version`, which says that something changed and not what, so each change of
one process would wake all watchers of the others; and inotify, which other systems lack and which
would need the poll as a safety net all the same.
"""

from __future__ import annotations

import threading

from purra_plugin_sqlite import statements
from purra_plugin_sqlite.commit import names_in
from purra_plugin_sqlite.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from purra_plugin_sqlite.database import Database
else:
    Protocol = object

__all__ = ["LOOK_AGAIN", "POLL_S", "Hub", "Subscription", "Watcher"]

LOOK_AGAIN = ""
POLL_S = 0.1
"""The contract allows 250 ms; the rest is for a busy machine."""
PENDING_NAMES = 256
"""What is kept for a watcher that takes nothing at the moment; more becomes one `LOOK_AGAIN`."""


class Watcher(Protocol):
    """Who is told. `offer` never waits; False means: not now, or never again if `closed`."""

    @property
    def closed(self) -> bool: ...

    def offer(self, item: str) -> bool: ...


class Subscription:
    """One watcher, and the names that it could not take yet."""

    __slots__ = ("_hub", "_pending", "prefix", "watcher")

    def __init__(self, hub: Hub, prefix: str, watcher: Watcher) -> None:
        self._hub = hub
        self._pending: dict[str, None] = {}
        self.prefix = prefix
        self.watcher = watcher

    def close(self) -> None:
        """Idempotent."""
        self._hub.forget(self)

    def tell(self, name: str) -> None:
        """Hands on, or keeps, a changed name. Hub's lock held."""
        if self._pending or not self.watcher.offer(name):
            self._pending[name] = None
            if len(self._pending) > PENDING_NAMES:
                self._pending = {LOOK_AGAIN: None}

    def retry(self) -> bool:
        """Hands on what was kept. False if nobody wants it any more. Hub's lock held."""
        while self._pending and not self.watcher.closed:
            name = next(iter(self._pending))
            if not self.watcher.offer(name):
                break
            del self._pending[name]
        return not self.watcher.closed


class Hub:
    """The watchers of one process. `open_database` gives the polling thread its own connection.

    The lock is held while watchers are told, so that they hear of changes in one order.
    """

    def __init__(self, open_database: Callable[[], Database], *, poll_s: float = POLL_S) -> None:
        self._open_database = open_database
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._by_prefix: dict[str, list[Subscription]] = {}
        self._seen = 0
        self._thread: threading.Thread | None = None

    def subscribe(self, prefix: str, watcher: Watcher) -> Subscription:
        """Adds a watcher and tells it to look for the first time. Raises `EngineError(storage)`."""
        subscription = Subscription(self, prefix, watcher)
        with self._lock:
            if self._thread is None:
                self._start()
            self._by_prefix.setdefault(prefix, []).append(subscription)
            # What was committed before can be read now; what comes later is told.
            subscription.tell(LOOK_AGAIN)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Removes a watcher; the thread ends at its next round if it was the last."""
        with self._lock:
            self._remove(subscription)

    def tell(self, rows: range, names: Iterable[str]) -> None:
        """Tells whom a transaction concerns. `rows`: what it added to the log. After its commit."""
        with self._lock:
            if rows.start == self._seen + 1:
                self._seen = rows[-1]
            for name in names:
                self._tell(name)

    def close(self) -> None:
        """Ends the thread and waits for it. Idempotent."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        database = self._open_database()
        try:
            self._seen = database.reading(_last_row)
        except BaseException:  # nobody else knows of this connection
            database.close()
            raise
        self._thread = threading.Thread(
            target=self._run, args=(database,), name="purra-sqlite-watch", daemon=True
        )
        self._thread.start()

    def _run(self, database: Database) -> None:
        try:
            while not self._stop.wait(self._poll_s) and self._round(database):
                pass
        finally:
            database.close()

    def _round(self, database: Database) -> bool:
        """Looks at the log and at the watchers once. False if there are none any more."""
        with self._lock:
            seen = self._seen
        try:
            last, news = database.reading(lambda connection: _news_since(connection, seen))
        except EngineError:
            # Whoever looks now meets the same trouble, and can say so to its caller.
            last, news = seen, None
        with self._lock:
            if news is None:
                for subscription in self._everybody():
                    subscription.tell(LOOK_AGAIN)
            for row, names in news or ():
                if row > self._seen:  # else told meanwhile, by the thread that committed it
                    for name in names:
                        self._tell(name)
            self._seen = max(self._seen, last)
            for subscription in self._everybody():
                if not subscription.retry():
                    self._remove(subscription)
            if not self._by_prefix:
                self._thread = None
            return bool(self._by_prefix)

    def _tell(self, name: str) -> None:
        # By the beginnings of the name, so that it costs the same with one watcher and a thousand.
        for length in range(len(name) + 1):
            for subscription in self._by_prefix.get(name[:length], ()):
                subscription.tell(name)

    def _everybody(self) -> list[Subscription]:
        return [each for subscriptions in self._by_prefix.values() for each in subscriptions]

    def _remove(self, subscription: Subscription) -> None:
        subscriptions = self._by_prefix.get(subscription.prefix, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
        if not subscriptions:
            self._by_prefix.pop(subscription.prefix, None)


def _last_row(connection: sqlite3.Connection) -> int:
    row = connection.execute(statements.LAST_ROW).fetchone()
    return 0 if row is None else int(row[0])


def _news_since(
    connection: sqlite3.Connection, seen: int
) -> tuple[int, list[tuple[int, list[str]]] | None]:
    """The last row of the log, and what receipts and news after `seen` tell (None = too many)."""
    last = _last_row(connection)
    if last - seen > statements.NEWS_KEPT // 2:
        return last, None
    rows = connection.execute(statements.NEWS_SINCE, (seen,)).fetchall()
    return last, [(row, names_in(receipt)) for row, receipt in rows]
