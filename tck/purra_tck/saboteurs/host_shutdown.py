"""Hosts that end their plugins too early, too late, or one after the other."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from purra_hosts.process.fleet import Fleet
from purra_hosts.process.instance import Instance
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _kills_at_once(patch: Patch) -> None:
    leave = Instance.leave
    patch(Instance, "leave", lambda self, reason, drain_s: leave(self, reason, 0.0))


def _no_kill_step(patch: Patch) -> None:
    send = Instance._signal

    def gentle(self: Instance, number: signal.Signals) -> None:
        if number is not signal.SIGKILL:
            send(self, number)

    patch(Instance, "_signal", gentle)


def _no_term_step(patch: Patch) -> None:
    send = Instance._signal
    patch(Instance, "_signal", lambda self, _: send(self, signal.SIGKILL))


def _drain_blocks(patch: Patch) -> None:
    end = Instance._end

    async def thorough(self: Instance) -> None:
        transport: Any = self._pump._transport
        while transport is not None and transport.get_write_buffer_size() and not self._gone():
            await asyncio.sleep(0.01)
        await end(self)

    patch(Instance, "_end", thorough)


def _serial_stop(patch: Patch) -> None:
    async def close(self: ProcessHost, drain_s: float | None) -> None:
        for route in self._routes.values():
            await route.close(drain_s)
        for _ in self._folders.removing():
            pass

    patch(ProcessHost, "_close", close)


def _stop_then_start(patch: Patch) -> None:
    async def reload(self: Route, launch: Any = None) -> None:
        await self.stop()
        await self.start()

    patch(Route, "reload", reload)


def _half_swap(patch: Patch) -> None:
    reload = Fleet.reload

    async def hasty(self: Fleet, launch: Any) -> None:
        for member in self.members:
            member.retired = True  # the next one will surely start
        await reload(self, launch)

    patch(Fleet, "reload", hasty)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("kill-at-once", "SHD-001", "DRAIN.deadline_ms", _kills_at_once),
    broken("no-KILL-step", "SHD-002", "the process ends", _no_kill_step),
    broken("no-TERM-step", "SHD-002", "told by SIGTERM", _no_term_step),
    broken("drain()-blocks", "SHD-003", "stop ends within", _drain_blocks),
    broken("serial-stop", "SHD-004", "the process ends", _serial_stop),
    broken("stop-then-start", "SHD-006", "of a call", _stop_then_start),
    broken("half-swap", "SHD-007", "after its successor", _half_swap),
)
