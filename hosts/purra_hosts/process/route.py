"""The way to one plugin: what callers hold, whatever instance serves it.

A route outlives its instances. It starts one when it is first called, lets callers wait in a
bounded queue meanwhile, hands each the next free slot in the order they came, and says why when
there is nothing to wait for. Two things are never mixed: what is *desired* (running, or stopped),
which callers and operators set, and what *is* (the fleet), which only happens.

The queue is strictly first come, first served. A call that must run alone waits for an instance
that is empty, and nobody passes it meanwhile: if others did, a steady stream of small calls would
keep every instance busy for ever. What may be started for it is started (`instances`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.isolation.policy import AXES
from purra_hosts.launch import Launch
from purra_hosts.process.alarm import NEVER, Alarm
from purra_hosts.process.calls import Call, StreamItems, upload
from purra_hosts.process.failures import again, before_sending
from purra_hosts.process.figures import Figures
from purra_hosts.process.fleet import EventSink, Fleet, Place
from purra_hosts.process.limits import advertised

__all__ = ["EventSink", "Route", "RouteStatus"]


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """A plugin at one moment. Asking never touches the plugin (LIF-009).

    `state`: the instance's (`purra_hosts.process.states.State`), else `stopped` (also for being
    idle: the next call starts it), `down` after a failure, or `backoff` while the next start waits
    for its time. `reason`: the code of the last failure, "" without one. `pid`, `instance`,
    `generation`, `isolation`, `started_at_ms` (wall clock), `lag_ms` and `rss_bytes` (of the last
    PONG, None before): of the newest instance that serves, else of the newest. `calls`: slots held,
    in all instances; `queued`: calls that wait. `restarts`: generations after the first.
    `instances`: processes that are there or starting. `limits`: what is enforced, by name; what is
    not is "none" (LIM-008). `ended`, `failed`, `mean_ms`, `longest_ms`: calls that have ended, how
    many of them with an error, and how long they took, waiting included (`figures.Figures`).
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
    instances: int = 0
    lag_ms: float | None = None
    rss_bytes: int | None = None
    limits: Mapping[str, int | str] = field(default_factory=dict)
    ended: int = 0
    failed: int = 0
    mean_ms: float = 0.0
    longest_ms: float = 0.0


class Route:
    """Implements `purra_bridge.ports.channel.Channel` for one plugin. Made by `ProcessHost`."""

    def __init__(self, launch: Launch, place: Place, numbers: Iterator[int]) -> None:
        """`numbers`: of the generations; routes of one plugin share them."""
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._ring)
        self._queue: deque[Call] = deque()
        self._starting: list[asyncio.Future[None]] = []
        self._fleet = Fleet(launch, place, self, numbers)
        self._circuit = self._fleet.circuit
        self._figures = Figures()
        self._desired = True
        self._closed = False

    @property
    def launch(self) -> Launch:
        """What the next start runs."""
        return self._fleet.launch

    @property
    def desired(self) -> bool:
        """The plugin is to run; False after `stop`."""
        return self._desired

    # Channel.

    async def call(self, request: Request, on_item: Callable[[Any], None] | None = None) -> Any:
        """The value of RESULT (`purra_bridge.ports.channel.Channel.call`). Raises `WireError`."""
        call = Call(request, self._loop)
        call.on_item = on_item
        self._submit(call)
        answer = call.answer()
        del call  # as there
        return await answer

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
        self._check_open()
        self._desired = True
        self._circuit.close()
        if self._fleet.serving:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._starting.append(waiter)
        self._fleet.begin()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._starting:
                self._starting.remove(waiter)
                self._give_up_start()
            elif not waiter.cancelled():
                waiter.exception()  # it lost the race; nobody will ask for it any more
            raise

    async def stop(self, drain_s: float | None = None) -> None:
        """Ends the plugin in order and returns when it is gone; calls in flight get `drain_s`
        (None: the host's default). Calls fail with `not_active` until `start`. Idempotent.
        """
        self._desired = False
        await self._shut("the plugin is stopped", drain_s)

    async def reload(self, launch: Launch | None = None) -> None:
        """Starts a new generation, from `launch` if it is given, and returns when it serves. Calls
        go to it from that moment; those in flight end where they are, and nobody waits for them.

        Raises `WireError` if it does not start: then what served goes on serving (SHD-007). A
        plugin that is stopped stays so, and starts from `launch` the next time. Raises `ValueError`
        for the launch of another plugin.
        """
        self._check_open()
        launch = launch or self.launch
        if launch.plugin != self.launch.plugin:
            raise ValueError(f"the route of {self.launch.plugin} cannot run {launch.plugin}")
        if not self._desired:
            self._fleet.launch = launch
            return
        await self._fleet.reload(launch)

    def status(self) -> RouteStatus:
        """How it is."""
        fleet, circuit, figures = self._fleet, self._circuit, self._figures
        first = fleet.first
        instance = None if first is None else first.instance
        failure = circuit.failure
        down = "stopped" if failure is None else "down"
        if failure is None and circuit.held(self._loop.time()):
            down = "backoff"
        pulse = None if instance is None else instance.pulse
        return RouteStatus(
            plugin=self.launch.plugin,
            version=self.launch.version,
            state=down if instance is None else instance.state.value,
            reason="" if failure is None else failure.code,
            pid=None if instance is None else instance.pid,
            instance=None if instance is None else instance.id,
            generation=fleet.generation if instance is None else instance.generation,
            isolation=dict.fromkeys(AXES, "none") if instance is None else instance.isolation,
            calls=sum(member.instance.calls for member in fleet.members),
            queued=len(self._queue),
            restarts=max(0, fleet.made - 1),
            last_error=circuit.last_error,
            started_at_ms=None if first is None else first.started_at_ms,
            instances=len(fleet.members),
            lag_ms=None if pulse is None else pulse.lag_ms,
            rss_bytes=None if pulse is None else pulse.rss_bytes,
            limits=advertised(self.launch),
            ended=figures.ended,
            failed=figures.failed,
            mean_ms=round(figures.mean_s * 1000, 3),
            longest_ms=round(figures.longest_s * 1000, 3),
        )

    async def close(self, drain_s: float | None = None) -> None:
        """As `stop`, for good."""
        self._closed = True
        self._desired = False
        await self._shut("the host is closed", drain_s)
        self._alarm.cancel()

    def _check_open(self) -> None:
        if self._closed:
            raise before_sending("not_active", "the host is closed")

    def _give_up_start(self) -> None:
        """Nobody waits for the start any more, so it ends."""
        member = self._fleet.starting
        if not self._starting and not self._queue and member is not None:
            member.instance.leave("the start was given up", 0.0)

    async def _shut(self, why: str, drain_s: float | None) -> None:
        self._fail_all(before_sending("not_active", f"{self.launch.label}: {why}"))
        await self._fleet.shut(why, drain_s)

    # Calls.

    def _submit(self, call: Call) -> None:
        """Sends a call, queues it, or fails it. Never raises. Its time begins here."""
        stop, timeout_s = call.request.stop, call.request.timeout_s
        now_s = self._loop.time()
        call.count_in(self._figures, now_s)
        if timeout_s is not None:
            call.deadline_s = now_s + timeout_s
        if stop is not None and stop.requested:
            call.fail(before_sending("cancelled", "stopped before it was sent"))
        elif timeout_s is not None and timeout_s <= 0:
            call.fail(before_sending("deadline_exceeded", "no time was left to send it"))
        else:
            call.home = self
            instance = None if self._queue else self._fleet.room(call.exclusive)
            if instance is not None:
                instance.send(call)
            else:
                self._enqueue(call)
            call.heed_stop()

    def _enqueue(self, call: Call) -> None:
        limit = self.launch.limits.queue
        refusal = self._circuit.refusal(self._loop.time())
        if not self._desired:
            what = "closed" if self._closed else "stopped"
            call.fail(before_sending("not_active", f"{self.launch.label} is {what}"))
        elif refusal is not None and not self._fleet.serving:
            call.fail(again(refusal, "no"))
        elif len(self._queue) >= limit:
            call.fail(before_sending("overloaded", f"{limit} calls wait already"))
        else:
            self._queue.append(call)
            self._alarm.by(call.deadline_s)
            self._fleet.begin()

    def _serve_queue(self) -> None:
        while self._queue:
            call = self._queue[0]
            if call.future.done():  # cancelled, and its task has not run yet
                self._queue.popleft()
                continue
            instance = self._fleet.room(call.exclusive)
            if instance is None:
                if self._wanted():
                    self._fleet.begin()
                return
            self._queue.popleft()
            instance.send(call)

    def _fail_all(self, error: WireError) -> None:
        """Whoever waits is told why there is nothing to wait for."""
        self._resolve(error)
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
        if self._wanted():
            self._fleet.begin()
            if self._circuit.held(now_s):
                due_s = min(due_s, self._circuit.open_s)
        return min(due_s, self._fleet.ring(now_s))

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

    # purra_hosts.process.fleet.FleetOwner

    def on_ready(self) -> None:
        """Whoever waits for a start has it."""
        self._resolve(None)

    def on_fell(self, error: WireError) -> None:
        """Whoever waits for a start is told, also if there will be another one."""
        self._resolve(error)

    def on_left(self) -> None:
        """Those that wait go on waiting, or are told why not."""
        if self._fleet.serving:
            return
        if self._circuit.failure is not None:
            self._fail_all(self._circuit.failure)
        if self._wanted():
            self._fleet.begin()

    def on_room(self) -> None:
        """The next in the queue may have a slot."""
        if self._queue:
            self._serve_queue()

    def by(self, when_s: float) -> None:
        """Rings at `when_s` or earlier."""
        self._alarm.by(when_s)

    def _wanted(self) -> bool:
        """Somebody waits for an instance, or there should always be one."""
        if not self._desired or self._circuit.down:
            return False
        if self._queue:
            return True
        if self.launch.activation != "eager" or not self._fleet.made:
            return False
        return not self._fleet.serving

    def _resolve(self, error: WireError | None) -> None:
        waiters, self._starting = self._starting, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(again(error, "no"))
