"""How many instances start at once, and waiting that survives its waiter's cancellation."""

from __future__ import annotations

import asyncio
from collections import deque

import anyio

__all__ = ["StartGate", "outlast"]


class StartGate:
    """A line for starts. Starting is work for the processor, so more at once than there are
    processors only makes each of them late (H04).

    Not a semaphore, because whoever waits may be stopped meanwhile, and must then come through at
    once instead of in turn.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._line: deque[asyncio.Future[None]] = deque()
        self._inside: set[asyncio.Future[None]] = set()

    def enter(self) -> asyncio.Future[None]:
        """A ticket; done when its holder may start."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(ticket)
        self._admit()
        return ticket

    def done(self, ticket: asyncio.Future[None]) -> None:
        """Its holder starts no more, or has started. Idempotent."""
        if ticket in self._inside:
            self._inside.remove(ticket)
            self._free += 1
            self._admit()
        elif ticket in self._line:
            self._line.remove(ticket)
            if not ticket.done():
                ticket.set_result(None)

    def _admit(self) -> None:
        while self._free > 0 and self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                self._free -= 1
                self._inside.add(ticket)
                ticket.set_result(None)


async def outlast(task: asyncio.Future[None]) -> None:
    """Waits for `task` whatever happens to the waiter, and only then lets its cancellation go on:
    half a close would leave a process behind (H52). The result is not looked at.
    """
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
