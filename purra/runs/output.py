"""A round's text while it is written: drafts, in batches, in the run's output stream.

A batch closes at `DELTA_BATCH_BYTES` or `DELTA_BATCH_S`, the first text of an attempt goes at
once, and at most one append is in flight; what is left when the round ends rides on the round's
own commit. So a fast model costs one or two small commits a round, and text is never shown before
it is stored (invariant 3, OUT-05, OUT-09). Batches hold whole strings: no code point is ever cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from purra.contracts.store import Append
from purra.limits import DELTA_BATCH_BYTES, DELTA_BATCH_S
from purra.runs import keys
from purra.runs.feed import Feed

__all__ = ["Output"]

Commit = Callable[[Append], Awaitable[None]]


class Output:
    """The output stream of one run, written by its owner.

    `commit` appends one batch, fenced by the lease. One writer task (`write`) per attempt.
    """

    def __init__(self, run: str, head: int, feed: Feed, commit: Commit) -> None:
        self.feed = feed
        self._stream = keys.output(run)
        self._head = head
        self._commit = commit
        self._batch: list[dict[str, Any]] = []
        self._batch_bytes = 0
        self._shown = False
        self._more = anyio.Event()
        self._full = anyio.Event()
        self._free = anyio.Lock()

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
        self._more.set()
        if self._batch_bytes >= DELTA_BATCH_BYTES or not self._shown:
            self._full.set()

    async def write(self) -> None:
        """Appends batches as they close, until cancelled. Raises what `commit` raises."""
        while True:
            await self._more.wait()
            with anyio.move_on_after(DELTA_BATCH_S):
                await self._full.wait()
            async with self._free:
                taken = self.take()
                if taken is not None:
                    # A batch that is on its way is waited for: its sequence numbers are used.
                    with anyio.CancelScope(shield=True):
                        await self._commit(taken)
                        self.published(taken)

    def idle(self) -> anyio.Lock:
        """Held while no append is in flight, so that the holder may `take`."""
        return self._free

    def take(self) -> Append | None:
        """What waits, as an op for the caller's commit; after it, `published` must be called."""
        if not self._batch:
            return None
        taken = Append(self._stream, self._head, tuple(self._batch))
        self._batch, self._batch_bytes, self._shown = [], 0, True
        self._more, self._full = anyio.Event(), anyio.Event()
        return taken

    def put_back(self, taken: Append | None) -> None:
        """The commit of what was taken was refused: it waits again, before what came since."""
        if taken is not None:
            self._batch = [*taken.records, *self._batch]
            self._batch_bytes += sum(len(record["text"]) for record in taken.records)
            self._more.set()

    def drop(self) -> None:
        """Forgets what waits: its attempt is void."""
        self.take()

    def published(self, taken: Append) -> None:
        """The batch is stored: shows it to readers."""
        self._head += len(taken.records)
        self.feed.publish(taken.records)
