"""Hosts that lose, repeat, mix up or misreport calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from purra.contracts import answers
from purra.contracts.tool import ToolResult
from purra_bridge.wire.calls import Calls
from purra_bridge.wire.errors import WireError
from purra_hosts.process import inflight, route
from purra_hosts.process.calls import Call
from purra_hosts.process.failures import again
from purra_hosts.process.inflight import InFlight
from purra_hosts.process.instance import Instance
from purra_hosts.process.route import Route
from purra_hosts.process.states import Step
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _double_resolve(patch: Patch) -> None:
    patch(Call, "succeed", lambda self, value: self.future.set_result(value))


def _never_resolves(patch: Patch) -> None:
    fail = Call.fail

    def silent(self: Call, error: Exception) -> None:
        if not isinstance(error, WireError) or error.code != "crashed":
            fail(self, error)

    patch(Call, "fail", silent)


def _first_in_first_out(patch: Patch) -> None:
    returned = InFlight.returned
    patch(InFlight, "returned", lambda self, _, value: returned(self, min(self._open), value))


def _unbounded(patch: Patch) -> None:
    patch(InFlight, "has_room", lambda self, exclusive: True)


def _ends_on_unknown(patch: Patch) -> None:
    failed = InFlight.failed

    def offended(self: InFlight, call_id: int, error: WireError) -> None:
        failed(self, call_id, error)
        if error.code == "unimplemented" and isinstance(self._owner, Instance):
            self._owner._fault(error, Step.FAULT)

    patch(InFlight, "failed", offended)


def _error_as_result(patch: Patch) -> None:
    returned = InFlight.returned
    patch(InFlight, "failed", lambda self, call, error: returned(self, call, error.to_body()))


def _passes_through(patch: Patch) -> None:
    def anything(value: Any, _where: str) -> ToolResult:
        return ToolResult(value.get("value") if isinstance(value, Mapping) else value)

    patch(answers, "tool_result", anything)


def _reuses_ids(patch: Patch) -> None:
    ends = Calls.ends

    def recycling(self: Calls, kind: int, call_id: int, events: Any) -> bool:
        ended = ends(self, kind, call_id, events)
        if not self.own:
            self._next_id = 1
        return ended

    patch(Calls, "ends", recycling)


def _tries_again(patch: Patch) -> None:
    call = Route.call

    async def stubborn(self: Route, request: Any, on_item: Any = None) -> Any:
        try:
            return await call(self, request, on_item)
        except WireError as error:
            if error.retry != "same" or error.executed != "no" or error.origin != "plugin":
                raise
            await asyncio.sleep((error.after_ms or 0) / 1000)
            return await call(self, request, on_item)

    patch(Route, "call", stubborn)


def _always_not_started(patch: Patch) -> None:
    patch(inflight, "again", lambda error, executed: again(error, "no"))
    patch(route, "again", lambda error, executed: again(error, "no"))


SABOTEURS: tuple[Saboteur, ...] = (
    broken("double-resolve", "CAL-001", "its late answer", _double_resolve),
    broken("never-resolves", "CAL-001", "no end within", _never_resolves),
    broken("fifo-correlation", "CAL-002", "another one's answer", _first_in_first_out),
    broken("unbounded-dispatch", "CAL-003", "error overloaded", _unbounded),
    broken("kills-on-unknown", "CAL-004", "was not there", _ends_on_unknown),
    broken("error-as-result", "CAL-005", "an error of a call", _error_as_result),
    broken("passes-through", "CAL-006", "error contract_violation", _passes_through),
    broken("reuses-ids", "CAL-007", "different ids", _reuses_ids),
    broken("auto-retry", "CAL-008", "no end within", _tries_again),
    broken("always-not-started", "CAL-010", "executed of 2 sent", _always_not_started),
)
