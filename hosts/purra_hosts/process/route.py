"""The way to one plugin: what callers hold, whatever instance serves it.

A route outlives its instances. It starts one when it is first called, lets callers wait in a
bounded queue meanwhile, hands each the next free slot in the order they came, and says why when
there is nothing to wait for. Two things are never mixed: what is *desired* (running, or stopped),
which callers and operators set, and what *is* (the instance), which only happens.

What follows a failure is decided by `purra_hosts.restarts`, once per instance, in `_judge`. Without
a policy the route stays down: each call fails at once with that error, and `start` tries again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.isolation.policy import AXES
from purra_hosts.launch import Launch
from purra_hosts.process import states
from purra_hosts.process.alarm import NEVER, Alarm
from purra_hosts.process.calls import Call, StreamItems, upload
from purra_hosts.process.failures import again, before_sending
from purra_hosts.process.gate import StartGate, outlast
from purra_hosts.process.instance import Instance, Shared
from purra_hosts.process.states import ANNOUNCED, State
from purra_hosts.restarts import (
    Again,
    Failure,
    History,
    Quarantine,
    RestartPolicy,
    after_failure,
)

__all__ = ["EventSink", "Route", "RouteStatus"]

EventSink = Callable[[str, Mapping[str, Any]], None]
"""Takes (kind, data): `plugin.starting`, `plugin.ready`, `plugin.crashed`, `plugin.stopped` and the
steps between (`purra_hosts.process.states.ANNOUNCED`), each once per instance."""


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """A plugin at one moment. Asking never touches the plugin (LIF-009).

    `state`: the instance's (`purra_hosts.process.states.State`), else `stopped`, `down` after a
    failure, or `backoff` while the next start waits for its time. `reason`: the code of the last
    failure, "" without one. `isolation`: per axis, what was achieved. `calls`: slots held;
    `queued`: calls that wait. `restarts`: generations after the first. `started_at_ms`: wall clock
    of the current instance's start, None without one.
    """

    plugin: str
    version: str
    state: str
    reason: str
    pid: int | None
    instance: str | None
    generation: int
    isolation: Mapping[str, str]
    calls: int
    queued: int
    restarts: int
    last_error: WireError | None
    started_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """What a route gets from its host."""

    shared: Shared
    starts: StartGate
    events: EventSink | None
    wall_ms: Callable[[], int]
    restarts: RestartPolicy | None
    chance: Callable[[], float]


class Route:
    """Implements `purra_bridge.ports.channel.Channel` for one plugin. Made by `ProcessHost.add`."""

    def __init__(self, launch: Launch, place: Place) -> None:
        self.launch = launch
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._ring)
        self._queue: deque[Call] = deque()
        self._starting: list[asyncio.Future[None]] = []
        self._instance: Instance | None = None
        self._task: asyncio.Task[None] | None = None
        self._ticket: asyncio.Future[None] | None = None
        self._desired = True
        self._closed = False
        self._failure: WireError | None = None
        self._last_error: WireError | None = None
        self._history = History()
        self._judged: Instance | None = None
        self._again_s = 0.0
        self._ready_s: float | None = None
        self._generation = 0
        self._started_at_ms: int | None = None

    # Channel.

    async def call(self, request: Request, on_item: Callable[[Any], None] | None = None) -> Any:
        """The value of RESULT (`purra_bridge.ports.channel.Channel.call`). Raises `WireError`."""
        call = Call(request, self._loop)
        call.on_item = on_item
        self._submit(call)
        return await call.answer()

    def stream(self, request: Request) -> StreamItems:
        """The items of one call; it is sent with the first `__anext__`."""
        return StreamItems(Call(request, self._loop), self._submit)

    async def upload(self, request: Request, chunks: AsyncIterable[bytes]) -> Any:
        """Sends `chunks`, then gives the value of RESULT. Raises `WireError`."""
        call = Call(request, self._loop)
        self._submit(call)
        return await upload(call, chunks)

    # For operators.

    async def start(self) -> None:
        """Returns when an instance is ready; starts one if there is none, also after a failure.

        Raises `WireError` with the code of the failed start and, in `detail`, the end of stderr.
        Any number of callers share one start. If all of them give up, it is given up.
        """
        if self._closed:
            raise before_sending("not_active", "the host is closed")
        self._desired = True
        self._failure = None
        self._again_s = 0.0
        if self._instance is not None and self._instance.state is State.READY:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._starting.append(waiter)
        self._begin()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._starting:
                self._starting.remove(waiter)
                if not self._starting and not self._queue and self._instance is not None:
                    self._instance.leave("the start was given up", 0.0)
            elif not waiter.cancelled():
                waiter.exception()  # it lost the race; nobody will ask for it any more
            raise

    async def stop(self, drain_s: float | None = None) -> None:
        """Ends the instance in order and returns when it is gone; calls in flight get `drain_s`
        (None: the host's default). Calls fail with `not_active` until `start`. Idempotent.
        """
        self._desired = False
        await self._shut("the plugin is stopped", drain_s)

    def status(self) -> RouteStatus:
        """How it is."""
        instance = self._instance
        failure = self._failure
        down = "stopped" if failure is None else "down"
        if failure is None and self._loop.time() < self._again_s:
            down = "backoff"
        return RouteStatus(
            plugin=self.launch.plugin,
            version=self.launch.version,
            state=down if instance is None else instance.state.value,
            reason="" if failure is None else failure.code,
            pid=None if instance is None else instance.pid,
            instance=None if instance is None else instance.id,
            generation=self._generation,
            isolation=dict.fromkeys(AXES, "none") if instance is None else instance.isolation,
            calls=0 if instance is None else instance.calls,
            queued=len(self._queue),
            restarts=max(0, self._generation - 1),
            last_error=self._last_error,
            started_at_ms=None if instance is None else self._started_at_ms,
        )

    async def close(self, drain_s: float | None = None) -> None:
        """As `stop`, for good."""
        self._closed = True
        self._desired = False
        await self._shut("the host is closed", drain_s)
        self._alarm.cancel()

    # Calls.

    def _submit(self, call: Call) -> None:
        """Sends a call, queues it, or fails it. Never raises. Its time begins here."""
        stop, timeout_s = call.request.stop, call.request.timeout_s
        if timeout_s is not None:
            call.deadline_s = self._loop.time() + timeout_s
        if stop is not None and stop.requested:
            call.fail(before_sending("cancelled", "stopped before it was sent"))
        elif timeout_s is not None and timeout_s <= 0:
            call.fail(before_sending("deadline_exceeded", "no time was left to send it"))
        else:
            call.home = self
            instance = self._instance
            if instance is not None and not self._queue and instance.has_room(call.exclusive):
                instance.send(call)
            else:
                self._enqueue(call)
            call.heed_stop()

    def _enqueue(self, call: Call) -> None:
        limit = self.launch.limits.queue
        if not self._desired:
            what = "closed" if self._closed else "stopped"
            call.fail(before_sending("not_active", f"{self.launch.label} is {what}"))
        elif self._failure is not None and self._loop.time() < self._again_s:
            call.fail(again(self._failure, "no"))
        elif len(self._queue) >= limit:
            call.fail(before_sending("overloaded", f"{limit} calls wait already"))
        else:
            self._queue.append(call)
            self._alarm.by(call.deadline_s)
            self._begin()

    def _serve_queue(self) -> None:
        """First come, first served: an exclusive call waits for its turn, and is not overtaken."""
        instance = self._instance
        while self._queue and instance is not None:
            call = self._queue[0]
            if call.future.done():  # cancelled, and its task has not run yet
                self._queue.popleft()
            elif instance.has_room(call.exclusive):
                instance.send(self._queue.popleft())
            else:
                return

    def _fail_queue(self, error: WireError) -> None:
        queue, self._queue = self._queue, deque()
        for call in queue:
            call.fail(again(error, "no"))
            call.may_send()

    def _ring(self, now_s: float, late_s: float) -> float:
        late = [call for call in self._queue if call.deadline_s <= now_s]
        for call in late:
            self._queue.remove(call)
            call.fail(before_sending("deadline_exceeded", "it waited for a slot until its end"))
            call.may_send()
        if late:
            self._serve_queue()
        due_s = min((call.deadline_s for call in self._queue), default=NEVER)
        if self._instance is None and self._wanted():
            self._begin()
            due_s = min(due_s, NEVER if self._again_s <= now_s else self._again_s)
        return due_s

    # purra_hosts.process.calls.Home, for calls that wait.

    def give_up(self, call: Call, reason: str) -> None:
        """It leaves the queue; the plugin never hears of it (CAN-001)."""
        if call in self._queue:
            self._queue.remove(call)
            self._serve_queue()

    def ask_stop(self, call: Call) -> None:
        """It was not sent, so it ends now."""
        call.fail(before_sending("cancelled", "stopped before it was sent"))
        call.may_send()
        self.give_up(call, "cancelled")

    def consumed(self, call: Call, cost: int) -> None:
        """Nothing has arrived yet."""

    def sendable(self, call: Call) -> bool:
        """Not before it is sent."""
        return False

    def send_chunk(self, call: Call, data: bytes, end: bool) -> None:
        """Never called: nothing is sendable here."""

    # Instances.

    async def _shut(self, why: str, drain_s: float | None) -> None:
        if self._instance is not None:
            usual_s = self._place.shared.timings.drain_s
            self._instance.leave(why, usual_s if drain_s is None else drain_s)
        else:
            self._fail_queue(before_sending("not_active", f"{self.launch.label}: {why}"))
        task = self._task
        if task is not None:
            await outlast(task)
            if not task.cancelled():
                task.result()

    def _begin(self) -> None:
        """Makes the next generation, unless one is alive or its time has not come. It starts when
        the last one is gone.
        """
        if self._instance is not None and self._instance.state in states.LIVE:
            return
        if self._loop.time() < self._again_s:
            self._alarm.by(self._again_s)
            return
        self._generation += 1
        self._started_at_ms = self._place.wall_ms()
        instance = Instance(self.launch, self._generation, self._place.shared, self)
        before, self._instance = self._task, instance
        self._task = self._loop.create_task(
            self._live(instance, before), name=f"purra:{instance.id}"
        )

    async def _live(self, instance: Instance, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            # Never two generations at once: they may hold the same file, port or lock.
            await asyncio.wait((before,))
        ticket = self._ticket = self._place.starts.enter()
        try:
            if instance.state in states.LIVE:
                await ticket
            await instance.run()
        finally:
            self._place.starts.done(ticket)

    def moved(self, instance: Instance, state: State) -> None:
        """`purra_hosts.process.instance.Listener`."""
        if instance is not self._instance:
            self._announce(instance, state)
            return
        if state not in states.STARTS and self._ticket is not None:
            self._place.starts.done(self._ticket)
        if state is State.READY:
            self._failure = None
            self._again_s = 0.0
            self._ready_s = self._loop.time()
            self._resolve(None)
        elif instance.failure is not None and self._judged is not instance:
            self._judged = instance
            self._judge(instance.failure)
        self._announce(instance, state)
        if state is State.READY:
            self._serve_queue()
        elif state not in states.LIVE:
            self._over(state)

    def on_freed(self) -> None:
        """`purra_hosts.process.instance.Listener`."""
        self._serve_queue()

    def _judge(self, error: WireError) -> None:
        """Decides, once per instance, what follows its failure."""
        self._last_error = error
        now_s = self._loop.time()
        ran_s = None if self._ready_s is None else now_s - self._ready_s
        self._ready_s = None
        self._resolve(error)
        if not self._desired:
            return
        self._history, verdict = after_failure(
            self._place.restarts,
            self._history,
            Failure(error.code, ran_s),
            now_s,
            self._place.chance(),
        )
        if isinstance(verdict, Again):
            self._again_s = now_s + verdict.after_s
        elif isinstance(verdict, Quarantine):
            self._again_s = now_s + verdict.for_s
            self._failure = WireError(
                "quarantined",
                f"{self.launch.label}: {verdict.reason}: {error.message}",
                after_ms=int(verdict.for_s * 1000),
                detail=error.detail,
            )
        else:
            self._again_s = NEVER
            self._failure = error

    def _over(self, state: State) -> None:
        """The instance takes no more calls; those that wait go on waiting, or are told why not."""
        if self._failure is not None:
            self._fail_queue(self._failure)
        elif not self._desired:
            error = before_sending("not_active", f"{self.launch.label} was stopped")
            self._resolve(error)
            self._fail_queue(error)
        if state in states.ENDED:
            self._instance = None
            if self._wanted():
                self._begin()

    def _wanted(self) -> bool:
        """Somebody waits for an instance, or there should always be one."""
        if not self._desired or self._again_s == NEVER:
            return False
        return bool(self._queue) or (self.launch.activation == "eager" and self._generation > 0)

    def _resolve(self, error: WireError | None) -> None:
        waiters, self._starting = self._starting, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(again(error, "no"))

    def _announce(self, instance: Instance, state: State) -> None:
        if self._place.events is not None:
            data: dict[str, Any] = {
                "plugin": self.launch.plugin,
                "instance": instance.id,
                "generation": instance.generation,
                "pid": instance.pid,
            }
            if instance.failure is not None:
                data |= {"code": instance.failure.code, "message": instance.failure.message}
            try:
                self._place.events(ANNOUNCED[state], data)
            except Exception as error:  # a listener's fault must not stop a life in mid step
                self._loop.call_exception_handler(
                    {"message": "an event sink of the process host raised", "exception": error}
                )
