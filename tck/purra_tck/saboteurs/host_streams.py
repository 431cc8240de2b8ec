"""Hosts that lose items, or credit, or the difference between an end and a break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purra_bridge.wire.calls import Calls
from purra_bridge.wire.credits import ReceiveWindow, SendWindow
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.tables import CANCELLED
from purra_hosts.process.calls import Call, StreamItems, _Inbox
from purra_hosts.process.inflight import InFlight
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _drops_at_edges(patch: Patch) -> None:
    take = Call.take_items

    def lossy(self: Call, values: Sequence[Any], cost: int) -> None:
        take(self, values[:-1] if len(values) > 1 else values, cost)

    patch(Call, "take_items", lossy)


def _item_after_end(patch: Patch) -> None:
    judge = Calls.judge

    def forgiving(self: Calls, call_id: int, kind: int) -> Any:
        try:
            return judge(self, call_id, kind)
        except ProtocolViolation as violation:
            if violation.reason != "after_terminal":
                raise
            return None

    patch(Calls, "judge", forgiving)


def _no_credit_check(patch: Patch) -> None:
    def charge(self: ReceiveWindow, cost: int) -> None:
        self.left -= cost

    patch(ReceiveWindow, "charge", charge)


def _unbounded_queue(patch: Patch) -> None:
    def take(self: _Inbox, values: Sequence[Any], cost: int) -> None:
        self.call.consumed(cost)  # as if it had been taken
        self.batches.append((values, 0))
        self._wake()

    init = _Inbox.__init__

    def greedy(self: _Inbox, call: Call) -> None:
        init(self, call)
        call.sink = lambda values, cost: take(self, values, cost)

    patch(_Inbox, "__init__", greedy)


def _wraps_credit(patch: Patch) -> None:
    def add(self: SendWindow, count: Any) -> None:
        self.credit = (self.credit + int(count or 0)) & 0xFFFF_FFFF

    patch(SendWindow, "add", add)


def _leaks_abandoned(patch: Patch) -> None:
    patch(Call, "_give_up", lambda self: None)


def _keeps_late_credit(patch: Patch) -> None:
    take = Calls.take_data

    def greedy(
        self: Calls,
        flags: int,
        call_id: int,
        body: Any,
        cost: int,
        events: Any,
        prepaid: bool = False,
    ) -> None:
        call = self.own.get(call_id)
        late = call is not None and call.state is CANCELLED
        take(self, flags, call_id, body, cost, events, prepaid or late)

    patch(Calls, "take_data", greedy)


def _crash_looks_like_end(patch: Patch) -> None:
    step = StreamItems.__anext__

    async def trusting(self: StreamItems) -> Any:
        try:
            return await step(self)
        except WireError as error:
            if error.origin != "instance":
                raise
            raise StopAsyncIteration from None

    patch(StreamItems, "__anext__", trusting)


def _waits_for_item(patch: Patch) -> None:
    settled = _Inbox._settled
    took = _Inbox._take

    def remember(self: _Inbox, values: Sequence[Any], cost: int) -> None:
        seen.add(id(self))
        took(self, values, cost)

    def wait(self: _Inbox, future: Any) -> None:
        if id(self) in seen:
            settled(self, future)

    seen: set[int] = set()
    patch(_Inbox, "_take", remember)
    patch(_Inbox, "_settled", wait)


def _shared_queue(patch: Patch) -> None:
    items = InFlight.items

    def in_turn(self: InFlight, call_id: int, values: Sequence[Any], cost: int) -> None:
        if call_id == min(self._open):
            items(self, call_id, values, cost)
        # The others wait until it is their turn.

    patch(InFlight, "items", in_turn)


def _full_batches(patch: Patch) -> None:
    wake = _Inbox._wake

    def collect(self: _Inbox) -> None:
        if self.call.future.done() or sum(len(values) for values, _ in self.batches) >= 8:
            wake(self)

    patch(_Inbox, "_wake", collect)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("drops-at-batch-edge", "STR-001", "each once and in order", _drops_at_edges),
    broken("item-after-end", "STR-002", "state DOWN", _item_after_end),
    broken("no-credit-check", "STR-003", "state DOWN", _no_credit_check),
    broken("unbounded-queue", "STR-004", "while nothing is taken", _unbounded_queue),
    broken("wraps-credit", "STR-005", "error protocol_violation", _wraps_credit),
    broken("leaks-abandoned", "STR-006", "CANCEL for a stream that was left", _leaks_abandoned),
    broken("keeps-late-credit", "STR-006", "the channel has ended", _keeps_late_credit),
    broken("crash-looks-like-END", "STR-007", "that broke by SIGKILL", _crash_looks_like_end),
    broken("waits-for-item", "STR-008", "a stream ends within", _waits_for_item),
    broken("shared-queue", "STR-009", "CREDIT on id 3", _shared_queue),
    broken("waits-for-full-batch", "STR-010", "item ends within", _full_batches),
)
