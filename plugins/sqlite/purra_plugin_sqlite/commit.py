"""The rules of a commit, and how several share one transaction.

One transaction serves all commits that wait at the moment, so that they share one flush. Each is
judged by itself against the transaction's ledger: the checks in the contract's order, then op by
op, on rows laid over the ledger's. Only an accepted commit is laid into the ledger; a refused one
is forgotten, and the others do not notice. At the end the ledger writes the difference.

So a refused commit needs no savepoint and no undo, and the rules read like those of the executable
specification. Only a projector, which writes for itself, gets a savepoint. Rejected: a savepoint
per commit and a statement per op, which costs three times as much in a batch of 64.
"""

from __future__ import annotations

import sqlite3

from purra_plugin_sqlite import text
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.ledger import Document, Ledger, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from purra_plugin_sqlite.ledger import Records
    from purra_plugin_sqlite.projecting import Projectors
    from purra_plugin_sqlite.requests import CommitRequest

    Outcome = dict[str, Any] | EngineError

__all__ = ["Settled", "names_in", "settle"]

ANY = -1


class Settled:
    """What one transaction did. `outcomes`: one per request, in order. `names`: whom to tell of.
    `rows`: what it added to the log.
    """

    __slots__ = ("names", "outcomes", "rows")

    def __init__(self, outcomes: list[Outcome], names: list[str], rows: range) -> None:
        self.outcomes = outcomes
        self.names = names
        self.rows = rows


def settle(
    connection: sqlite3.Connection,
    requests: Sequence[CommitRequest],
    now_ms: int,
    projectors: Projectors,
) -> Settled:
    """Judges `requests` in their order and writes what the accepted ones do.

    To be called inside a writing transaction; nothing of it counts before that is committed.
    """
    ledger = Ledger(connection)
    outcomes: list[Outcome] = []
    names: dict[str, None] = {}
    for request in requests:
        judgement = _Judgement(connection, ledger, now_ms, projectors)
        try:
            outcomes.append(judgement.judge(request))
            names.update(judgement.names)
        except EngineError as refusal:
            outcomes.append(refusal)
    return Settled(outcomes, list(names), ledger.write())


def names_in(receipt: str) -> list[str]:
    """The streams and keys that a stored receipt, or news, speaks of."""
    heads, revisions, others = text.decode(receipt)
    return [*heads, *revisions, *others]


class _Judgement:
    """One commit against a ledger."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        ledger: Ledger,
        now_ms: int,
        projectors: Projectors,
    ) -> None:
        self._connection = connection
        self._ledger = ledger
        self._now_ms = now_ms
        self._projectors = projectors
        self._streams: dict[str, Stream] = {}
        self._documents: dict[str, Document] = {}
        self._records: list[Records] = []
        self._heads: dict[str, int] = {}
        self._saved = False
        self.names: dict[str, None] = {}

    def judge(self, request: CommitRequest) -> dict[str, Any]:
        """The receipt. Raises `EngineError`, and then the ledger is as it was."""
        if request.key is not None:
            first = self._ledger.receipt(request.key)
            if first is not None:
                return _first_receipt(request, *first)
        self._require(request.require)
        for op in request.ops:
            if op[0] == "append":
                self._refuse_sealed(op[1])
        try:
            for kind, *arguments in request.ops:
                _OPS[kind](self, *arguments)
        except EngineError:
            if self._saved:
                self._connection.execute("ROLLBACK TO projecting")
                self._connection.execute("RELEASE projecting")
            raise
        if self._saved:
            self._connection.execute("RELEASE projecting")
        return self._accept(request)

    def _accept(self, request: CommitRequest) -> dict[str, Any]:
        self._ledger.accept(self._streams, self._documents, self._records)
        revisions = {key: document.revision for key, document in self._documents.items()}
        others = [n for n in self.names if n not in self._heads and n not in revisions]
        stored = text.encode([self._heads, revisions, others])
        if request.key is not None:
            self._ledger.remember(request.key, request.digest, stored)
        elif self.names:
            self._ledger.announce(stored)
        return {"heads": self._heads, "revisions": revisions}

    def _require(self, revisions: Mapping[str, int]) -> None:
        for key, revision in revisions.items():
            document = self._ledger.document(key)
            if document.revision != revision:
                raise _key_conflict(key, document)
            if document.lapsed(self._now_ms):
                raise EngineError("lapsed", f"{key} has lapsed", key=key, revision=revision)

    def _refuse_sealed(self, name: str) -> None:
        stream = self._stream(name)
        if stream.sealed:
            raise EngineError("sealed", f"{name} is sealed", stream=name, head=stream.head)

    def _append(self, name: str, expect: int, records: list[str]) -> None:
        self._refuse_sealed(name)
        stream = self._stream(name)
        if expect not in (ANY, stream.head):
            raise EngineError(
                "conflict",
                f"the head of {name} is {stream.head}, not {expect}",
                stream=name,
                head=stream.head,
            )
        head = stream.head + len(records)
        self._records.append((name, stream.head + 1, records))
        self._streams[name] = Stream(stream.dropped, False, head)
        self._heads[name] = head
        self.names[name] = None

    def _put(self, key: str, expect: int, ttl_ms: int, value: str) -> None:
        document = self._expected(key, expect)
        expires_ms = self._expiry(ttl_ms)
        self._documents[key] = Document(document.last_revision + 1, expires_ms, True, value)
        self.names[key] = None

    def _touch(self, key: str, expect: int, ttl_ms: int) -> None:
        document = self._expected(key, expect)
        if document.lapsed(self._now_ms):
            raise EngineError(
                "conflict", f"{key} has lapsed", key=key, revision=document.revision, lapsed=True
            )
        self._documents[key] = Document(
            document.last_revision, self._expiry(ttl_ms), True, document.text
        )

    def _delete(self, key: str, expect: int) -> None:
        document = self._expected(key, expect)
        self._documents[key] = Document(document.last_revision, 0, False)
        self.names[key] = None

    def _seal(self, name: str) -> None:
        stream = self._stream(name)
        self._streams[name] = Stream(stream.dropped, True, stream.head)
        self.names[name] = None

    def _drop(self, name: str) -> None:
        stream = self._stream(name)
        self._streams[name] = Stream(stream.head, stream.sealed, stream.head)
        self.names[name] = None

    def _project(self, name: str, payload: Any) -> None:
        if not self._saved:
            self._connection.execute("SAVEPOINT projecting")
            self._saved = True
        self._projectors.run(self._connection, name, payload, self._now_ms)

    def _expected(self, key: str, expect: int) -> Document:
        document = self._documents.get(key) or self._ledger.document(key)
        if document.revision != expect:
            raise _key_conflict(key, document)
        return document

    def _stream(self, name: str) -> Stream:
        return self._streams.get(name) or self._ledger.stream(name)

    def _expiry(self, ttl_ms: int) -> int:
        return self._now_ms + ttl_ms if ttl_ms else 0


_OPS: dict[str, Callable[..., None]] = {
    "append": _Judgement._append,
    "put": _Judgement._put,
    "touch": _Judgement._touch,
    "delete": _Judgement._delete,
    "seal": _Judgement._seal,
    "drop": _Judgement._drop,
    "project": _Judgement._project,
}


def _first_receipt(request: CommitRequest, digest: bytes, receipt: str) -> dict[str, Any]:
    assert request.key is not None
    if digest == request.digest:
        heads, revisions, _ = text.decode(receipt)
        return {"heads": heads, "revisions": revisions}
    stream, key = request.key
    raise EngineError(
        "conflict",
        f"the key {key!r} of {stream} was used for other ops",
        stream=stream,
        digest="sha256:" + digest.hex(),
    )


def _key_conflict(key: str, document: Document) -> EngineError:
    return EngineError(
        "conflict",
        f"{key} is at revision {document.revision}",
        key=key,
        revision=document.revision,
    )
