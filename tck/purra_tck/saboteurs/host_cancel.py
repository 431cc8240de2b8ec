"""Hosts that do not let callers go, or plugins off the hook."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from purra_bridge.wire.calls import Calls
from purra_bridge.wire.codec import decode
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.events import Returned
from purra_bridge.wire.session import Session
from purra_hosts.process.alarm import Alarm
from purra_hosts.process.calls import Call
from purra_hosts.process.inflight import InFlight
from purra_hosts.process.instance import Instance
from purra_hosts.process.route import Route
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _sends_then_cancels(patch: Patch) -> None:
    submit = Route._submit

    def eager(self: Route, call: Call) -> None:
        instance = self._fleet.room(False)
        if instance is not None and call.request.timeout_s == 0.0:
            instance.send(call)
            instance._pump.flush()
            call.abandon()
            call.future = asyncio.get_running_loop().create_future()
            call.future.set_exception(WireError("deadline_exceeded", executed="no"))
        else:
            submit(self, call)

    patch(Route, "_submit", eager)


def _awaits_plugin(patch: Patch) -> None:
    async def patient(self: Call) -> Any:
        while not self.future.done():
            try:
                return await asyncio.shield(self.future)
            except asyncio.CancelledError:
                self._give_up()  # and goes on waiting for the terminal
        return self.future.result()

    patch(Call, "answer", patient)


def _both_outcomes(patch: Patch) -> None:
    returned = InFlight.returned

    def undecided(self: InFlight, call_id: int, value: Any) -> None:
        self._session.cancel(call_id, "too late, but who knows")
        returned(self, call_id, value)

    def on_result(self: Calls, _kind: int, _flags: int, call: int, body: Any, out: Any) -> None:
        out.append(Returned(call, decode(body)))  # the call stays open until it is handled

    patch(Calls, "on_result", on_result)
    patch(InFlight, "returned", undecided)


def _reopens(patch: Patch) -> None:
    def heed(self: Call) -> None:
        def stop() -> None:
            if self.home is not None:
                self.home.send(self) if self.released else self.home.ask_stop(self)  # type: ignore[attr-defined]

        if self.request.stop is not None:
            self.request.stop.on_request(stop)

    patch(Call, "heed_stop", heed)


def _never_recycles(patch: Patch) -> None:
    patch(Instance, "on_deaf", lambda self, call: None)


def _drains_the_deaf(patch: Patch) -> None:
    patch(Instance, "on_overdue", Instance.on_deaf)


def _swallows(patch: Patch) -> None:
    answer = Call.answer

    async def calm(self: Call) -> Any:
        try:
            return await answer(self)
        except asyncio.CancelledError:
            raise WireError("cancelled", "the caller has cancelled") from None

    patch(Call, "answer", calm)


def _waits_for_grace(patch: Patch) -> None:
    def patient(self: InFlight, call: Call) -> None:
        call.fail(WireError("deadline_exceeded", executed="maybe"))
        self.give_up(call, "deadline")

    patch(InFlight, "_time_over", patient)


def _serves_beside_writes(patch: Patch) -> None:
    def open_to_all(self: InFlight, exclusive: bool) -> bool:
        return len(self) < self.limit

    patch(InFlight, "has_room", open_to_all)


def _closes_connection(patch: Patch) -> None:
    give_up = InFlight.give_up

    def drastic(self: InFlight, call: Call, reason: str) -> None:
        give_up(self, call, reason)
        self._pump.half_close()

    patch(InFlight, "give_up", drastic)


def _absolute(patch: Patch) -> None:
    call = Session.call

    def dated(self: Session, adapter: str, method: str, args: Any, options: Any) -> int:
        if "deadline_ms" in options:
            options["deadline_ms"] += int(time.time() * 1000)
        return call(self, adapter, method, args, options)

    patch(Session, "call", dated)


def _wall_clock(patch: Patch) -> None:
    ring = InFlight.ring
    drift_s = time.time() - time.monotonic()

    def by_date(self: InFlight, now_s: float) -> float:
        return ring(self, now_s + time.time() - time.monotonic() - drift_s)

    patch(InFlight, "ring", by_date)


def _leaks_timers(patch: Patch) -> None:
    by = Alarm.by

    def forgetful(self: Alarm, when_s: float) -> None:
        by(self, when_s)
        if when_s < float("inf"):
            self._loop.call_at(when_s, int)

    patch(Alarm, "by", forgetful)


SABOTEURS: tuple[Saboteur, ...] = (
    broken(
        "sends-then-cancels", "CAN-001", "after a call that was never sent", _sends_then_cancels
    ),
    broken("awaits-plugin", "CAN-002", "that its caller left = 'cancelled'", _awaits_plugin),
    broken("both-outcomes", "CAN-003", "whose CANCEL was sent too", _both_outcomes),
    broken("re-opens", "CAN-004", "after a stop that came too late", _reopens),
    broken("never-recycles", "CAN-005", "state TAINTED or DRAINING", _never_recycles),
    broken("drains-the-deaf", "CAN-005", "the steps to the end", _drains_the_deaf),
    broken("waits-for-grace", "CAN-005", "the process ends", _waits_for_grace),
    broken("serves-beside-writes", "CAN-005", "a call beside a write", _serves_beside_writes),
    broken("swallows-CancelledError", "CAN-006", "what was seen in a task", _swallows),
    broken("closes-connection", "CAN-007", "beside a cancel", _closes_connection),
    broken("absolute-wallclock", "CAN-008", "deadline_ms of a call with 10 s", _absolute),
    broken("time.time", "CAN-010", "no end of a long call", _wall_clock),
    broken("timer-leak", "CAN-011", "timers after", _leaks_timers),
)
