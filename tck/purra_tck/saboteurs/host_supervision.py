"""Hosts that do not notice, do not tell, or do not clean up when an instance ends."""

from __future__ import annotations

import asyncio
import os
import signal
import weakref
from typing import Any

from purra_bridge.wire.codec import decode
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.frames import FrameReader
from purra_hosts.process import failures
from purra_hosts.process.fleet import Fleet, Member
from purra_hosts.process.inflight import InFlight
from purra_hosts.process.instance import Instance
from purra_hosts.process.pulse import Pulse
from purra_hosts.process.pump import Pump
from purra_hosts.process.route import Route
from purra_hosts.process.spawn import Exit
from purra_hosts.process.states import State, Step
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _bare_eof(patch: Patch) -> None:
    def crash(_launch: Any, _where: Any, how: Exit | None, _stderr: str) -> WireError:
        return WireError("closed" if how is None else "crashed", "EOFError")

    patch(failures, "crash", crash)


def _parses_partial(patch: Patch) -> None:
    end = Pump._end

    def eager(self: Pump) -> None:
        if not self.ended and self._session._reader.inside_frame:
            self._owner.on_violation(ProtocolViolation("bad_frame", "a short frame"))
        end(self)

    patch(Pump, "_end", eager)


def _active_too_early(patch: Patch) -> None:
    on_hello = Instance._on_hello

    def hasty(self: Instance, event: Any) -> None:
        on_hello(self, event)
        if self.state is State.INIT:
            self._move(Step.OFFERED)

    patch(Instance, "on_events", _handling({"Hello": hasty}))


def _handling(changed: dict[str, Any]) -> Any:
    """`on_events` with other handlers for some events."""
    usual = Instance.on_events

    def on_events(self: Instance, events: Any) -> None:
        for event in events:
            handler = changed.get(type(event).__name__)
            if handler is None:
                usual(self, [event])
            else:
                handler(self, event)

    return on_events


def _lazy(patch: Patch) -> None:
    patch(Instance, "_on_exit", lambda self, how: None)
    patch(Instance, "on_eof", lambda self: None)


def _exit_0_is_fine(patch: Patch) -> None:
    on_exit = Instance._on_exit

    def trusting(self: Instance, how: Exit) -> None:
        if how.status == 0 and self.state is State.READY:
            self.leave("it has ended", 0.0)
        on_exit(self, how)

    patch(Instance, "_on_exit", trusting)


def _replays(patch: Patch) -> None:
    fail_all = InFlight.fail_all

    def again(self: InFlight, error: WireError) -> None:
        if error.code == "crashed" and isinstance(self._owner, Instance):
            member: Any = self._owner._listener
            route: Route = member._fleet._owner
            for call in self._open.values():
                call.home = route
            route._queue.extendleft(self._open.values())
            self._open.clear()
        fail_all(self, error)

    patch(InFlight, "fail_all", again)


def _drain_waits_for_the_dead(patch: Patch) -> None:
    on_exit, on_eof = Instance._on_exit, Instance.on_eof

    def patient(self: Instance, *how: Any) -> None:
        if self.state is not State.DRAINING:
            on_exit(self, *how) if how else on_eof(self)

    patch(Instance, "_on_exit", patient)
    patch(Instance, "on_eof", patient)


def _half_open(patch: Patch) -> None:
    patch(Instance, "on_eof", lambda self: None)


def _no_heartbeat(patch: Patch) -> None:
    look = Pulse.look

    def shallow(self: Pulse, now_s: float, late_s: float) -> str:
        look(self, now_s, late_s)
        self.due_s = now_s + 1.0
        return ""  # the process is there, so it must be well

    patch(Pulse, "look", shallow)


def _reads_old_pipe(patch: Patch) -> None:
    made: list[weakref.ref[Instance]] = []
    init = Instance.__init__
    close = Pump.close

    def remember(self: Instance, *arguments: Any) -> None:
        init(self, *arguments)
        made.append(weakref.ref(self))

    def linger(self: Pump) -> None:
        channel, reader = self._socket, FrameReader(1 << 20)
        if channel is not None and channel.fileno() >= 0:
            old = channel.dup() if hasattr(channel, "dup") else None
            if old is not None:
                self._loop.add_reader(old, lambda: _overhear(old, reader, made))
        close(self)

    patch(Instance, "__init__", remember)
    patch(Pump, "close", linger)


def _overhear(old: Any, reader: FrameReader, made: list[weakref.ref[Instance]]) -> None:
    count = old.recv_into(reader.buffer())
    latest = made[-1]()
    for _kind, _flags, call, body in reader.advance(count):
        if latest is not None:
            latest._work.returned(call, decode(body))
    if not count:
        asyncio.get_running_loop().remove_reader(old)
        old.close()


def _leaks_per_restart(patch: Patch) -> None:
    forget = Fleet._forget

    def keep(self: Fleet, member: Member) -> None:
        forget(self, member)
        os.dup(0)

    patch(Fleet, "_forget", keep)


def _kills_leader_only(patch: Patch) -> None:
    patch(os, "killpg", os.kill)
    patch(Instance, "_strays", lambda self: iter(()))


def _kills_saved_pid(patch: Patch) -> None:
    leftovers = Instance._leftovers
    pids: dict[str, int] = {}
    moved = Instance._move

    def note(self: Instance, step: Step) -> None:
        if self.pid is not None:
            pids[self.id] = self.pid
        moved(self, step)

    def sweep(self: Instance) -> Any:
        if self.id in pids:
            try:
                os.killpg(pids[self.id], signal.SIGKILL)
            except ProcessLookupError:
                pass
        return leftovers(self)

    patch(Instance, "_move", note)
    patch(Instance, "_leftovers", sweep)


def _raw_oserror(patch: Patch) -> None:
    patch(
        failures,
        "spawn_failed",
        lambda launch, program, error: WireError("spawn_failed", repr(error)),
    )


SABOTEURS: tuple[Saboteur, ...] = (
    broken("EOFError-bare", "SUP-001", "exit status and signal", _bare_eof),
    broken("parses-partial", "SUP-002", "error crashed or closed", _parses_partial),
    broken("active-too-early", "SUP-003", "error crashed or closed of a start", _active_too_early),
    broken("lazy-detect", "SUP-004", "state DOWN", _lazy),
    broken("exit0-is-fine", "SUP-004", "exit 0 of an idle instance", _exit_0_is_fine),
    broken("replays-in-flight", "SUP-005", "error crashed of a call", _replays),
    broken("drain-waits-dead", "SUP-006", "ends within", _drain_waits_for_the_dead),
    broken("half-open-forever", "SUP-007", "error closed of a call", _half_open),
    broken("heartbeat-in-os-only", "SUP-008", "error unresponsive", _no_heartbeat),
    broken("reads-old-pipe", "SUP-013", "no answer from an old channel", _reads_old_pipe),
    broken("leaks-per-restart", "SUP-014", "descriptors", _leaks_per_restart),
    broken("kills-leader-only", "SUP-016", "the child of its group", _kills_leader_only),
    broken("kill(saved_pid)", "SUP-017", "that were reaped", _kills_saved_pid),
    broken("raw-OSError", "SUP-018", "an error that names no-such-file", _raw_oserror),
)
