"""The store, as the contract's payloads see it: one method per operation, on one file.

Three connections share the work, so that nothing waits for what it does not need: commits and blobs
go through a writer, reads through a reader (they do not wait for a flush), and the polling of
watchers has its own while there are any. All methods may be called from any thread.
"""

from __future__ import annotations

import os
import time

from purra_plugin_sqlite import blobs, reads, requests
from purra_plugin_sqlite.commit import settle
from purra_plugin_sqlite.database import PATIENCE_S
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.projecting import Projectors
from purra_plugin_sqlite.schema import open_file
from purra_plugin_sqlite.watching import Hub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from purra_plugin_sqlite.commit import Outcome, Settled
    from purra_plugin_sqlite.requests import CommitRequest
    from purra_plugin_sqlite.watching import Subscription, Watcher

__all__ = ["Engine"]


def wall_ms() -> int:
    """Milliseconds since 1970: one clock for all processes of a machine."""
    return time.time_ns() // 1_000_000


class Engine:
    """An open store. Every method raises `EngineError` and nothing else; nothing is ever half done.

    `path`: the file, made if need be, with its folder. `clock_ms`: the store's clock. `patience_s`:
    how long a call waits for other processes. `projectors`: what `project` ops may name.
    """

    def __init__(
        self,
        path: str,
        *,
        clock_ms: Callable[[], int] = wall_ms,
        patience_s: float = PATIENCE_S,
        projectors: Projectors | None = None,
    ) -> None:
        self._path = os.path.abspath(path)
        self._clock_ms = clock_ms
        self._patience_s = patience_s
        self._projectors = projectors or Projectors({})
        self._writer = open_file(self._path, patience_s=patience_s)
        try:
            self._reader = open_file(self._path, patience_s=patience_s)
        except BaseException:  # the caller gets no engine, so nobody else would close it
            self._writer.close()
            raise
        self._hub = Hub(lambda: open_file(self._path, patience_s=patience_s))
        self.transactions = 0
        """Writing transactions so far: how many flushes the commits have shared."""

    def commit(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """One commit: heads, revisions."""
        outcome = self.commit_together((args,))[0]
        if isinstance(outcome, EngineError):
            raise outcome
        return outcome

    def commit_together(self, batch: Sequence[Any]) -> list[Outcome]:
        """Several commits in their order, one flush for all, each with its own outcome.

        Does not raise: a refusal stands in its commit's place.
        """
        outcomes: list[Outcome] = []
        accepted: list[tuple[int, CommitRequest]] = []
        for place, args in enumerate(batch):
            try:
                request = requests.commit_request(args)
            except EngineError as refusal:
                outcomes.append(refusal)
            else:
                accepted.append((place, request))
                outcomes.append({})
        if accepted:
            settled = self._settle([request for _, request in accepted])
            for (place, _), outcome in zip(accepted, settled, strict=True):
                outcomes[place] = outcome
        return outcomes

    def read(self, stream: Any, after: Any, limit: Any) -> dict[str, Any]:
        """Records after a cursor: records, head, sealed."""
        name = requests.name(stream, "stream")
        requests.number(after, "after", 0, requests.INT_MAX)
        requests.number(limit, "limit", 1, requests.INT_MAX)
        return self._reader.reading(
            lambda connection: reads.read_stream(connection, name, after, limit)
        )

    def get(self, keys: Any) -> dict[str, Any]:
        """Documents by key: documents, None where there is none."""
        names = requests.names(keys, "keys")
        return self._reader.reading(
            lambda connection: reads.get_documents(connection, names, self._clock_ms())
        )

    def scan(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Documents in order: documents, more."""
        scan = requests.scan_request(args)
        return self._reader.reading(
            lambda connection: reads.scan_documents(connection, scan, self._clock_ms())
        )

    def watch(self, prefix: Any, watcher: Watcher) -> Subscription:
        """Tells `watcher` at once and after each change, until it is closed, or this is."""
        return self._hub.subscribe(requests.prefix(prefix, "prefix"), watcher)

    def now(self) -> dict[str, Any]:
        """The store's clock: now_ms."""
        return {"now_ms": self._clock_ms()}

    def blob_put(self, chunks: Iterable[bytes]) -> dict[str, Any]:
        """Stores bytes: digest."""
        return {"digest": blobs.put(self._writer, os.path.dirname(self._path), chunks)}

    def blob_get(self, digest: Any, offset: Any, length: Any) -> Iterator[bytes]:
        """Bytes of a blob, in pieces."""
        requests.number(offset, "offset", 0, requests.INT_MAX)
        requests.number(length, "length", 1, requests.INT_MAX)
        return blobs.get(self._reader, requests.name(digest, "digest"), offset, length)

    def close(self) -> None:
        """Ends watching and lets go of the file. Idempotent."""
        self._hub.close()
        self._reader.close()
        self._writer.close()

    def _settle(self, batch: list[CommitRequest]) -> list[Outcome]:
        try:
            settled = self._transaction(batch)
        except EngineError as refusal:
            if len(batch) == 1 or refusal.passing:
                return [refusal] * len(batch)
            # The medium failed, perhaps only for the largest of them: each for itself, then.
            return [outcome for request in batch for outcome in self._settle([request])]
        if settled.rows:
            self._hub.tell(settled.rows, settled.names)
        return settled.outcomes

    def _transaction(self, batch: list[CommitRequest]) -> Settled:
        self.transactions += 1
        return self._writer.transaction(
            # The clock is read with the file held: whoever waited must not judge by an old time.
            lambda connection: settle(connection, batch, self._clock_ms(), self._projectors),
            durable=any(request.durable for request in batch),
        )
