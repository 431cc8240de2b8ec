"""Stores under judgement: one storage, and any number of openings of it, here and elsewhere.

A `Storage` is what survives an opening: a file, a database, or the memory of one object. An
`Opening` is one connection to it. A hosted plugin has each of its openings in a process of its own,
which can be killed, paused and traced; an object in the kit's process cannot, and rules that need
more than one process do not apply to a storage that lives in one.

All names of a check begin with its name space, so that checks share a storage and do not meet.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import anyio

from purra.adapters import local_store
from purra.contracts.store import Store
from purra.errors import PurraError
from purra.stores.memory import MemoryStore
from purra_tck.subjects.store_client import Client
from purra_tck.verdict import NotApplicable, SubjectFailed

__all__ = [
    "Born",
    "MemoryStorage",
    "Opening",
    "Storage",
    "StoreSubject",
    "alone",
    "memory",
    "subject_of",
]

LIFE_MS: Final = 250
"""Life of a lease in a check, on a machine and a store that answer at once."""
LIFE_CALLS: Final = 12
"""Calls that fit into a life, however slow the store is."""
PROBES: Final = 5
DEATH_S: Final = 10.0
"""Longest time from SIGKILL to the end of the process."""
STILL_S: Final = 2.0
"""A store's clock that does not move for so long stands still."""
NOT_HERE: Final = "the storage lives in one process"


@dataclass(frozen=True, slots=True)
class Opening:
    """One connection. `pid`: the process that carries it out, None = the kit's own.

    `alive`: whether that process still answers for the opening.
    """

    store: Store
    pid: int | None = None
    alive: Callable[[], bool] = lambda: True

    async def kill(self) -> None:
        """SIGKILL, and returns when the process is gone."""
        self._signal(signal.SIGKILL)
        with anyio.move_on_after(DEATH_S):
            while self.alive():
                await anyio.sleep(0.002)
            return
        raise SubjectFailed("an end at SIGKILL", f"process {self.pid} is still there")

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            raise NotApplicable(NOT_HERE)
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise SubjectFailed("a process that lives", f"process {self.pid} is gone") from None


Born = Callable[[int], None]


class Storage(Protocol):
    """What the openings of one store share.

    `processes`: several processes may have it open at once. `folder`: where its files are on this
    machine, None if it has none or they are elsewhere.
    """

    processes: bool
    folder: Path | None

    def open(self, born: Born | None = None) -> AbstractAsyncContextManager[Opening]:
        """A new opening, ready. Raises `SubjectFailed` if the store does not start.

        `born` is told the process as soon as there is one, before it has opened anything.
        """

    def advance(self, ms: int) -> bool:
        """Moves the store's clock on, if the kit holds it; else False, and time must pass."""

    def apart(self) -> Storage:
        """An empty storage of the same kind, which shares nothing with this one.

        Raises `NotApplicable` where only one can be had.
        """


class StoreSubject:
    """One check's view of a storage. Everything that it opens is closed with it."""

    def __init__(self, storage: Storage, ns: str, stack: AsyncExitStack) -> None:
        self.storage = storage
        self.ns = ns
        self._stack = stack
        self._open: dict[Client, AsyncExitStack] = {}
        self.latency_s = 0.0

    @property
    def life_ms(self) -> int:
        """A time to live within which a dozen calls fit."""
        return int(LIFE_MS + LIFE_CALLS * self.latency_s * 1000)

    async def client(self, born: Born | None = None) -> Client:
        """A new opening of the storage; in a process of its own if the store has such."""
        own = await self._stack.enter_async_context(AsyncExitStack())
        client = Client(await own.enter_async_context(self.storage.open(born)), self.ns)
        self._open[client] = own
        if not self.latency_s:
            self.latency_s = await _latency(client.store)
        return client

    async def clients(self, count: int) -> list[Client]:
        """So many openings, started at once."""
        found: list[Client] = []

        async def one() -> None:
            found.append(await self.client())

        # One after the other would take as long as all of their starts together.
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)
        return found

    async def others(self, count: int) -> list[Client]:
        """Openings in `count` processes, or as many of one process where there are no others."""
        return await self.clients(count if self.storage.processes else 1) * (
            1 if self.storage.processes else count
        )

    async def close(self, client: Client) -> None:
        """Ends one opening in good order."""
        await self._open.pop(client).aclose()

    async def reopened(self) -> Client:
        """All openings are closed; a new one."""
        for client in list(self._open):
            await self.close(client)
        return await self.client()

    def need_processes(self) -> None:
        """Raises `NotApplicable` unless several processes can have the storage open."""
        if not self.storage.processes:
            raise NotApplicable(NOT_HERE)

    def apart(self) -> StoreSubject:
        """The same kind of store with an empty storage of its own, closed with this one."""
        return StoreSubject(self.storage.apart(), self.ns, self._stack)

    async def until(self, client: Client, at_ms: int) -> None:
        """Returns when the store's clock has reached `at_ms`.

        Raises `SubjectFailed` if it stands still meanwhile.
        """
        now_ms = await client.store.now()
        moved_s = time.monotonic()
        while now_ms < at_ms:
            if not self.storage.advance(at_ms - now_ms):
                await anyio.sleep(min((at_ms - now_ms) / 1000, 0.05))
            before_ms, now_ms = now_ms, await client.store.now()
            if now_ms > before_ms:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > STILL_S:
                raise SubjectFailed("a clock that goes on", f"now() = {now_ms} for {STILL_S:g} s")


async def _latency(store: Store) -> float:
    """Median time of a call, in seconds: what the kit's own patience is measured by."""
    times_s = []
    for _ in range(PROBES):
        began_s = time.perf_counter()
        try:
            await store.now()
        except PurraError:
            return 0.0  # a check will meet the same and say so
        times_s.append(time.perf_counter() - began_s)
    return statistics.median(times_s)


@asynccontextmanager
async def subject_of(storage: Storage) -> AsyncGenerator[StoreSubject, None]:
    """A subject on `storage`, with a name space that nobody used before."""
    async with AsyncExitStack() as stack:
        yield StoreSubject(storage, f"tck-{os.urandom(5).hex()}", stack)


def alone(make: Callable[[], Storage]) -> Callable[[], AbstractAsyncContextManager[StoreSubject]]:
    """For `Plan.open`: each run of a check on a storage of its own."""
    return lambda: subject_of(make())


class MemoryStorage:
    """A store object in the kit's process, on a clock that the kit moves."""

    processes = False
    folder: Path | None = None

    def __init__(self, make: Callable[[Callable[[], int]], Store]) -> None:
        """`make` gets the clock: milliseconds since 1970."""
        self._make = make
        self._now_ms = time.time_ns() // 1_000_000
        self._store = local_store(make(lambda: self._now_ms))

    @asynccontextmanager
    async def open(self, born: Born | None = None) -> AsyncGenerator[Opening, None]:
        yield Opening(self._store)

    def advance(self, ms: int) -> bool:
        self._now_ms += ms
        return True

    def apart(self) -> MemoryStorage:
        return MemoryStorage(self._make)


def memory() -> MemoryStorage:
    """The executable specification."""
    return MemoryStorage(MemoryStore)
