"""A handle on one run, for whoever submitted or resumed it in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from purra.contracts.store import Store
from purra.errors import PurraError
from purra.journal.events import Event
from purra.runs import keys, reader
from purra.runs.feed import Feed
from purra.runs.result import Result

__all__ = ["Run"]


class Run:
    """One run that this kernel works on, or worked on. Made by `Kernel.submit` and `Kernel.resume`.

    All methods may be used by any number of tasks.
    """

    def __init__(self, run_id: str, store: Store, cancel: Callable[[str], Awaitable[bool]]) -> None:
        self.id = run_id
        self._store = store
        self._cancel = cancel
        self._feeds: tuple[Feed, Feed] | None = None
        self._taken = asyncio.Event()
        self._done = asyncio.Event()
        self._result: Result | None = None
        self._fault: PurraError | None = None

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Committed events with sequence > `after`, old ones first, then new ones as they come.

        Ends with the terminal event, or when the run rests and this kernel gave it up. A slow
        reader holds nothing up (OUT-13). Raises `PurraError(invalid_argument)` for a bad cursor.
        """
        await self._taken.wait()
        feed = self._feeds[0] if self._feeds else None
        source = reader.events(
            self._store, keys.journal(self.id), after, feed, follow=feed is not None
        )
        async for event in source:
            yield event

    async def output(self, *, diagnostic: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Drafts: `model.content_delta` records, each `provisional` until its round is promoted.

        With `diagnostic` also `model.reasoning_delta`, which is never part of an answer (OUT-02).
        """
        await self._taken.wait()
        feed = self._feeds[1] if self._feeds else None
        source = reader.records(self._store, keys.output(self.id), 0, feed, follow=feed is not None)
        async for record in source:
            if diagnostic or record["kind"] == "model.content_delta":
                yield record

    async def wait(self) -> Result:
        """The result, once the run has ended or rests.

        Raises `PurraError(ownership_lost)` if another kernel took the run, or the store's error if
        it could not be journaled any more; the run can then be resumed.
        """
        await self._done.wait()
        if self._result is None:
            raise self._fault or PurraError("internal_error", "no result", where=f"run {self.id}")
        return self._result

    async def cancel(self) -> bool:
        """Asks the run to end. Idempotent; False if it had already ended (RUN-10)."""
        return await self._cancel(self.id)

    def taken(self, journal: Feed, output: Feed) -> None:
        """The kernel began to work on the run."""
        self._feeds = (journal, output)
        self._taken.set()

    def settle(self, outcome: Result | PurraError) -> None:
        """The kernel does not work on the run any more."""
        if isinstance(outcome, Result):
            self._result = outcome
        else:
            self._fault = outcome
        self._taken.set()
        self._done.set()
