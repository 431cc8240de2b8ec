"""A round's text while it is written: drafts, in batches, in the run's output stream.

A batch closes at `DELTA_BATCH_BYTES` or `DELTA_BATCH_S`, the first text of an attempt goes at
once, and at most one append is in flight; what is left when the round ends rides on the round's
own commit. So a fast model costs one or two small commits a round, and text is never shown before
it is stored (invariant 3, OUT-05, OUT-09). Batches hold whole strings: no code point is ever cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from purra.contracts.store import Append
from purra.limits import DELTA_BATCH_BYTES, DELTA_BATCH_S, FIRST_DELTA_S
from purra.runs import keys
from purra.runs.feed import Feed

__all__ = ["Output"]

Commit = Callable[[Append], Awaitable[None]]
Start = Callable[[Callable[[], Awaitable[None]]], None]


class Output:
    """The output stream of one run, written by its owner.

    `commit` appends one batch, fenced by the lease. Batches are appended by a task of the run,
    which `attach` says how to start; until then everything waits for the run's own commits.
    """

    def __init__(self, run: str, head: int, feed: Feed, commit: Commit) -> None:
        self.feed = feed
        self._stream = keys.output(run)
        self._head = head
        self._commit = commit
        self._start: Start | None = None
        self._batch: list[dict[str, Any]] = []
        self._batch_bytes = 0
        self._shown = False
        self._timer: asyncio.TimerHandle | None = None
        self._free = asyncio.Lock()

    def attach(self, start: Start) -> None:
        """`start` runs a coroutine function in a task that ends with the run."""
        self._start = start

    def detach(self) -> None:
        """The run's tasks end: nothing is appended any more."""
        self._start = None
        self._stop_timer()

    def open(self, attempt: int, round_number: int) -> None:
        """A new attempt begins: its first text goes at once."""
        self._shown = False
        self._attempt = attempt
        self._round = round_number

    def push(self, kind: str, text: str) -> None:
        """Adds text of the open attempt; joined with text of the same kind that waits."""
        last = self._batch[-1] if self._batch else None
        if last and last["kind"] == kind and last["attempt"] == self._attempt:
            last["text"] += text
        else:
            self._batch.append(
                {
                    "kind": kind,
                    "attempt": self._attempt,
                    "round": self._round,
                    "provisional": True,
                    "text": text,
                }
            )
        self._batch_bytes += len(text)
        if self._batch_bytes >= DELTA_BATCH_BYTES:
            self._due()
        elif self._timer is None:
            wait_s = DELTA_BATCH_S if self._shown else FIRST_DELTA_S
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._due)

    def _due(self) -> None:
        self._stop_timer()
        if self._start is not None and not self._free.locked():
            self._start(self._append)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _append(self) -> None:
        async with self._free:
            # What comes while a batch is on its way waits for the next.
            while (taken := self.take()) is not None:
                await self._commit(taken)
                self.published(taken)

    def idle(self) -> asyncio.Lock:
        """Held while no append is in flight, so that the holder may `take`."""
        return self._free

    def take(self) -> Append | None:
        """What waits, as an op for the caller's commit; after it, `published` must be called."""
        if not self._batch:
            return None
        taken = Append(self._stream, self._head, tuple(self._batch))
        self._batch, self._batch_bytes, self._shown = [], 0, True
        self._stop_timer()
        return taken

    def put_back(self, taken: Append | None) -> None:
        """The commit of what was taken was refused: it waits again, before what came since."""
        if taken is not None:
            self._batch = [*taken.records, *self._batch]
            self._batch_bytes += sum(len(record["text"]) for record in taken.records)

    def drop(self) -> None:
        """Forgets what waits: its attempt is void."""
        self.take()

    def published(self, taken: Append) -> None:
        """The batch is stored: shows it to readers."""
        self._head += len(taken.records)
        self.feed.publish(taken.records)
