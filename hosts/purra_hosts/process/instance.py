"""One generation of one plugin: from its start to its reaping.

The life is one task (`run`), which belongs to the supervisor and to no caller: a caller that gives
up never takes a process down with it, nor leaves one behind. The task does what takes time (start,
wait, the stop ladder); everything that reacts is a callback, and every change of state goes through
`_move` and the table.

What must hold, checked by the table or by the order of statements here:

1. Only READY takes calls. Leaving READY and failing the calls in flight is one step, `_fault`.
2. The first cause is the one that is told. Later ones are its consequences.
3. All bytes that the worker sent are handled before its calls fail, whichever of the end of the
   channel, the exit of the process, or a failed write is noticed first.
4. When `run` ends, in whatever way, the process is gone or declared abandoned, its home removed,
   its descriptors closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from purra_bridge.wire import events as said
from purra_bridge.wire.codec import ValueRefused
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.session import Session
from purra_hosts.isolation.folders import Place, unused
from purra_hosts.isolation.machine import Findings, Prober
from purra_hosts.isolation.policy import AXES, Jail
from purra_hosts.launch import Launch
from purra_hosts.process import failures, handshake, states
from purra_hosts.process.alarm import NEVER, Alarm
from purra_hosts.process.callbacks import Callbacks, Service
from purra_hosts.process.calls import Call
from purra_hosts.process.inflight import Bounds, InFlight
from purra_hosts.process.logs import Logs, LogSink
from purra_hosts.process.patience import Patience
from purra_hosts.process.program import Birth, command_of, program_of
from purra_hosts.process.pulse import Pulse
from purra_hosts.process.pump import Pump
from purra_hosts.process.spawn import Exit, Pipes, spawn
from purra_hosts.process.staging import Folders, in_steps, removing
from purra_hosts.process.states import State, Step
from purra_hosts.process.strays import killing
from purra_hosts.process.timings import Timings
from purra_hosts.process.vessel import Vessel

__all__ = ["SUCCEEDED", "Instance", "Listener", "Shared"]

SUCCEEDED: Final = "succeeded"
"""The reason to leave when a newer generation takes over: what could not end may be asked again."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all instances of one host have in common."""

    folders: Folders
    timings: Timings
    log_sink: LogSink | None
    token: Callable[[], str]
    prober: Prober
    services: Mapping[str, Service]


class Listener(Protocol):
    """The route that the instance serves. Called on the loop, in the middle of a step."""

    def moved(self, instance: Instance, state: State) -> None:
        """The instance has changed its state."""

    def on_freed(self) -> None:
        """The instance may have room for a call, or nothing to do."""

    def on_used_up(self) -> None:
        """Its call ids come to their end: another one should take over."""

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Something about this instance for the host's event sink."""


class Instance:
    """One process and its channel. Make it, then run `run` as a task of the supervisor."""

    def __init__(self, launch: Launch, generation: int, shared: Shared, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        timings = shared.timings
        self.launch = launch
        self.generation = generation
        self.id = f"{launch.plugin}-{generation}-{shared.token()}"
        self.state = State.STARTING
        self.failure: WireError | None = None
        self.isolation = dict.fromkeys(AXES, "none")
        self._jail = Jail(launch, Findings(sys.platform == "linux", 0, None))
        self.leaving = ""
        self.asked_to_end = False
        self.held = False
        self._loop = loop
        self._shared = shared
        self._timings = timings
        self._listener = listener
        self._child: Vessel | None = None
        self._home: Path | None = None
        self._session = Session("host", handshake.own_limits(launch))
        self._pump = Pump(loop, self._session, self)
        self._alarm = Alarm(loop, self._ring)
        self.pulse = Pulse(timings, self._session, self._pump)
        bounds = Bounds(timings.grace_s, launch.limits.output_bytes)
        self._work = InFlight(loop, self._session, self._pump, self._alarm, bounds)
        self._callbacks = Callbacks(self, self._session, self._pump, shared.services)
        self._logs = Logs(
            {"plugin": launch.plugin, "instance": self.id, "generation": generation},
            shared.log_sink,
            launch.secrets.values(),
        )
        self._poke = asyncio.Event()
        self._patience = Patience(timings)
        self._settle_s = NEVER
        self._drain_until_s = NEVER
        self._exit_by_itself_s = 0.0
        self._condemned = False
        self._born_s = loop.time()

    # For the route.

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._child is None or self._child.exit is not None else self._child.pid

    @property
    def calls(self) -> int:
        """Calls that hold a slot."""
        return len(self._work)

    @property
    def busy(self) -> bool:
        """There are calls, or the plugin wants to be kept (STATUS.hold)."""
        return self.held or len(self._work) > 0

    def has_room(self, exclusive: bool) -> bool:
        """A call may be sent now."""
        return (
            self.state is State.READY and self._settle_s == NEVER and self._work.has_room(exclusive)
        )

    def send(self, call: Call) -> None:
        """Sends a call for which there is room."""
        self._work.send(call)

    def leave(self, reason: str, drain_s: float) -> None:
        """Ends it in order: calls in flight get `drain_s`. Repeated, it can only be sooner."""
        self.leaving = self.leaving or reason
        self._drain_until_s = min(self._drain_until_s, self._loop.time() + drain_s)
        if self.state in (State.READY, State.TAINTED):
            self._session.drain(reason, int(drain_s * 1000))
            self._pump.kick()
        if self.state in states.LIVE or self.state is State.TAINTED:
            self._move(Step.LEAVE)
        self._poke.set()

    async def run(self) -> None:
        """The whole life. Returns when the process is gone and nothing of it is left.

        Raises only `CancelledError`, when the loop itself is going down; then the process was
        killed without waiting.
        """
        try:
            self._listener.moved(self, self.state)
            await self._start()
            await self._until(lambda: self.state not in states.LIVE)
            await self._end()
            await self._callbacks.close()
            await in_steps(self._leftovers())
        except BaseException:  # the loop is going down, or a fault of ours: no child may stay
            self._cut_off()
            raise
        finally:
            self._alarm.cancel()
            self._pump.close()
            self._logs.close()
            if self._child is not None:
                self._child.close()

    # Start.

    async def _start(self) -> None:
        launch = self.launch
        if self.state is not State.STARTING:
            return  # a stop came first, and wins
        if launch.isolation.level != "none":
            self._jail = Jail(launch, await self._shared.prober.findings())
            if self.state is not State.STARTING:
                return
        if missing := self._jail.missing():
            self._fault(failures.isolation_missing(launch, missing))
            return
        try:
            self._child, pipes = self._open()
        except (OSError, ValueError) as error:
            self._fault(failures.spawn_failed(launch, program_of(launch), error))
            return
        self._logs.attach(self._loop, pipes.stdout, pipes.stderr)
        self._alarm.by(self._patience.spawned(self._loop.time()))
        self._move(Step.SPAWNED)
        self._child.watch(self._loop, self._on_exit)
        await self._pump.connect(pipes.channel)

    def _open(self) -> tuple[Vessel, Pipes]:
        launch, folders = self.launch, self._shared.folders
        if launch.kind == "inproc":
            # Loaded for those who want it: it brings the plugins' SDK into this process.
            from purra_hosts.process.thread import start_thread

            return start_thread(launch, self.generation)
        self._home = folders.home(self.id)
        ours = (None, None) if launch.entry is None else (folders.staged(), folders.boot())
        birth = Birth(self._home, self.generation, self._shared.token(), *ours)
        return spawn(command_of(launch, birth))

    # The end.

    async def _end(self) -> None:
        """The ladder: drain, half-close, TERM, KILL, abandon; each with its time."""
        timings = self._timings
        while self.state is State.DRAINING and not self._work.idle:
            left_s = self._drain_until_s - self._loop.time()
            if left_s <= 0:
                break
            await self._poked(left_s)
        self._pump.catch_up()
        if self.state is State.DRAINING:
            again = "same" if self.leaving == SUCCEEDED else None
            ended = f"{self.launch.label} was ended before the call was"
            self._fail_calls(WireError("retired", ended, retry=again))
            self._move(Step.DRAINED)
        if self.state is State.STOPPING:
            self._pump.half_close()
            await self._until(self._over, timings.exit_s)
        else:
            await self._until(self._over, self._exit_by_itself_s)
        while not self._gone() and self.state not in states.ENDED:
            condemned = self._condemned and self.state is State.FAILED
            self._move(Step.CONDEMN if condemned else Step.DEAF)
            if self.state is State.TERM:
                self._signal(signal.SIGTERM)
                await self._until(self._gone, timings.term_s)
            elif self.state is State.KILL:
                self._signal(signal.SIGKILL)
                await self._until(self._gone, timings.kill_s)
        if self.state is State.ABANDONED:
            what = "its thread" if self.pid is None else f"process {self.pid}"
            self._logs.note("error", f"{what} does not end, whatever was done")
        else:
            await in_steps(self._strays())
            self._move(Step.GONE)

    def _gone(self) -> bool:
        return self._child is None or self._child.exit is not None

    def _over(self) -> bool:
        return self._condemned or self._gone()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal_group(number)

    def _cut_off(self) -> None:
        """The loop is going down: no more waiting, but no child left either (SHD-005)."""
        if self._child is not None:
            self._child.kill_now()
        if self.state in states.LIVE or self.state in (State.DRAINING, State.STOPPING):
            self._fault(WireError("closed", f"{self.launch.label}: the host was cut off"))
        if self._gone() and self.state not in states.ENDED:
            self._move(Step.GONE)
        for _ in (*self._strays(), *self._leftovers()):
            pass

    def _strays(self) -> Iterator[None]:
        """Ends what it left behind outside its group, unless it could start nothing."""
        bound = self.isolation["tree"].startswith("enforced")
        if bound or self._home is None or self._child is None:
            return iter(())
        return killing(self._home, self._child.pid, self._loop.time() - self._born_s)

    def _leftovers(self) -> Iterator[None]:
        return iter(()) if self._home is None else removing(self._home)

    async def _poked(self, seconds: float) -> None:
        self._poke.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._poke.wait()
        except TimeoutError:
            pass

    async def _until(self, done: Callable[[], bool], seconds: float = NEVER) -> None:
        """Returns when `done`, or after `seconds`."""
        end_s = self._loop.time() + seconds
        while not done() and (left_s := end_s - self._loop.time()) > 0:
            await self._poked(left_s)

    # Changes of state.

    def _move(self, step: Step) -> None:
        self.state = states.after(self.state, step)
        self._poke.set()
        self._listener.moved(self, self.state)

    def _fault(self, error: WireError, step: Step = Step.FAULT, *, patience_s: float = 0.0) -> None:
        """It cannot go on: no more calls, and those in flight fail, in one step.

        `patience_s`: how long it may take to end by itself.
        """
        if self.failure is None:
            self.failure = error
            self._logs.note("error", error.message)
        self._exit_by_itself_s = patience_s
        self._settle_s = NEVER
        self._patience.over()
        self._move(step)
        self._fail_calls(error)

    def _fail_calls(self, error: WireError) -> None:
        self._pump.flush()
        self._work.fail_all(error)
        self._callbacks.stop()

    def _crash(self, how: Exit | None) -> WireError:
        self._logs.drain()
        where = {"instance": self.id, "generation": self.generation}
        return failures.crash(self.launch, where, how, self._logs.tail())

    def _with_tail(
        self, code: str, message: str, more: Mapping[str, Any] = MappingProxyType({})
    ) -> WireError:
        """A failure of this instance, with what it last wrote."""
        self._logs.drain()
        detail = {
            **more,
            "plugin": self.launch.plugin,
            "instance": self.id,
            "generation": self.generation,
            "stderr": self._logs.tail(),
        }
        return WireError(code, f"{self.launch.label}: {message}", detail=detail)

    # Time.

    def _ring(self, now_s: float, late_s: float) -> float:
        if late_s > self._timings.lag_s:
            self._pump.catch_up()
            self._patience.forgive(now_s)
            self._work.forgive(now_s)
        due_s = self._work.ring(now_s)
        if self._patience.due_s <= now_s:
            self._start_over()
        if self._settle_s <= now_s:
            self._settle_s = NEVER
            self._fault(self._crash(None))
        return min(due_s, self._patience.due_s, self._settle_s, self._pulse(now_s, late_s))

    def _start_over(self) -> None:
        self._patience.over()
        if self.state is State.HANDSHAKE:
            said_s = f"no HELLO within {self._timings.hello_s:g} s"
            self._fault(self._with_tail("handshake_timeout", said_s))
        elif self.state is State.INIT:
            self._fault(self._with_tail("start_timeout", "it did not become ready in time"))

    def _pulse(self, now_s: float, late_s: float) -> float:
        if self.state is not State.READY:
            return NEVER
        wrong = self.pulse.look(now_s, late_s)
        if wrong:
            self._fault(self._with_tail("unresponsive", wrong), Step.SILENT)
            return NEVER
        return self.pulse.due_s

    # purra_hosts.process.inflight.InFlightOwner

    def on_freed(self) -> None:
        """A slot is free: for the route, or for whoever waits for the last call."""
        if self.state is State.READY:
            self._listener.on_freed()
        elif self._work.idle:
            self._poke.set()

    def on_used_up(self) -> None:
        """The call ids come to their end (protocol, frame)."""
        self._listener.on_used_up()

    def on_deaf(self, call: Call) -> None:
        """Tainted: it takes no more calls, finishes the others, and is ended."""
        if self.state is State.READY:
            what = f"{call.request.adapter} did not end after its cancel"
            self.failure = self._with_tail("tainted", what)
            self._move(Step.TAINT)
            self.leave("tainted", self._timings.drain_s)
        self._poke.set()

    def on_overdue(self, call: Call) -> None:
        """Killed at once, so that nothing it does can land later (protocol, messages, 2)."""
        self._condemned = True
        self._signal(signal.SIGKILL)
        what = f"killed because {call.request.adapter} passed its time and may write"
        if self.state in (State.READY, State.DRAINING, State.STOPPING):
            self._fault(self._with_tail("tainted", what))

    # purra_hosts.process.callbacks.CallbacksOwner

    def open_call(self, call_id: int) -> Call | None:
        """The call in flight that has this id."""
        return self._work.get(call_id)

    def on_denied(self, data: Mapping[str, Any], text: str) -> None:
        """To the audit, and to the author's log."""
        self._logs.note("warning", text)
        self._listener.tell("plugin.denied", data)

    # purra_hosts.process.pump.PumpOwner, and the child's end

    def on_events(self, events: Sequence[Any]) -> None:
        """Handles what the worker said, in order."""
        for event in events:
            _HANDLERS[type(event)](self, event)

    def on_violation(self, violation: ProtocolViolation) -> None:
        """One instance pays for it, nobody else (FRM-013)."""
        self._pump.close()
        if self.state in states.LIVE or self.state is State.DRAINING:
            self._fault(
                self._with_tail(
                    "protocol_violation", violation.message, {"reason": violation.reason}
                )
            )

    def on_eof(self) -> None:
        """The channel has ended. A moment later the exit status is usually known."""
        if not self._gone() and (self.state in states.LIVE or not self._work.idle):
            self._settle_s = self._loop.time() + self._timings.settle_s
            self._alarm.by(self._settle_s)

    def on_room(self) -> None:
        """The channel takes output again."""
        self._work.credited(0)
        self.on_freed()

    def _on_exit(self, how: Exit) -> None:
        self._pump.read_last_words()
        if self.state in states.LIVE or (self.state is State.DRAINING and not self._work.idle):
            self._fault(self._crash(how))
        self._poke.set()

    # What the worker says. Calls first: they are nearly everything.

    def _on_returned(self, event: said.Returned) -> None:
        self._work.returned(event.id, event.value)

    def _on_failed(self, event: said.Failed) -> None:
        self._work.failed(event.id, event.error)

    def _on_items(self, event: said.Items) -> None:
        self._work.items(event.id, event.values, event.cost)

    def _on_chunk(self, event: said.Chunk) -> None:
        self._work.items(event.id, (event.data,), event.cost)

    def _on_credited(self, event: said.Credited) -> None:
        self._work.credited(event.id)

    def _on_hello(self, event: said.Hello) -> None:
        if self.state is not State.HANDSHAKE:
            return  # it is being stopped
        version = handshake.check_hello(self.launch, event.body)
        if isinstance(version, WireError):
            self._refuse(version)
            return
        try:
            limits = self._session.negotiate(event.body.get("limits", {}))
            agreed = {"proto": version, "limits": limits}
            jail = self._policy(event.body)
            self._session.welcome(
                handshake.welcome(
                    self.launch, self.id, self.generation, agreed, jail, self._timings.ping_s
                )
            )
        except ProtocolViolation as violation:
            self.on_violation(violation)
            return
        except (ValueRefused, WireError) as error:
            # The host's own configuration cannot be sent: too large, or no strict value.
            unsent = WireError("invalid_argument", f"{self.launch.label}: WELCOME: {error}")
            self._refuse(unsent)
            return
        self._work.serve(self, limits["inflight"])
        self._alarm.by(self._patience.welcomed(self._loop.time()))
        self._move(Step.WELCOMED)

    def _policy(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        folders = self._shared.folders
        place = Place(str(folders.root), str(folders.staged_path), str(self._home))
        for path in unused(self.launch):
            self._logs.note("warning", f"the grant fs.write {path} names nothing, so it is none")
        return self._jail.policy(place, hello.get("pid", 0), os.getpid())

    def _on_ready(self, event: said.Ready) -> None:
        if self.state is not State.INIT:
            return  # it is being stopped
        error = handshake.check_ready(self.launch, event.body)
        if error is not None:
            self._refuse(error)
            return
        self.isolation = self._jail.achieved(event.body.get("isolation", {}))
        self._patience.over()
        self._alarm.by(self.pulse.begin())
        self._move(Step.OFFERED)

    def _refuse(self, error: WireError) -> None:
        self._session.refuse(error)
        self._fault(error, patience_s=self._timings.exit_s)
        self._pump.half_close()

    def _on_refused(self, event: said.Refused) -> None:
        """It gives up itself: its own words, and what it wrote, are the failure."""
        if self.state in states.LIVE or self.state is State.DRAINING:
            theirs = event.error
            error = self._with_tail(theirs.code, theirs.message, theirs.detail)
            error.origin, error.executed, error.retry = theirs.origin, "no", theirs.retry
            self._fault(error, patience_s=self._timings.exit_s)

    def _on_ping(self, event: said.Ping) -> None:
        self._session.pong(event.token, 0, len(self._work), 0)

    def _on_pong(self, event: said.Pong) -> None:
        self._alarm.by(self.pulse.answered(event.body))

    def _on_status(self, event: said.Status) -> None:
        """While it starts it may ask for more time, up to a bound (H04); later, to be kept though
        it has nothing to do.
        """
        hold = event.body.get("hold")
        if hold is not None and hold is not self.held:
            self.held = hold
            self.on_freed()
        extend_ms = event.body.get("extend_ms", 0)
        if self.state is State.INIT and extend_ms:
            self._alarm.by(self._patience.extended(self._loop.time(), extend_ms / 1000))

    def _on_drain(self, event: said.Drain) -> None:
        """It wants to end: no more calls, and it gets the time it asks for, up to ours."""
        if self.state is State.INIT:
            early = self._with_tail("closed", "it asked to end before it was ready")
            self._fault(early, patience_s=self._timings.exit_s)
            return
        self.asked_to_end = True
        deadline_ms = event.body.get("deadline_ms")
        drain_s = self._timings.drain_s
        self.leave("asked", drain_s if deadline_ms is None else min(drain_s, deadline_ms / 1000))

    def _on_log(self, event: said.Log) -> None:
        self._logs.frame(event.body)

    def _on_called(self, event: said.Called) -> None:
        self._callbacks.called(event)

    def _on_cancelled(self, event: said.Cancelled) -> None:
        self._callbacks.cancelled(event)

    def _ignore(self, event: Any) -> None:
        """Nothing to do: the session has counted it."""


_HANDLERS: Final[dict[type, Callable[[Instance, Any], None]]] = {
    said.Returned: Instance._on_returned,
    said.Failed: Instance._on_failed,
    said.Items: Instance._on_items,
    said.Chunk: Instance._on_chunk,
    said.Credited: Instance._on_credited,
    said.Hello: Instance._on_hello,
    said.Ready: Instance._on_ready,
    said.Refused: Instance._on_refused,
    said.Ping: Instance._on_ping,
    said.Pong: Instance._on_pong,
    said.Status: Instance._on_status,
    said.Drain: Instance._on_drain,
    said.Log: Instance._on_log,
    said.Called: Instance._on_called,
    said.Cancelled: Instance._on_cancelled,
    said.Changed: Instance._ignore,
}
