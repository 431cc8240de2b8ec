"""How long the kit waits, in real time, whatever clock the subject has.

A check may move the clock of the event loop on, because the subject's timers are on it. The kit's
own limits must not move with it. So they are kept by one thread with a clock of its own, which
wakes the loop. That also makes an end of waits on a loop whose clock stands still.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio

__all__ = ["limit"]

_Entry = tuple[float, int, asyncio.AbstractEventLoop, anyio.CancelScope]


class _Watch:
    """The thread and what it waits for. One for the process, started with the first limit."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[_Entry] = []
        self._count = itertools.count()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, scope: anyio.CancelScope) -> _Entry:
        loop = asyncio.get_running_loop()
        entry = (time.monotonic() + seconds, next(self._count), loop, scope)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tck-patience", daemon=True)
                self._thread.start()
            heapq.heappush(self._entries, entry)
            if self._entries[0] is entry:
                self._changed.notify()
        return entry

    def remove(self, entry: _Entry) -> None:
        with self._changed:
            if entry in self._entries:
                self._entries.remove(entry)
                heapq.heapify(self._entries)

    def _run(self) -> None:
        with self._changed:
            while True:
                if not self._entries:
                    self._changed.wait()
                    continue
                left_s = self._entries[0][0] - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
                _, _, loop, scope = heapq.heappop(self._entries)
                if not loop.is_closed():
                    loop.call_soon_threadsafe(scope.cancel)


_WATCH: Final = _Watch()


@contextmanager
def limit(seconds: float) -> Iterator[anyio.CancelScope]:
    """Cancels the block after `seconds`; `cancelled_caught` of the scope says whether it did."""
    with anyio.CancelScope() as scope:
        entry = _WATCH.add(seconds, scope)
        try:
            yield scope
        finally:
            _WATCH.remove(entry)
