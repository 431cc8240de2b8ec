"""Coroutine handlers: an event loop in a thread of its own. Loaded only by plugins that have some.

`import asyncio` costs 30 ms and 10 MiB, three times the rest of a worker, so nothing else in the
SDK touches it. The loop does not own the channel: with the descriptor inside the loop every call
costs twice as much (perf, A), also those of plain functions, and a coroutine that blocks would stop
PING and CANCEL. What comes in is posted to the loop, one wake-up for all calls of one read; what
goes out is written once per turn of the loop.
"""

from __future__ import annotations

import asyncio
from _thread import allocate_lock, start_new_thread
from time import monotonic

from .calls import QUEUED, RUNNING, Call, Stream
from .ledger import answer_of, report, unsendable
from .link import Feed
from .outcomes import CallCancelled, PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from .declare import Handler
    from .ledger import Ledger

__all__ = ["AsyncCall", "Loops"]

BACKLOG_ITEMS = 1000
"""Progress that is kept while the caller gives no credit; a coroutine cannot be made to wait."""
EXIT_LOOP_DIED = 1
STOP_S = 0.5
"""How long the end of the worker waits for the loop to close."""


class AsyncCall(Call):
    """A call whose handler is a coroutine: `chunks` is for `async for`, `ask` is awaited."""

    __slots__ = ("_backlog", "_loops")

    def __init__(self, ledger: Ledger, handler: Handler, event: Any, loops: Loops) -> None:
        super().__init__(ledger, handler, event)
        self._loops = loops
        self._hand = loops
        self._backlog: list[Any] = []

    def progress(self, item: Any) -> None:
        """Sends one item ahead of the result, or keeps it until there is credit.

        Raises `CallCancelled` when the caller gave up, `PluginError(resource_exhausted)` when too
        many items are kept, `ValueError` for an item that is not a strict value.
        """
        if self.cancelled:
            raise CallCancelled
        if self._backlog or not self._ledger.send(self, item, wait=False):
            if len(self._backlog) >= BACKLOG_ITEMS:
                raise PluginError("resource_exhausted", "the caller does not take the progress")
            self._backlog.append(item)

    async def settle(self) -> None:
        """Sends the kept progress: it stands before the result."""
        while self._backlog:
            await self._loops.credit(self)
            if self._ledger.send(self, self._backlog[0], wait=False):
                del self._backlog[0]

    async def chunks(self) -> AsyncIterator[bytes]:  # type: ignore[override]
        """The bytes that the caller uploads, as they come in."""
        lock = self._ledger.link.lock
        while True:
            with lock:
                waiter = None
                if self._inbox:
                    chunk = self._ledger.take_chunk(self)
                else:
                    waiter = self._loops.waiter(self)
            if waiter is not None:
                self._loops.flush_soon()
                await waiter
            elif chunk is None:
                return
            else:
                yield chunk

    async def ask(
        self, adapter: str, method: str, args: Any, *, deadline_ms: int | None = None
    ) -> Any:
        """Calls a service of the host; see `Call.ask`."""
        ledger = self._ledger
        with ledger.link.lock:
            asked, answer = ledger.begin_ask(self, adapter, method, args, deadline_ms)
        self._loops.flush_soon()
        try:
            while not answer:
                await self._loops.waiter(self)
        finally:
            with ledger.link.lock:
                ledger.end_ask(asked, answer)
        return answer_of(answer[0])


class Loops:
    """The loop's thread. `begin`, `adopt`, `resume`, `cancel` and `wake` are called by
    others, lock held; everything else runs on the loop.
    """

    def __init__(self, ledger: Ledger, die: Callable[[int], Any]) -> None:
        self._ledger = ledger
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._die = die
        self._jobs: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._woken = False
        self._flushing = False
        self._probed_s = 0.0
        self._batches: dict[Handler, list[Call]] = {}
        self._batching: dict[Handler, asyncio.Task[None]] = {}
        self._ended = allocate_lock()
        self._ended.acquire()
        start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # a callback of the plugin, not a handler, ended the loop
            report(error)
            self._die(EXIT_LOOP_DIED)
        finally:
            self._ended.release()

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        with self._ledger.link.lock:
            self._loop = asyncio.get_running_loop()
        self._work_off()
        await self._stopping.wait()

    def stop(self) -> None:
        """Ends the loop and waits a moment for it. Lock not held."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._ended.acquire(timeout=STOP_S)

    # From other threads, lock held.

    def begin(self, handler: Handler, event: Any) -> Call:
        """A new call; it starts with the next `wake`."""
        call = AsyncCall(self._ledger, handler, event, self)
        self._jobs.append((self._start, (call,)))
        return call

    def adopt(self, call: Call, outcome: Any) -> None:
        """Takes over a call whose handler turned out to give a coroutine or an async generator."""
        call._hand = self
        self._jobs.append((self._take, (call, outcome)))
        self.wake()

    def resume(self, call: Call) -> None:
        """Something that the call may wait for has come: credit, a chunk, an answer."""
        self._jobs.append((self._poke, (call,)))

    def cancel(self, call: Call) -> None:
        """The call's task is cancelled."""
        self._jobs.append((self._cancel, (call,)))

    def lag_ms(self) -> int:
        """How long the loop has not come round since it was last asked; asks it again."""
        now = monotonic()
        if self._probed_s:
            return int((now - self._probed_s) * 1000)
        self._probed_s = now
        self._jobs.append((self._probe, ()))
        return 0

    def wake(self) -> None:
        """Gets the posted jobs done; one wake-up for all of them."""
        if self._jobs and not self._woken and self._loop is not None:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._work_off)
            except RuntimeError:  # the loop is closed: the worker is ending
                self._jobs.clear()

    # On the loop.

    def _work_off(self) -> None:
        with self._ledger.link.lock:
            jobs, self._jobs = self._jobs, []
            self._woken = False
        for job, arguments in jobs:
            job(*arguments)

    def _probe(self) -> None:
        self._probed_s = 0.0

    def _poke(self, call: Call) -> None:
        waiters, call._waiters = call._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def _cancel(self, call: Call) -> None:
        if call._task is not None:
            call._task.cancel()

    def waiter(self, call: Call) -> asyncio.Future[None]:
        """Done at the next event for this call."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if call._waiters is None:
            call._waiters = []
        call._waiters.append(future)
        return future

    def flush_soon(self) -> None:
        """Writes when this turn of the loop has run."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        with self._ledger.link.lock:
            self._ledger.link.flush()

    def _start(self, call: AsyncCall) -> None:
        handler = call._handler
        if not handler.batched:
            call._task = asyncio.create_task(self._serve(call))
            return
        self._batches.setdefault(handler, []).append(call)
        if handler not in self._batching:
            self._batching[handler] = asyncio.create_task(self._serve_batches(handler))

    def _take(self, call: Call, outcome: Any) -> None:
        call._task = asyncio.create_task(self._finish(call, outcome))
        if call.cancelled:  # before it was taken over
            call._task.cancel()

    async def _serve(self, call: AsyncCall) -> None:
        with self._ledger.link.lock:
            if call._state != QUEUED:
                return
            call._state = RUNNING
        try:
            outcome = call._handler.invoke(call)
        except BaseException as error:  # as for a plain function: the answer to this call only
            self._fail(call, error)
            return
        await self._finish(call, outcome)

    async def _finish(self, call: Call, outcome: Any) -> None:
        try:
            if hasattr(outcome, "__anext__"):
                await self._stream(call, outcome)
                outcome = None
            elif hasattr(outcome, "__await__"):
                outcome = await outcome
            if isinstance(call, AsyncCall):
                await call.settle()
        except BaseException as error:  # also SystemExit, which would end the loop and all calls
            self._fail(call, error)
            return
        with self._ledger.link.lock:
            if type(outcome) is Stream:
                self._ledger.detach(call, outcome)
            else:
                self._ledger.succeed(call, outcome)
        self.flush_soon()

    def _fail(self, call: Call, error: BaseException) -> None:
        if call.cancelled and isinstance(error, asyncio.CancelledError):
            error = CallCancelled()
        report(error)
        with self._ledger.link.lock:
            self._ledger.fail(call, error)
        self.flush_soon()

    async def _stream(self, call: Call, items: Any) -> None:
        """Sends what an async generator yields, as far as there is credit."""
        link = self._ledger.link
        feed = call._feed = Feed(link, call.id)
        try:
            async for item in items:
                with link.lock:
                    due = feed.add(item)
                    if due:
                        link.flush()
                if feed.fault is not None:
                    raise unsendable(feed.fault)
                if due:
                    await asyncio.sleep(0)  # a generator that never waits must let others run
                else:
                    self.flush_soon()
                await self.credit(call)
        finally:
            with link.lock:
                feed.frame()
            await items.aclose()
        if feed.fault is not None:
            raise unsendable(feed.fault)

    async def credit(self, call: Call) -> None:
        """Waits until the call may send. Raises `CallCancelled` when nobody takes items."""
        ledger = self._ledger
        while True:
            with ledger.link.lock:
                if ledger.deaf(call):
                    raise CallCancelled
                if ledger.session.sendable(call.id):
                    return
                ledger.park(call)
            await self.waiter(call)

    async def _serve_batches(self, handler: Handler) -> None:
        """One batch at a time: what arrives meanwhile is the next one."""
        lock = self._ledger.link.lock
        waiting = self._batches[handler]
        while waiting:
            with lock:
                batch = [call for call in waiting if call._state == QUEUED]
                for call in batch:
                    call._state = RUNNING
            waiting.clear()
            if not batch:
                continue
            try:
                outcomes: Any = await handler.function(batch)
            except BaseException as error:  # as for a single call, for each of them
                report(error)
                outcomes = error
            with lock:
                self._ledger.settle_batch(batch, outcomes)
            self.flush_soon()
        del self._batching[handler]
