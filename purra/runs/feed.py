"""What this process has just committed, kept for its own readers.

A feed holds the last items of one stream and wakes whoever waits. It is a cache of the store's
tail, not a queue: a reader has only a cursor, so a slow or forgotten one costs nothing and blocks
nobody; it reads what fell out from the store (OUT-13, K67).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

from purra.limits import SUBSCRIBER_EVENTS

__all__ = ["Feed"]


class Feed:
    """The tail of one stream. `head`: sequence of the last item; `closed`: no more will come."""

    def __init__(self, head: int = 0) -> None:
        self.head = head
        self.closed = False
        self._tail: deque[Any] = deque(maxlen=SUBSCRIBER_EVENTS)
        self._changed: asyncio.Event | None = None
        """What readers wait for; there is one only while somebody may wait."""

    def publish(self, items: Iterable[Any]) -> None:
        """Adds items that are committed, in order, and wakes the readers."""
        for item in items:
            self._tail.append(item)
            self.head += 1
        self._wake()

    def close(self) -> None:
        """Says that nothing more comes from this process."""
        self.closed = True
        self._wake()

    def covers(self, after: int) -> bool:
        """Whether every item after the cursor is here."""
        return after >= self.head - len(self._tail)

    def after(self, cursor: int) -> list[Any]:
        """Items after the cursor; `covers(cursor)` must hold."""
        return list(islice(self._tail, len(self._tail) - (self.head - cursor), None))

    async def changed(self) -> None:
        """Waits for the next `publish` or `close`."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
