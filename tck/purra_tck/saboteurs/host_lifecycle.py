"""Hosts whose instances live and end wrongly."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

from purra_hosts.launch import Launch
from purra_hosts.process.fleet import Fleet, Member
from purra_hosts.process.gate import StartGate
from purra_hosts.process.instance import Instance
from purra_hosts.process.patience import Patience
from purra_hosts.process.route import Route, RouteStatus
from purra_hosts.process.spawn import Child
from purra_hosts.process.states import State
from purra_hosts.process.supervisor import ProcessHost
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _skips_handshaking(patch: Patch) -> None:
    announce = Fleet._announce

    def terse(self: Fleet, member: Member, state: State) -> None:
        if state is not State.HANDSHAKE:
            announce(self, member, state)

    patch(Fleet, "_announce", terse)


def _double_spawn(patch: Patch) -> None:
    patch(Fleet, "begin", lambda self: self._make(self.launch))


def _leaks_on_init_error(patch: Patch) -> None:
    def forgetful(self: Child) -> None:
        if self._pidfd is not None and self._loop is not None:
            self._loop.remove_reader(self._pidfd)
            self._pidfd = None  # and never closes it

    patch(Child, "close", forgetful)


def _waits_forever(patch: Patch) -> None:
    patch(Instance, "_start_over", lambda self: None)


def _extends_forever(patch: Patch) -> None:
    def generous(self: Patience, now_s: float, more_s: float) -> float:
        self.due_s = max(now_s + more_s, self.due_s)
        return self.due_s

    patch(Patience, "extended", generous)


def _stop_raises(patch: Patch) -> None:
    stop = Route.stop

    async def strict(self: Route, drain_s: float | None = None) -> None:
        if self._circuit.failure is not None:
            raise RuntimeError("it has failed and cannot be stopped")
        await stop(self, drain_s)

    patch(Route, "stop", strict)


def _half_registered(patch: Patch) -> None:
    done = StartGate.done

    def keeps(self: StartGate, ticket: Any) -> None:
        if not ticket.done() or ticket not in self._inside:
            done(self, ticket)

    patch(StartGate, "done", keeps)


def _stops_at_first_error(patch: Patch) -> None:
    def tell(self: Fleet, member: Member, kind: str, data: Any) -> None:
        instance = member.instance
        about = {"plugin": instance.launch.plugin, "instance": instance.id}
        if self.place.events is not None:
            self.place.events(kind, {**about, "generation": instance.generation, **data})

    patch(Fleet, "tell", tell)


def _imports_module(patch: Patch) -> None:
    add = ProcessHost.add

    def curious(self: ProcessHost, launch: Launch) -> Route:
        if launch.entry is not None:
            sys.path.insert(0, str(launch.folder))
            importlib.import_module(launch.entry.partition(":")[0])
            del sys.path[0]
        return add(self, launch)

    patch(ProcessHost, "add", curious)


def _health_blocks(patch: Patch) -> None:
    status = Route.status

    def probing(self: Route) -> RouteStatus:
        for member in self._fleet.serving:
            member.instance._session.ping("are you well?")
            member.instance._pump.flush()
            time.sleep(0.3)
        return status(self)

    patch(Route, "status", probing)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("skips-handshaking-event", "LIF-001", "after STARTING", _skips_handshaking),
    broken("double-spawn", "LIF-002", "starts at once", _double_spawn),
    broken("leaks-on-init-error", "LIF-003", "descriptors", _leaks_on_init_error),
    broken("waits-forever", "LIF-004", "error handshake_timeout", _waits_forever),
    broken("extends-forever", "LIF-004", "error start_timeout", _extends_forever),
    broken("stop-raises-when-failed", "LIF-005", "RuntimeError", _stop_raises),
    broken("half-registered", "LIF-006", "none was started", _half_registered),
    broken(
        "stops-at-first-cleanup-error",
        "LIF-007",
        "closing a host whose listener fails",
        _stops_at_first_error,
    ),
    broken("imports-manifest-module", "LIF-008", "its module was imported", _imports_module),
    broken("health-blocks", "LIF-009", "an answer within", _health_blocks),
)
