"""The sketch: what a plain good design of the same shape reaches, and the yardstick of the goals.

Many calls over one socket, each with an id; an asyncio host; streams with credit; large bytes as
frames of their own. It has no deadline, no cancellation, no supervision, no typed error, no check
of a value and no limit, so it is a bound and no equal. `strict` puts the project's codec into it.

`python -m tests.bench.sketch [strict]` is the worker on descriptor 0, on an event loop; `lean.py`
is the one without.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.lean import ANSWER, BUFFER_BYTES, CALL, HANDLERS, HEADER, codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.bench.lean import Codec

__all__ = ["ROOT", "WORKERS", "Sketch", "sketch"]

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = {
    "loop": [sys.executable, "-m", "tests.bench.sketch"],
    "block": [sys.executable, str(Path(__file__).with_name("lean.py"))],
}
"""How the worker of each kind is started, in `ROOT`."""

OPEN, ITEMS, END, CREDIT, RAW = range(2, 7)
SLICE_BYTES: Final = 256 * 1024
SOCKET_BYTES: Final = 1 << 20
BATCH_ITEMS: Final = 512
WINDOW_ITEMS: Final = 1024


class Sketch(asyncio.BufferedProtocol):
    """One end. `handlers`: what it answers with, by method."""

    def __init__(
        self, pair: Codec, handlers: dict[str, Callable[[Any], Any]] | None = None
    ) -> None:
        self.pack, self.unpack = pair
        self.handlers = handlers or {}
        self.loop = asyncio.get_running_loop()
        self.closed = self.loop.create_future()
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._large: tuple[int, int, bytearray] | None = None
        self._large_filled = 0
        self._out: list[bytes] = []
        self._number = 0
        self._waiting: dict[int, Any] = {}
        self._credit: dict[int, int] = {}
        self._granted: dict[int, asyncio.Future[None]] = {}
        self._room: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- reading ------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)

    def get_buffer(self, hint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large[2])[self._large_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._large is not None:
            self._large_filled += count
            number, kind, body = self._large
            if self._large_filled == len(body):
                self._large = None
                self._take(number, kind, body)
            return
        self._filled += count
        at, view = 0, memoryview(self._buffer)
        while self._filled - at >= HEADER.size:
            size, number, kind = HEADER.unpack_from(view, at)
            end = at + HEADER.size + size
            if end > self._filled:
                if HEADER.size + size > BUFFER_BYTES:
                    at = self._begin_large(view, at + HEADER.size, size, number, kind)
                break
            self._take(number, kind, view[at + HEADER.size : end])
            at = end
        left = self._filled - at
        view[:left] = view[at : self._filled]
        self._filled = left

    def _begin_large(self, view: memoryview, at: int, size: int, number: int, kind: int) -> int:
        body = bytearray(size)
        self._large_filled = self._filled - at
        body[: self._large_filled] = view[at : self._filled]
        self._large = (number, kind, body)
        return self._filled

    def _take(self, number: int, kind: int, body: Any) -> None:
        if kind == ANSWER:
            self._waiting.pop(number).set_result(self.unpack(body))
        elif kind == CALL:
            method, value = self.unpack(body)
            self.send(number, ANSWER, self.pack(self.handlers[method](value)))
        elif kind == ITEMS:
            self._waiting[number].put(self.unpack(body))
        elif kind == END:
            self._waiting.pop(number).put(None)
        elif kind == OPEN:
            self._credit[number] = WINDOW_ITEMS
            self._spawn(self._produce(number, *self.unpack(body)))
        elif kind == CREDIT:
            self._credit[number] += self.unpack(body)
            granted = self._granted.pop(number, None)
            if granted is not None:
                granted.set_result(None)
        elif number in self._waiting:
            self._waiting.pop(number).set_result(bytes(body) if type(body) is memoryview else body)
        else:
            self._spawn(self._send_large(number, bytes(body) if len(body) < 1024 else body))

    def _spawn(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- writing ------------------------------------------------------------------------------

    def send(self, number: int, kind: int, body: bytes) -> None:
        """Writes are joined once per pass of the loop."""
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out += (HEADER.pack(len(body), number, kind), body)

    def _flush(self) -> None:
        if self._out:
            self.transport.write(b"".join(self._out))
            self._out.clear()

    async def _send_large(self, number: int, data: Any) -> None:
        self._flush()
        self.transport.write(HEADER.pack(len(data), number, RAW))
        view = memoryview(data)
        for start in range(0, len(data), SLICE_BYTES):
            self.transport.write(view[start : start + SLICE_BYTES])
            if self._room is not None:
                await self._room

    def pause_writing(self) -> None:
        self._room = self.loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set_result(None)

    async def _produce(self, number: int, item: str, count: int, pace_s: float) -> None:
        while count:
            if pace_s:
                await asyncio.sleep(pace_s)
            batch = 1 if pace_s else min(count, BATCH_ITEMS, self._credit[number])
            if not batch:
                self._flush()
                granted = self._granted[number] = self.loop.create_future()
                await granted
                continue
            items = [repr(time.monotonic())] if pace_s else [item for _ in range(batch)]
            self.send(number, ITEMS, self.pack(items))
            self._credit[number] -= batch
            count -= batch
        self.send(number, END, b"")

    # -- calling ------------------------------------------------------------------------------

    def call(self, method: str, value: Any) -> asyncio.Future[Any]:
        """The answer to one call."""
        self._number = number = self._number + 1
        answer: asyncio.Future[Any] = self.loop.create_future()
        self._waiting[number] = answer
        self.send(number, CALL, self.pack((method, value)))
        return answer

    async def bulk(self, data: bytes) -> bytes:
        """Bytes there and back."""
        self._number = number = self._number + 1
        answer = self._waiting[number] = self.loop.create_future()
        await self._send_large(number, data)
        return await answer  # type: ignore[no-any-return]

    async def stream(self, item: str, count: int, pace_s: float = 0.0) -> AsyncIterator[Any]:
        """`count` items, one by one; credit is given back at half a window."""
        self._number = number = self._number + 1
        arrived = self._waiting[number] = _Arrived(self.loop)
        self.send(number, OPEN, self.pack((item, count, pace_s)))
        used = 0
        while (batch := await arrived.next()) is not None:
            for one in batch:
                used += 1
                if used * 2 >= WINDOW_ITEMS:
                    self.send(number, CREDIT, self.pack(used))
                    used = 0
                yield one


class _Arrived:
    """Batches of a stream that nobody has taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batches: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, batch: Any) -> None:
        self._batches.append(batch)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.set_result(None)

    async def next(self) -> Any:
        if not self._batches:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._batches.popleft()


@asynccontextmanager
async def sketch(kind: str = "loop", *, strict: bool = False) -> AsyncIterator[Sketch]:
    """A worker of that kind and the host's end to it."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
    ours.setblocking(False)
    arguments = [*WORKERS[kind], *(["strict"] if strict else [])]
    worker = await asyncio.create_subprocess_exec(*arguments, stdin=theirs.fileno(), cwd=ROOT)
    theirs.close()
    loop = asyncio.get_running_loop()
    _, host = await loop.connect_accepted_socket(lambda: Sketch(codec(strict)), ours)
    try:
        yield host
    finally:
        host.transport.abort()
        await worker.wait()


# --- the worker -----------------------------------------------------------------------------------


async def _serve(pair: Codec) -> None:
    channel = socket.socket(fileno=os.dup(0))
    channel.setblocking(False)
    loop = asyncio.get_running_loop()
    _, end = await loop.connect_accepted_socket(lambda: Sketch(pair, HANDLERS), channel)
    await end.closed


if __name__ == "__main__":
    asyncio.run(_serve(codec("strict" in sys.argv[1:])))
