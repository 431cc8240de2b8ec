"""Hosts that start again too early, too often, or for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from purra_hosts.process import circuit
from purra_hosts.process.alarm import Alarm
from purra_hosts.process.circuit import Circuit
from purra_hosts.process.fleet import Fleet
from purra_hosts.process.route import Route
from purra_hosts.restarts import Again, after_failure
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _tight_loop(patch: Patch) -> None:
    def hurry(*arguments: Any) -> Any:
        history, verdict = after_failure(*arguments)
        return history, Again(0.3) if isinstance(verdict, Again) else verdict

    patch(circuit, "after_failure", hurry)


def _spawns_when_open(patch: Patch) -> None:
    fell = Circuit.fell

    def ajar(self: Circuit, *arguments: Any) -> None:
        fell(self, *arguments)
        if self.failure is not None and self.failure.code == "quarantined":
            self.open_s = 0.0

    patch(Circuit, "fell", ajar)


def _thundering(patch: Patch) -> None:
    begin = Fleet.begin

    def herd(self: Fleet) -> None:
        if self.starting is not None and self.circuit.last_error is not None:
            self._make(self.launch)
        else:
            begin(self)

    patch(Fleet, "begin", herd)


def _never_resets(patch: Patch) -> None:
    def grudge(policy: Any, *arguments: Any) -> Any:
        never = None if policy is None else replace(policy, healthy_s=float("inf"))
        return after_failure(never, *arguments)

    patch(circuit, "after_failure", grudge)


def _zombie_timer(patch: Patch) -> None:
    patch(Alarm, "cancel", lambda self: None)
    patch(Route, "_wanted", lambda self: True)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("tight-restart-loop", "SUP-009", "before the next start", _tight_loop),
    broken("spawns-when-open", "SUP-010", "error quarantined", _spawns_when_open),
    broken("thundering-probe", "SUP-011", "for 32 callers", _thundering),
    broken("never-resets", "SUP-012", "state BACKOFF", _never_resets),
    broken("zombie-timer", "SHD-008", "after a stop while it waited", _zombie_timer),
)
