"""News of the inboxes of all runs that one kernel works on.

A run has a watch of its own on its inbox: it wakes for nothing else. But each watch is a call that
stays open, and the worker of a hosted store takes a bounded number of those; many runs that watched
would leave no place for commits, and all of them would stand still. So only the first few get one.
The others share one watch on all runs, which wakes at each of their commits and looks at the name.

Rejected: the shared watch alone (a kernel with one run would hear of all its own commits, and of
those of every other kernel), and asking each inbox from time to time (late, and dear).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from purra.contracts.store import Store
from purra.errors import AdapterError, StoreError
from purra.limits import OWN_WATCHES, STORE_RETRY_S
from purra.runs import keys
from purra.runs.reader import closed_watch

__all__ = ["Inboxes"]

Start = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine in a task that ends with the kernel."""

_RUNS: Final = "run/"


class Inboxes:
    """Of one open kernel."""

    def __init__(self, store: Store, start: Start) -> None:
        self._store = store
        self._start = start
        self._own = 0
        self._bells: dict[str, asyncio.Event] = {}
        self._listening = False

    @asynccontextmanager
    async def watch(self, run: str) -> AsyncIterator[AsyncIterator[object]]:
        """Gives an item when the run's inbox is to be read: at once, and after each append.

        Endless. Raises, where it is iterated, what the store says; what was missed is found when it
        is watched again.
        """
        if self._own < OWN_WATCHES:
            self._own += 1
            try:
                async with closed_watch(self._store, keys.inbox(run)) as changes:
                    yield changes
            finally:
                self._own -= 1
            return
        name, bell = keys.inbox(run), asyncio.Event()
        bell.set()
        self._bells[name] = bell
        if not self._listening:
            self._listening = True
            self._start(self._listen())
        try:
            yield _rings(bell)
        finally:
            del self._bells[name]

    async def _listen(self) -> None:
        """Rings for whoever shares the watch, while there is somebody."""
        try:
            while self._bells:
                try:
                    await self._hear()
                except (AdapterError, StoreError):
                    await asyncio.sleep(STORE_RETRY_S)
        finally:
            self._listening = False

    async def _hear(self) -> None:
        async with closed_watch(self._store, _RUNS) as changes:
            async for name in changes:
                self._ring(name)
                if not self._bells:
                    return

    def _ring(self, name: str) -> None:
        if name in self._bells:
            self._bells[name].set()
        elif not name:  # anything may have changed
            for bell in self._bells.values():
                bell.set()


async def _rings(bell: asyncio.Event) -> AsyncIterator[None]:
    while True:
        await bell.wait()
        bell.clear()
        yield
