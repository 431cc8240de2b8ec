"""Hosts that give what was not granted, or lock themselves up when they are asked."""

from __future__ import annotations

import asyncio
from typing import Any

from purra.contracts.policy import PolicyDecision
from purra.gateway import admission
from purra.gateway.admission import Admission
from purra_hosts.process import callbacks
from purra_hosts.process.callbacks import Callbacks
from purra_hosts.process.instance import Instance
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _serves(self: Callbacks, event: Any) -> bool:
    """Starts the service whoever asks; whether there is one."""
    service = self._services.get(event.adapter)
    if service is None:
        return False
    task = asyncio.get_running_loop().create_task(self._serve(event, service, None))
    self._tasks[event.id] = task
    return True


def _allows_undeclared(patch: Patch) -> None:
    deny = Callbacks._deny

    def lenient(self: Callbacks, event: Any, grant: str) -> None:
        if not _serves(self, event):
            deny(self, event, grant)

    patch(Callbacks, "_deny", lenient)


def _checks_after(patch: Patch) -> None:
    deny = Callbacks._deny

    def late(self: Callbacks, event: Any, grant: str) -> None:
        service = self._services.get(event.adapter)
        if service is not None:
            asked = callbacks.Asked("", "", 0, event.method, event.args, {})
            self._loop.create_task(service(asked))  # type: ignore[arg-type]
        deny(self, event, grant)

    patch(Callbacks, "_deny", late)


def _gate_only_when_stopped(patch: Patch) -> None:
    def open_gate(self: Instance, exclusive: bool) -> bool:
        return self._work.has_room(exclusive)

    patch(Instance, "has_room", open_gate)


def _late_lookup(patch: Patch) -> None:
    called = Callbacks.called

    def lookup(self: Callbacks, event: Any) -> None:
        instance: Any = self._owner
        instance.launch = instance._listener._fleet.launch  # whatever it is by now
        called(self, event)

    patch(Callbacks, "called", lookup)


def _trusts_frame(patch: Patch) -> None:
    real = callbacks.Asked

    def believing(plugin: str, instance: str, call: int, method: str, args: Any, trace: Any) -> Any:
        told = args if type(args) is dict else {}
        who = (told.get("plugin", plugin), told.get("instance", instance), told.get("call", call))
        return real(*who, method, args, trace)

    patch(callbacks, "Asked", believing)


def _fails_open(patch: Patch) -> None:
    ask = Admission._ask

    async def trusting(self: Admission, *arguments: Any) -> PolicyDecision:
        decision = await ask(self, *arguments)
        if decision.reason.startswith("policy_failed"):
            return PolicyDecision("allow", decision.reason)
        return decision

    patch(Admission, "_ask", trusting)


def _single_lane(patch: Patch) -> None:
    called = Callbacks.called

    def in_turn(self: Callbacks, event: Any) -> None:
        instance: Any = self._owner
        if instance.calls < instance._work.limit:
            called(self, event)
        # Else it waits until a place is free, which it keeps taken itself.

    patch(Callbacks, "called", in_turn)


def _resets_deadline(patch: Patch) -> None:
    serve = Callbacks._serve

    def generous(self: Callbacks, event: Any, service: Any, _parent: Any) -> Any:
        return serve(self, event, service, None)

    patch(Callbacks, "_serve", generous)


def _outlives_its_call(patch: Patch) -> None:
    patch(Callbacks, "cancelled", lambda self, event: None)


def _reuses_approval(patch: Patch) -> None:
    """What was asked about once is not asked again."""
    plan_of = admission._plan
    asked: set[str] = set()

    def lenient(call: Any, decision: Any) -> dict[str, Any]:
        plan = plan_of(call, decision)
        if plan["digest"] in asked:
            plan["approval"] = "never"
        asked.add(plan["digest"])
        return plan

    patch(admission, "_plan", lenient)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("allows-undeclared", "CAP-001", "which is not declared", _allows_undeclared),
    broken("checks-after", "CAP-002", "times that the service ran", _checks_after),
    broken("gate-only-when-stopped", "CAP-003", "callers that wait", _gate_only_when_stopped),
    broken("late-lookup", "CAP-004", "that began with the grant", _late_lookup),
    broken("trusts-frame-identity", "CAP-005", "who the service is told", _trusts_frame),
    broken("fail-open", "CAP-006", "whose policy answers nonsense", _fails_open),
    broken("reuses-approval", "CAP-007", "that nobody has approved", _reuses_approval),
    broken("single-lane", "CAL-009", "CALL", _single_lane),
    broken("resets-deadline", "CAN-009", "by its call's time", _resets_deadline),
    broken("outlives-its-call", "CAN-009", "ends with its call", _outlives_its_call),
)
