"""One call from its request to its end, seen from the caller's side.

A call ends for its caller exactly once: by its terminal, its deadline, its caller's cancel, or the
death of the instance, whichever is first. For the *instance* it ends with the terminal: between the
two it is `released`, holds its slot, and its late answer is dropped (protocol, messages, 2).

A call belongs to a route until it is sent and to an instance after that; `home` is who is told when
the caller gives up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, Self
from weakref import WeakMethod

from purra_bridge.ports.channel import Request
from purra_hosts.process.alarm import NEVER
from purra_hosts.process.figures import Figures

__all__ = ["DEPTH", "Call", "Home", "StreamItems", "upload"]

DEPTH: Final[ContextVar[int]] = ContextVar("purra_callback_depth", default=0)
"""Inside how many callbacks this task runs: a service of the host may call plugins in its turn."""
UPLOAD_SLICE_BYTES: Final = 256 * 1024
"""Bytes of one upload chunk on the wire, so that other calls get their turn between two."""


class Home(Protocol):
    """Where a call is at the moment."""

    def give_up(self, call: Call, reason: str) -> None:
        """The caller has ended; nobody waits for the answer."""

    def ask_stop(self, call: Call) -> None:
        """The call should stop, and its answer is still welcome."""

    def consumed(self, call: Call, cost: int) -> None:
        """Items worth `cost` bytes of credit were taken."""

    def sendable(self, call: Call) -> bool:
        """More of an upload may be sent now."""

    def send_chunk(self, call: Call, data: bytes, end: bool) -> None:
        """Sends a piece of an upload."""


class Call:
    """A call with one answer. `future` is what its caller awaits; `sink` takes its items."""

    __slots__ = (
        "__weakref__",
        "_began_s",
        "_figures",
        "deadline_s",
        "depth",
        "future",
        "grace_s",
        "home",
        "id",
        "on_item",
        "output_bytes",
        "released",
        "request",
        "sink",
        "turn",
    )

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.future: asyncio.Future[Any] = loop.create_future()
        self.id = 0
        self.depth = DEPTH.get()
        self.home: Home | None = None
        self.released = False
        self.deadline_s = NEVER
        self.grace_s = NEVER
        self.output_bytes = 0
        self.on_item: Callable[[Any], None] | None = None
        self.sink: Callable[[Sequence[Any], int], None] | None = None
        self.turn: asyncio.Event | None = None
        self._figures: Figures | None = None
        self._began_s = 0.0

    def count_in(self, figures: Figures, now_s: float) -> None:
        """It has arrived, and its end is to be counted."""
        self._figures, self._began_s = figures, now_s

    @property
    def exclusive(self) -> bool:
        """Runs alone in its instance, and its hard timeout kills."""
        return self.request.exclusive

    async def answer(self) -> Any:
        """The value of RESULT. Cancelling the awaiting task abandons the call at once."""
        try:
            return await self.future
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            del self  # an error holds this frame, and must not hold the arguments

    # What the host tells it.

    def take_items(self, values: Sequence[Any], cost: int) -> None:
        """Items have arrived."""
        if self.sink is not None and not self.released:
            self.sink(values, cost)
            return
        self.consumed(cost)
        if self.on_item is not None and not self.released:
            try:
                for value in values:
                    self.on_item(value)
            except Exception as error:  # the listener's fault ends its own call, not the link
                self.break_off(error)

    def succeed(self, value: Any) -> None:
        """RESULT has arrived. Does nothing if the caller has ended already."""
        if not self.released:
            self.released = True
            self._count(False)
            if not self.future.done():  # its task may be cancelled and not have run yet
                self.future.set_result(value)

    def fail(self, error: Exception) -> None:
        """The call has failed. Does nothing if the caller has ended already."""
        if not self.released:
            self.released = True
            self._count(True)
            if not self.future.done():
                self.future.set_exception(error)

    def may_send(self) -> None:
        """Something has changed that an upload may wait for."""
        if self.turn is not None:
            self.turn.set()

    # What the caller tells it.

    def abandon(self) -> None:
        """The caller no longer waits."""
        if not self.released:
            self.released = True
            self.future.cancel()
            self._give_up()
        elif self.future.done() and not self.future.cancelled():
            self.future.exception()  # it lost the race; nobody will ask for it any more

    def break_off(self, error: Exception) -> None:
        """The caller's own code has failed while it served the call."""
        if not self.released:
            self.fail(error)
            self._give_up()

    def consumed(self, cost: int) -> None:
        """Items worth `cost` bytes of credit were taken."""
        if self.home is not None:
            self.home.consumed(self, cost)

    def heed_stop(self) -> None:
        """From now on a stop that the request carries is passed on to wherever the call is. It does
        not hold the call, which holds it: a circle would keep the answer, however large, until the
        collector comes.
        """
        if self.request.stop is not None:
            stopping = WeakMethod(self._stop)

            def stop() -> None:
                ask = stopping()
                if ask is not None:
                    ask()

            self.request.stop.on_request(stop)

    def _stop(self) -> None:
        if not self.released and self.home is not None:
            self.home.ask_stop(self)

    def _count(self, failed: bool) -> None:
        if self._figures is not None:
            self._figures.end(self.future.get_loop().time() - self._began_s, failed)

    def _give_up(self) -> None:
        if self.home is not None:
            self.home.give_up(self, "cancelled")


async def upload(call: Call, chunks: AsyncIterable[bytes]) -> Any:
    """Sends all chunks while waiting for the answer, which may come before the last one.

    An error of `chunks` itself ends the call and is raised as it is.
    """
    call.turn = asyncio.Event()
    feeder = asyncio.ensure_future(_feed(call, call.turn, chunks))
    feeder.add_done_callback(lambda task: _fed(call, task))
    try:
        return await call.answer()
    finally:
        feeder.cancel()
        await asyncio.wait((feeder,))


def _fed(call: Call, feeder: asyncio.Task[None]) -> None:
    error = None if feeder.cancelled() else feeder.exception()
    if isinstance(error, Exception):
        call.break_off(error)


async def _feed(call: Call, turn: asyncio.Event, chunks: AsyncIterable[bytes]) -> None:
    async for chunk in chunks:
        for start in range(0, len(chunk), UPLOAD_SLICE_BYTES):
            home = await _sendable(call, turn)
            home.send_chunk(call, bytes(chunk[start : start + UPLOAD_SLICE_BYTES]), False)
    home = await _sendable(call, turn)
    home.send_chunk(call, b"", True)


async def _sendable(call: Call, turn: asyncio.Event) -> Home:
    while call.home is None or not call.home.sendable(call):
        turn.clear()
        await turn.wait()
    return call.home


class StreamItems:
    """The items of one call, as an async iterator (`purra_bridge.ports.channel.Items`).

    The call knows only the inbox, never this object: so an iterator that its user drops is
    collected at once, and with it the call (STR-006).
    """

    def __init__(self, call: Call, start: Callable[[Call], None]) -> None:
        """`start` sends the call, with the first `__anext__`; it fails the call, never raises."""
        self._inbox = _Inbox(call)
        self._future = call.future
        self._start: Callable[[Call], None] | None = start
        self._batch: Sequence[Any] = ()
        self._at = 0
        self._ended = False

    @property
    def result(self) -> Any:
        """The value of RESULT; None before the end."""
        future = self._future
        if future.done() and not future.cancelled() and future.exception() is None:
            return future.result()
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while self._at == len(self._batch):
            if self._inbox.batches:
                self._batch = self._inbox.next_batch()
                self._at = 0
            elif self._ended:
                raise StopAsyncIteration
            elif self._future.done():
                self._ended = True
                if not self._future.cancelled():
                    self._future.result()  # raises if the call has failed
            else:
                await self._more()
        value = self._batch[self._at]
        self._at += 1
        if self._at == len(self._batch):
            # A batch is paid for with its last item, before anybody waits again: a consumer that
            # paid later would wait for items that wait for its payment.
            self._inbox.pay()
        return value

    async def aclose(self) -> None:
        """Cancels the call if it has not ended. Does not suspend."""
        self._close()

    def __del__(self) -> None:
        if not self._ended and self._start is None:
            loop = self._future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._inbox.close)

    def _close(self) -> None:
        self._ended = True
        self._batch, self._at = (), 0
        self._inbox.close()

    async def _more(self) -> None:
        """Returns when something has changed."""
        if self._start is not None:
            start, self._start = self._start, None
            start(self._inbox.call)
        try:
            await self._inbox.changed()
        except asyncio.CancelledError:
            self._close()
            raise


class _Inbox:
    """Items that have arrived and were not taken."""

    __slots__ = ("_cost", "_waiter", "batches", "call")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.batches: deque[tuple[Sequence[Any], int]] = deque()
        self._cost = 0
        self._waiter: asyncio.Future[None] | None = None
        call.sink = self._take
        call.future.add_done_callback(self._settled)

    def next_batch(self) -> Sequence[Any]:
        """The next items; they are paid for by `pay`."""
        values, self._cost = self.batches.popleft()
        return values

    def pay(self) -> None:
        """Gives the credit of the last batch back."""
        cost, self._cost = self._cost, 0
        if cost:
            self.call.consumed(cost)

    async def changed(self) -> None:
        """Waits until an item or the end has arrived."""
        if self._waiter is not None:
            raise RuntimeError("two tasks read one stream")
        self._waiter = self.call.future.get_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Abandons the call; what nobody will take is paid for, so the connection goes on."""
        self.call.abandon()
        self._cost += sum(cost for _, cost in self.batches)
        self.batches.clear()
        self.pay()
        self._wake()

    def _take(self, values: Sequence[Any], cost: int) -> None:
        if values:
            self.batches.append((values, cost))
            self._wake()
        else:
            self.call.consumed(cost)

    def _settled(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            future.exception()  # `__anext__` raises it, if anybody asks
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
