"""The rows that one transaction has to do with: loaded once, laid over, written at the end.

Commits are judged against a ledger (see `commit`). It answers with what a stream, a document or a
key *will be* after the commits accepted so far, whether that is in the file or not. What it writes
is the difference: a row that ten commits changed is written once.
"""

from __future__ import annotations

import sqlite3

from purra_plugin_sqlite import statements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Document", "Ledger", "Stream"]


class Stream:
    """A stream as it will be. Never changed, only replaced."""

    __slots__ = ("dropped", "head", "sealed")

    def __init__(self, dropped: int, sealed: bool, head: int) -> None:
        self.dropped = dropped
        self.sealed = sealed
        self.head = head


class Document:
    """What is under a key, as it will be. Never changed, only replaced.

    `text` is None if the stored value stays. `last_revision` outlives a delete.
    """

    __slots__ = ("expires_ms", "last_revision", "present", "text")

    def __init__(
        self, last_revision: int, expires_ms: int, present: bool, text: str | None = None
    ) -> None:
        self.last_revision = last_revision
        self.expires_ms = expires_ms
        self.present = present
        self.text = text

    @property
    def revision(self) -> int:
        """As callers see it: 0 = absent."""
        return self.last_revision if self.present else 0

    def lapsed(self, now_ms: int) -> bool:
        return self.present and 0 < self.expires_ms <= now_ms


_NO_STREAM = Stream(0, False, 0)
_NEWS_STEP = statements.NEWS_KEPT // 4
"""Old news are removed each time the log has grown by so many rows."""
Records = tuple[str, int, list[str]]
"""Stream, number of the first record, the records as text."""


class Ledger:
    """To be used inside one writing transaction of `connection`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}
        self._stored: dict[str, Stream] = {}
        self._streams: dict[str, Stream] = {}
        self._documents: dict[str, Document] = {}
        self._records: list[Records] = []
        self._receipts: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._news: list[str] = []
        self._changed_streams: dict[str, None] = {}
        self._changed_documents: dict[str, None] = {}

    def stream(self, name: str) -> Stream:
        found = self._streams.get(name)
        if found is None:
            found = _NO_STREAM
            row = self._connection.execute(statements.FIND_STREAM, (name,)).fetchone()
            if row is not None:
                self._ids[name], dropped, sealed, head = row
                found = Stream(dropped, bool(sealed), head)
            self._streams[name] = self._stored[name] = found
        return found

    def document(self, key: str) -> Document:
        found = self._documents.get(key)
        if found is None:
            row = self._connection.execute(statements.FIND_DOCUMENT, (key,)).fetchone()
            if row is not None:
                found = Document(row[0], row[1], present=True)
            else:
                row = self._connection.execute(statements.FIND_TOMBSTONE, (key,)).fetchone()
                found = Document(row[0] if row is not None else 0, 0, present=False)
            self._documents[key] = found
        return found

    def receipt(self, key: tuple[str, str]) -> tuple[bytes, str] | None:
        """Digest and receipt (as text) of the first commit with this key."""
        found = self._receipts.get(key)
        if found is None:
            self.stream(key[0])
            number = self._ids.get(key[0])
            if number is not None:
                found = self._connection.execute(
                    statements.FIND_RECEIPT, (number, key[1])
                ).fetchone()
        return found

    def accept(
        self,
        streams: Mapping[str, Stream],
        documents: Mapping[str, Document],
        records: Sequence[Records],
    ) -> None:
        """Lays an accepted commit over what there was."""
        self._streams.update(streams)
        self._documents.update(documents)
        self._records.extend(records)
        self._changed_streams.update(dict.fromkeys(streams))
        self._changed_documents.update(dict.fromkeys(documents))

    def remember(self, key: tuple[str, str], digest: bytes, receipt: str) -> None:
        """Keeps the receipt of an accepted commit, for whoever comes again with its key."""
        self._receipts[key] = (digest, receipt)

    def announce(self, receipt: str) -> None:
        """Tells watchers of an accepted commit that has no key."""
        self._news.append(receipt)

    def write(self) -> range:
        """Brings the file to what the ledger says. Gives the numbers of the new rows in the log."""
        for name in self._changed_streams:
            self._write_stream(name)
        for key in self._changed_documents:
            self._write_document(key)
        rows = self._write_log()
        # Only now: while the log ends in a new row, no number of it can be given twice.
        for name in self._changed_streams:
            self._drop_records(name)
        return rows

    def _write_log(self) -> range:
        if not (self._records or self._receipts or self._news):
            return range(0)
        last = self._connection.execute(statements.LAST_ROW).fetchone()
        first = 1 if last is None else last[0] + 1
        rows: list[tuple[int, int, bytes | None, str]] = []
        places: list[tuple[int, int | str, int]] = []
        for name, sequence, records in self._records:
            number = self._id(name)
            for place, record in enumerate(records, sequence):
                places.append((number, place, first + len(rows)))
                rows.append((first + len(rows), statements.RECORD, None, record))
        for (name, key), (digest, receipt) in self._receipts.items():
            places.append((self._id(name), key, first + len(rows)))
            rows.append((first + len(rows), statements.RECEIPT, digest, receipt))
        for receipt in self._news:
            rows.append((first + len(rows), statements.NEWS, None, receipt))
        self._connection.executemany(statements.ADD_ROW, rows)
        self._connection.executemany(statements.ADD_PLACE, places)
        written = range(first, first + len(rows))
        if written.start // _NEWS_STEP != written.stop // _NEWS_STEP:
            self._connection.execute(statements.FORGET_NEWS, (written.stop - statements.NEWS_KEPT,))
        return written

    def _id(self, name: str) -> int:
        """The stream's id; one that has no row gets it here (a key may name an unused stream)."""
        number = self._ids.get(name)
        if number is None:
            cursor = self._connection.execute(statements.ADD_STREAM, (name,))
            assert cursor.lastrowid is not None
            number = self._ids[name] = cursor.lastrowid
        return number

    def _write_stream(self, name: str) -> None:
        number = self._id(name)
        stream, stored = self._streams[name], self._stored[name]
        if (stream.dropped, stream.sealed) != (stored.dropped, stored.sealed):
            self._connection.execute(
                statements.UPDATE_STREAM, (stream.dropped, stream.sealed, number)
            )

    def _drop_records(self, name: str) -> None:
        dropped = self._streams[name].dropped
        if dropped > self._stored[name].dropped:
            number = self._id(name)
            self._connection.execute(statements.DROP_RECORDS, (number, dropped))
            self._connection.execute(statements.DROP_PLACES, (number, dropped))

    def _write_document(self, key: str) -> None:
        document = self._documents[key]
        if not document.present:
            self._connection.execute(statements.DELETE_DOCUMENT, (key,))
            self._connection.execute(statements.BURY_DOCUMENT, (key, document.last_revision))
        elif document.text is None:
            self._connection.execute(statements.TOUCH_DOCUMENT, (document.expires_ms, key))
        else:
            self._connection.execute(
                statements.PUT_DOCUMENT,
                (key, document.last_revision, document.expires_ms, document.text),
            )
