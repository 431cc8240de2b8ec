"""The instances of one route: how many there are, which one is next, and how one follows another.

    serving   READY, and no newer generation has taken over: takes calls
    starting  at most one at a time, so a probe after a quarantine is one start (SUP-011)
    leaving   everything else; takes no calls, and is forgotten when its process is gone

One more is started when somebody waits and there is no room, up to the launch's `instances`. What
is *ending* is waited for before the next one starts: it may hold the same file, port or lock. What
was *succeeded* is not, because it may finish its calls for as long as a newer generation serves the
new ones: that is a reload, the replacement of a tainted instance, and of one whose call ids are
used up.

Reload: the successor runs its start beside the one that serves. If it becomes ready, both change
their roles in one step; if it fails, nothing has happened, and its failure is not held against the
version that serves (SHD-006, SHD-007).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Launch
from purra_hosts.process import states
from purra_hosts.process.alarm import NEVER
from purra_hosts.process.circuit import Circuit
from purra_hosts.process.failures import again, before_sending
from purra_hosts.process.gate import StartGate, outlast
from purra_hosts.process.instance import SUCCEEDED, Instance, Shared
from purra_hosts.process.states import ANNOUNCED, State
from purra_hosts.restarts import RestartPolicy

__all__ = ["EventSink", "Fleet", "FleetOwner", "Member", "Place"]

EventSink = Callable[[str, Mapping[str, Any]], None]
"""Takes (kind, data): `plugin.starting`, `plugin.ready`, `plugin.crashed`, `plugin.stopped` and the
steps between (`purra_hosts.process.states.ANNOUNCED`), each once per instance; `plugin.denied` for
what a plugin asked for and was not granted."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a route gets from its host."""

    shared: Shared
    starts: StartGate
    events: EventSink | None
    wall_ms: Callable[[], int]
    restarts: RestartPolicy | None
    chance: Callable[[], float]


class FleetOwner(Protocol):
    """The route. Called on the loop, in the middle of a step."""

    @property
    def desired(self) -> bool:
        """The plugin is to run."""

    def on_ready(self) -> None:
        """One more instance serves; before it is announced."""

    def on_fell(self, error: WireError) -> None:
        """An instance failed; the circuit knows of it."""

    def on_left(self) -> None:
        """An instance takes no more calls."""

    def on_room(self) -> None:
        """There may be room for a call."""

    def by(self, when_s: float) -> None:
        """Something here is due at that time: `Fleet.ring` then."""


class Member:
    """One instance and its place in the fleet. Implements `instance.Listener`."""

    __slots__ = (
        "_fleet",
        "beside",
        "instance",
        "judged",
        "quiet_s",
        "ready_s",
        "retired",
        "started_at_ms",
        "succeeds",
        "task",
        "ticket",
        "waiter",
    )

    def __init__(self, fleet: Fleet, launch: Launch, generation: int) -> None:
        self._fleet = fleet
        self.instance = Instance(launch, generation, fleet.place.shared, self)
        self.started_at_ms = fleet.place.wall_ms()
        self.ready_s: float | None = None
        self.quiet_s = 0.0
        self.judged = False
        self.retired = False
        self.beside = False
        self.succeeds: tuple[Member, ...] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.ticket: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def serving(self) -> bool:
        """Takes calls."""
        return self.instance.state is State.READY and not self.retired

    @property
    def starting(self) -> bool:
        """On its way."""
        return self.instance.state in states.STARTS

    def moved(self, instance: Instance, state: State) -> None:
        self._fleet.moved(self, state)

    def on_freed(self) -> None:
        self._fleet.freed(self)

    def on_used_up(self) -> None:
        self._fleet.replace(self)

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        self._fleet.tell(self, kind, data)


class Fleet:
    """See the head of this file. `launch` is what the next start runs. `generation`: the number of
    the last instance that was made; `made`: how many were made here.
    """

    def __init__(
        self, launch: Launch, place: Place, owner: FleetOwner, numbers: Iterator[int]
    ) -> None:
        """`numbers`: of the generations, shared by all routes of one plugin."""
        self.launch = launch
        self.place = place
        self.circuit = Circuit(launch.label, place.restarts, place.chance)
        self.generation = 0
        self.made = 0
        self.members: list[Member] = []
        self._numbers = numbers
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reloading = asyncio.Lock()
        self._faults: list[BaseException] = []

    # Which there are.

    @property
    def serving(self) -> list[Member]:
        """Those that take calls."""
        return [member for member in self.members if member.serving]

    @property
    def starting(self) -> Member | None:
        """The one on its way."""
        return next((member for member in self.members if member.starting), None)

    @property
    def first(self) -> Member | None:
        """The one that stands for all: the newest that serves, else that starts, else that is."""
        present = [m for m in self.members if m.instance.state not in states.ENDED]
        return max(
            present,
            key=lambda member: (member.serving, member.starting, member.instance.generation),
            default=None,
        )

    def room(self, exclusive: bool) -> Instance | None:
        """The least busy instance that may be sent one more call now."""
        best: Instance | None = None
        for member in self.members:
            instance = member.instance
            if member.retired or not instance.has_room(exclusive):
                continue
            if best is None or instance.calls < best.calls:
                best = instance
        return best

    # How they come.

    def begin(self) -> None:
        """Starts one more, unless one is on its way, there are enough, or its time has not come."""
        if self.starting is not None or len(self.serving) >= self.launch.limits.instances:
            return
        if self.circuit.held(self._loop.time()):
            self._owner.by(self.circuit.open_s)
            return
        self._make(self.launch)

    async def reload(self, launch: Launch) -> None:
        """Returns when a new generation has taken over. Raises `WireError` if it did not start:
        then nothing has changed.
        """
        async with self._reloading:
            member = self._make(launch, tuple(self.members))
            waiter = member.waiter = self._loop.create_future()
            try:
                await waiter
            except asyncio.CancelledError:
                if member.waiter is not None:
                    member.waiter = None
                    member.instance.leave("the reload was given up", 0.0)
                elif not waiter.cancelled():
                    waiter.exception()  # it lost the race; nobody will ask for it any more
                raise

    def replace(self, member: Member) -> None:
        """A successor for one instance, of the same launch."""
        if member.serving and self.starting is None:
            self._make(member.instance.launch, (member,))

    def _make(self, launch: Launch, succeeds: tuple[Member, ...] | None = None) -> Member:
        self.made += 1
        self.generation = next(self._numbers)
        member = Member(self, launch, self.generation)
        member.succeeds = succeeds
        self.members.append(member)
        task = self._loop.create_task(self._live(member), name=f"purra:{member.instance.id}")
        member.task = task
        task.add_done_callback(lambda _: self._forget(member))
        return member

    async def _live(self, member: Member) -> None:
        ending = [other.task for other in self._ending() if other is not member and other.task]
        if ending:
            await asyncio.wait(ending)
        ticket = member.ticket = self.place.starts.enter()
        try:
            if member.instance.state in states.LIVE:
                await ticket
            await member.instance.run()
        finally:
            self.place.starts.done(ticket)

    def _ending(self) -> Iterator[Member]:
        for member in self.members:
            leaves = member.beside and member.instance.state is State.DRAINING
            if member.instance.state not in states.LIVE and not leaves:
                yield member

    def _forget(self, member: Member) -> None:
        self.members.remove(member)
        task = member.task
        if task is not None and not task.cancelled() and (fault := task.exception()) is not None:
            self._faults.append(fault)

    # What happens to them.

    def moved(self, member: Member, state: State) -> None:
        """An instance has changed its state."""
        instance = member.instance
        if state not in states.STARTS and member.ticket is not None:
            self.place.starts.done(member.ticket)
        if state is State.READY:
            self._became_ready(member)
        elif instance.failure is not None and not member.judged:
            member.judged = True
            self._judge(member, instance.failure)
        elif state not in states.LIVE and member.waiter is not None:
            self._settle(member, before_sending("not_active", "the start was stopped"))
        # Tainted, or it asked to end: what it still does is no reason to wait with the next one.
        member.beside = member.beside or state is State.TAINTED or instance.asked_to_end
        self._announce(member, state)
        if state is State.READY:
            self._end_retired()  # only now, so that nobody reads of an end before its successor
            self._owner.on_room()
        elif state not in states.LIVE:
            self._owner.on_left()

    def freed(self, member: Member) -> None:
        """An instance has a free slot, or lets go of its hold."""
        if not member.instance.busy:
            member.quiet_s = self._loop.time()
            if self.launch.idle_s:
                self._owner.by(member.quiet_s + self.launch.idle_s)
        self._owner.on_room()

    def ring(self, now_s: float) -> float:
        """Ends what has had nothing to do for too long; the next time something will be."""
        idle_s = self.launch.idle_s
        if not idle_s:
            return NEVER
        serving = self.serving
        spare = len(serving) - (self.launch.activation == "eager")
        due_s = NEVER
        for member in serving:
            if member.instance.busy or spare <= 0:
                continue
            if member.quiet_s + idle_s <= now_s:
                spare -= 1
                member.instance.leave("idle", self.place.shared.timings.drain_s)
            else:
                due_s = min(due_s, member.quiet_s + idle_s)
        return due_s

    def _became_ready(self, member: Member) -> None:
        member.ready_s = member.quiet_s = self._loop.time()
        if self.launch.idle_s:
            self._owner.by(member.quiet_s + self.launch.idle_s)
        self.circuit.close()
        if member.succeeds is not None:
            self._take_over(member, member.succeeds)
        self._owner.on_ready()

    def _take_over(self, member: Member, others: tuple[Member, ...]) -> None:
        self.launch = member.instance.launch
        member.succeeds = None
        for other in others:
            other.retired = other.beside = True
        self._settle(member, None)

    def _end_retired(self) -> None:
        for member in tuple(self.members):
            if member.retired and member.instance.state in states.LIVE:
                member.instance.leave(SUCCEEDED, self.place.shared.timings.retire_s)

    def _judge(self, member: Member, error: WireError) -> None:
        """Decides, once per instance, what follows its failure."""
        if member.succeeds is not None:
            self.circuit.last_error = error
            self._settle(member, error)
            return
        if member.retired:
            return
        self.circuit.last_error = error
        if self._owner.desired:
            now_s = self._loop.time()
            ran_s = None if member.ready_s is None else now_s - member.ready_s
            self.circuit.fell(error, ran_s, now_s)
        self._owner.on_fell(error)

    def _settle(self, member: Member, error: WireError | None) -> None:
        """Tells whoever waits for a successor."""
        waiter, member.waiter = member.waiter, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(again(error, "no"))

    # How they go.

    async def shut(self, why: str, drain_s: float | None) -> None:
        """Ends all of them in order and returns when they are gone. Outlasts its own cancellation.
        Raises a fault of this host, if one of the lives ended with it.
        """
        usual_s = self.place.shared.timings.drain_s
        for member in tuple(self.members):
            member.instance.leave(why, usual_s if drain_s is None else drain_s)
        tasks = [member.task for member in self.members if member.task is not None]
        if tasks:
            await outlast(asyncio.ensure_future(_all(tasks)))
        if self._faults:
            raise self._faults.pop()

    # What is told.

    def tell(self, member: Member, kind: str, data: Mapping[str, Any]) -> None:
        """Hands an event about an instance to the host's sink."""
        if self.place.events is None:
            return
        instance = member.instance
        about = {
            "plugin": instance.launch.plugin,
            "instance": instance.id,
            "generation": instance.generation,
            "pid": instance.pid,
        }
        try:
            self.place.events(kind, {**about, **data})
        except Exception as error:  # a listener's fault must not stop a life in mid step
            self._loop.call_exception_handler(
                {"message": "an event sink of the process host raised", "exception": error}
            )

    def _announce(self, member: Member, state: State) -> None:
        instance = member.instance
        data: dict[str, Any] = {}
        if instance.failure is not None:
            data = {"code": instance.failure.code, "message": instance.failure.message}
        elif instance.leaving:
            data = {"reason": instance.leaving}
        self.tell(member, ANNOUNCED[state], data)


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
