"""F: events of 300 bytes, each acknowledged when it is on the disk: one caller, and 64 of them.

The figures are the disk's as much as ours, so `TMPDIR` must not be memory.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from purra.contracts.store import ANY, Append, Commit
from purra_bridge.ports.payloads import commit_args
from purra_bridge.ports.store import HostedStore
from purra_plugin_sqlite.engine import Engine
from tests.bench.hosted import hosting, sqlite_launch
from tests.bench.measure import Column, Contender, Goal, Section, part, percentile

__all__ = ["CALLERS", "EVENT", "GOALS", "SECTION"]

ALONE: Final = 300
CALLERS: Final = 64
TOGETHER: Final = 6400
OLDER: Final = 1000
BATCH: Final = 512

EVENT: Final = {"seq": 1, "kind": "tool.completed", "data": {"text": "0123456789abcdef" * 15}}
"""About 300 bytes, as the store keeps it."""

AppendOne = Callable[[str, int], Awaitable[Any]]
"""Appends one event to a stream; the number tells it from others of the stream."""


async def _figures(append: AppendOne, share: float, older: int = OLDER) -> dict[str, float]:
    alone, each = part(ALONE, share), part(TOGETHER // CALLERS, share)
    first = await _times(append, "alone", 0, alone)

    async def caller(number: int) -> None:
        for place in range(each):
            await append(f"caller{number}", place)

    began = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    together_s = time.perf_counter() - began
    for start in range(0, round(older * share), CALLERS):
        places = range(alone + start, alone + start + CALLERS)
        await asyncio.gather(*(append("alone", place) for place in places))
    later = await _times(append, "alone", 1_000_000, alone)
    return {
        "alone": alone / sum(first),
        "ack_us": percentile(first, 0.5) * 1e6,
        "together": each * CALLERS / together_s,
        "aged": percentile(later, 0.5) / percentile(first, 0.5),
    }


async def _times(append: AppendOne, stream: str, start: int, count: int) -> list[float]:
    times = []
    for place in range(start, start + count):
        began = time.perf_counter()
        await append(stream, place)
        times.append(time.perf_counter() - began)
    return times


# --- the floor and the sketch ---------------------------------------------------------------------


def _open(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    file.execute("PRAGMA journal_mode=WAL")
    file.execute("PRAGMA synchronous=FULL")
    file.execute(
        "CREATE TABLE journal (stream TEXT, seq INTEGER, body TEXT, PRIMARY KEY (stream, seq)) "
        "WITHOUT ROWID"
    )
    return file


INSERT: Final = "INSERT INTO journal VALUES (?, ?, ?)"
BODY: Final = str(EVENT)


def _floor(share: float) -> dict[str, float]:
    """One row per transaction; more callers would wait for each other."""
    with TemporaryDirectory() as folder:
        file, times = _open(Path(folder) / "floor.db"), []
        for place in range(part(ALONE, share)):
            began = time.perf_counter()
            file.execute("BEGIN IMMEDIATE")
            file.execute(INSERT, ("alone", place, BODY))
            file.execute("COMMIT")
            times.append(time.perf_counter() - began)
        file.close()
    rate = len(times) / sum(times)
    return {"alone": rate, "ack_us": percentile(times, 0.5) * 1e6, "together": rate}


class _Group:
    """A thread that writes whatever waits, and answers all of it after one flush."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def append(self, stream: str, place: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.put(((stream, place, BODY), future))
        return future

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        self._file.close()

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany(INSERT, [row for row, _ in batch])
            self._file.execute("COMMIT")
            self._loop.call_soon_threadsafe(_answer, [future for _, future in batch])


def _answer(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def _sketch(share: float) -> dict[str, float]:
    async def main(path: Path) -> dict[str, float]:
        group = _Group(_open(path))
        try:
            return await _figures(group.append, share)
        finally:
            group.close()

    with TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder) / "sketch.db"))


# --- the project ----------------------------------------------------------------------------------


def _commit(stream: str, place: int) -> Commit:
    return Commit((Append(stream, ANY, (EVENT,)),), (stream, str(place)), durable=True)


@contextmanager
def _engine() -> Iterator[Engine]:
    with TemporaryDirectory() as folder:
        engine = Engine(str(Path(folder) / "journal.db"))
        yield engine
        engine.close()


def _direct(share: float) -> dict[str, float]:
    """The plugin's engine in this process: what of the port's cost is the store's own."""

    async def main(engine: Engine) -> dict[str, float]:
        async def append(stream: str, place: int) -> None:
            engine.commit(commit_args(_commit(stream, place)))

        found = await _figures(append, share, 0)
        batches = [
            [commit_args(_commit(f"batch{n}", place)) for n in range(CALLERS)]
            for place in range(part(TOGETHER // CALLERS, share))
        ]
        began = time.perf_counter()
        for batch in batches:
            engine.commit_together(batch)
        found["together"] = len(batches) * CALLERS / (time.perf_counter() - began)
        return {name: found[name] for name in ("alone", "ack_us", "together")}

    with _engine() as engine:
        return asyncio.run(main(engine))


def _port(share: float) -> dict[str, float]:
    async def main(path: Path) -> dict[str, float]:
        async with hosting(sqlite_launch(path)) as (route,):
            store = HostedStore(route, "journal")
            return await _figures(lambda *where: store.commit(_commit(*where)), share)

    with TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder) / "journal.db"))


FLOOR: Final = "floor: SQLite, one row each"
SKETCH: Final = "sketch: a thread that commits in groups"
DIRECT: Final = "purra: the store's engine, directly"
PORT: Final = "purra: through the store's port"

SECTION: Final = Section(
    "appends",
    "F. durable appends",
    (
        Column("alone", "appends/s, 1 caller", rate=True),
        Column("ack_us", "p50 us", compared=False),
        Column("together", "appends/s, 64 callers", rate=True),
        Column("aged", "cost after 1,000 more", 2, compared=False),
    ),
    (
        Contender(FLOOR, _floor),
        Contender(SKETCH, _sketch),
        Contender(DIRECT, _direct),
        Contender(PORT, _port),
    ),
    {FLOOR: "floor", SKETCH: "sketch"},
)

GOALS: Final = (
    Goal("F1", "durable appends, one caller: cost / floor", "appends", "alone", PORT, FLOOR, 1.43),
    Goal("F2", "64 callers: cost / floor", "appends", "together", PORT, FLOOR, 1 / 6),
    Goal("F3", "cost after 1,000 more events", "appends", "aged", PORT, "", 1.1),
)
