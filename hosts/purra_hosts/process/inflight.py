"""The calls that one instance works on: sent, answered, timed, cancelled.

A slot is held from the CALL to its terminal, not to the caller's end, because until then the worker
is busy with it. A call that gives no terminal within the grace time makes the instance suspect
(`deaf`); one that may write and passes its hard deadline must not get the chance to write later
(`overdue`): those two are told to the owner, who decides about the instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from purra_bridge.wire.codec import ValueRefused
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.events import Failed
from purra_bridge.wire.session import Session
from purra_hosts.process.alarm import NEVER, Alarm
from purra_hosts.process.calls import Call
from purra_hosts.process.failures import again, before_sending
from purra_hosts.process.pump import Pump

__all__ = ["USED_UP_ID", "Bounds", "InFlight", "InFlightOwner"]

USED_UP_ID: Final = 0x7FF0_0000
"""From this call id on another instance should take over; a million ids are left for that."""
USED_UP_STEP: Final = 0x2_0000
"""How many ids later it is said again, if nobody did."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`grace_s`: from a cancel to the terminal. `output_bytes`: what one call may send as items."""

    grace_s: float
    output_bytes: int


class InFlightOwner(Protocol):
    """Decides about the instance."""

    def on_freed(self) -> None:
        """A slot is free."""

    def on_used_up(self) -> None:
        """The call ids come to their end."""

    def on_deaf(self, call: Call) -> None:
        """A cancelled call gave no terminal within the grace time."""

    def on_overdue(self, call: Call) -> None:
        """An exclusive call passed its deadline, or is deaf to its cancel: it must not go on."""


class InFlight:
    """Implements `purra_hosts.process.calls.Home` for calls that were sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        session: Session,
        pump: Pump,
        alarm: Alarm,
        bounds: Bounds,
    ) -> None:
        self._loop = loop
        self._session = session
        self._pump = pump
        self._alarm = alarm
        self._grace_s = bounds.grace_s
        self._output_bytes = bounds.output_bytes
        self._used_up_id = USED_UP_ID
        self._open: dict[int, Call] = {}
        self._deaf: dict[int, Call] = {}
        self._alone: Call | None = None
        self._owner: InFlightOwner | None = None
        self._closed = False
        self.limit = 1

    def __len__(self) -> int:
        return len(self._open) + len(self._deaf)

    @property
    def idle(self) -> bool:
        """Nothing is worth waiting for: every call has ended, or is deaf."""
        return not self._open

    def get(self, call_id: int) -> Call | None:
        """The open call that has this id."""
        return self._open.get(call_id)

    def serve(self, owner: InFlightOwner, limit: int) -> None:
        """Opens for business with `limit` slots."""
        self._owner = owner
        self.limit = limit

    def has_room(self, exclusive: bool) -> bool:
        """One more call may be sent now."""
        if self._alone is not None or self._pump.congested:
            return False
        return not len(self) if exclusive else len(self) < self.limit

    def send(self, call: Call) -> None:
        """Sends a call for which there is room. One that cannot be encoded fails, unsent."""
        request = call.request
        options: dict[str, Any] = {}
        if request.window_bytes:
            options["window"] = request.window_bytes
        if call.deadline_s != NEVER:
            options["deadline_ms"] = max(1, int((call.deadline_s - self._loop.time()) * 1000))
        if request.key:
            options["key"] = request.key
        if request.trace:
            options["trace"] = dict(request.trace)
        try:
            call.id = self._session.call(request.adapter, request.method, request.args, options)
        except ValueRefused as refused:
            call.fail(WireError("invalid_argument", str(refused), executed="no"))
            return
        except WireError as error:
            call.fail(error)
            return
        call.home = self
        self._open[call.id] = call
        if call.exclusive:
            self._alone = call
        self._alarm.by(call.deadline_s)
        self._pump.kick()
        call.may_send()
        if call.id >= self._used_up_id and self._owner is not None:
            self._used_up_id += USED_UP_STEP
            self._owner.on_used_up()

    # What the worker says.

    def returned(self, call_id: int, value: Any) -> None:
        """RESULT has arrived."""
        call = self._ended(call_id)
        if call is not None:
            call.succeed(value)
            self._freed()

    def failed(self, call_id: int, error: WireError) -> None:
        """ERROR has arrived."""
        call = self._ended(call_id)
        if call is not None:
            call.fail(error)
            self._freed()

    def items(self, call_id: int, values: Sequence[Any], cost: int) -> None:
        """Items, or one raw chunk, have arrived."""
        call = self._open.get(call_id)
        if call is None:
            self._pay(call_id, cost)
            return
        call.output_bytes += cost
        if call.output_bytes > self._output_bytes and not call.released:
            self._too_much(call)
        call.take_items(values, cost)

    def credited(self, call_id: int) -> None:
        """An upload may go on; any of them if the id is 0."""
        call = self._open.get(call_id)
        if call is not None:
            call.may_send()
        elif call_id == 0:
            for call in self._open.values():
                call.may_send()

    # Time, and the end.

    def forgive(self, now_s: float) -> None:
        """The host itself stood still: every grace that is running begins anew (H68)."""
        for call in self._open.values():
            if call.grace_s != NEVER:
                call.grace_s = max(call.grace_s, now_s + self._grace_s)

    def ring(self, now_s: float) -> float:
        """Ends what is over; the next time something will be."""
        due = NEVER
        for call in tuple(self._open.values()):
            if call.grace_s <= now_s:
                self._grace_over(call)
            elif call.deadline_s <= now_s and not call.released:
                self._time_over(call)
            if call.id in self._open:
                due = min(due, call.grace_s, NEVER if call.released else call.deadline_s)
        return due

    def fail_all(self, error: WireError) -> None:
        """Nothing more will come: every open call fails with `error`, and says what is known of
        its execution.
        """
        self._closed = True
        executed = {
            event.id: event.error.executed
            for event in self._session.eof()
            if isinstance(event, Failed)
        }
        calls = (*self._open.values(), *self._deaf.values())
        self._open.clear()
        self._deaf.clear()
        self._alone = None
        for call in calls:
            call.fail(again(error, executed.get(call.id, "maybe")))
            call.may_send()

    # purra_hosts.process.calls.Home

    def give_up(self, call: Call, reason: str) -> None:
        """Tells the worker, and waits no longer than the grace time for the terminal. A call that
        is still in our own buffer is taken back instead (CAN-001).
        """
        if call.id not in self._open or call.grace_s != NEVER:
            return
        if self._session.cancel(call.id, reason):
            self._ended(call.id)
            call.fail(before_sending("cancelled", "taken back before it was sent"))
            call.may_send()
            self._freed()
        else:
            call.grace_s = self._loop.time() + self._grace_s
            self._alarm.by(call.grace_s)
            self._pump.kick()

    def ask_stop(self, call: Call) -> None:
        """The same; that the answer is still welcome is the call's own affair."""
        self.give_up(call, "cancelled")

    def consumed(self, call: Call, cost: int) -> None:
        """Credit goes back to the worker."""
        self._pay(call.id, cost)

    def sendable(self, call: Call) -> bool:
        """There is credit, and the channel takes output."""
        return (
            call.id in self._open
            and not call.released
            and not self._pump.congested
            and self._session.sendable(call.id)
        )

    def send_chunk(self, call: Call, data: bytes, end: bool) -> None:
        """Sends one piece of an upload."""
        if end:
            self._session.end_upload(call.id)
        else:
            self._session.chunk(call.id, data)
        self._pump.kick()

    def _pay(self, call_id: int, cost: int) -> None:
        if not self._closed:
            self._session.consumed(call_id, cost)
            if self._session.pending_bytes:
                self._pump.kick()

    def _ended(self, call_id: int) -> Call | None:
        call = self._open.pop(call_id, None) or self._deaf.pop(call_id, None)
        if call is not None and call is self._alone:
            self._alone = None
        return call

    def _freed(self) -> None:
        if self._owner is not None:
            self._owner.on_freed()

    def _time_over(self, call: Call) -> None:
        timeout_s = call.request.timeout_s
        call.fail(
            WireError("deadline_exceeded", f"no answer within {timeout_s:g} s", executed="maybe")
        )
        call.may_send()
        if call.exclusive and self._owner is not None:
            self._owner.on_overdue(call)
        else:
            self.give_up(call, "deadline")

    def _too_much(self, call: Call) -> None:
        what = f"more than {self._output_bytes} bytes of items"
        detail = {"limit": "output", "bytes": self._output_bytes}
        call.fail(
            WireError("resource_exhausted", what, origin="host", executed="maybe", detail=detail)
        )
        call.may_send()
        self.give_up(call, "too much output")

    def _grace_over(self, call: Call) -> None:
        self._open.pop(call.id)
        self._deaf[call.id] = call
        call.fail(WireError("tainted", "no answer after a cancel", executed="maybe"))
        if self._owner is None:
            return
        if call.exclusive:
            self._owner.on_overdue(call)
        else:
            self._owner.on_deaf(call)
