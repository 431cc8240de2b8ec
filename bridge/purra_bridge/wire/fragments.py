"""Messages over `max_frame` arrive in fragments and are joined before they are decoded.

Each fragment costs credit of the link, returned as soon as it is stored; but the first of a CALL is
free, like a CALL that is whole: a call that waits for credit must not keep later ones from opening,
and ids are opened in order.

A fragment has the flag MORE, or is the last of a message of which one had it. Fragments of
different calls may be interleaved; those of one call may not, but for CREDIT and CANCEL between
them. Loaded with the first fragment: most workers never see one.

Bounds: a message that grows over its limit, or over what all unjoined messages together may hold,
keeps no byte more and is answered as an oversize frame when its last fragment comes. Messages are
only begun for calls that are open, and end with them, so their number is bounded too.
"""

from __future__ import annotations

from purra_bridge.wire.credits import FRAME_COST_BYTES
from purra_bridge.wire.errors import ProtocolViolation, WireError, too_large
from purra_bridge.wire.events import Failed
from purra_bridge.wire.header import END, MORE, RAW
from purra_bridge.wire.messages import CALL, DATA, ERROR, RESULT, name_of
from purra_bridge.wire.tables import END_INPUT

__all__ = ["UNJOINED_BYTES", "Assembly", "Joiner"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    Events = list[Any]

    class Owner(Protocol):
        """The calls of the connection, as this file knows them (`purra_bridge.wire.calls`)."""

        joining: dict[int, Assembly]
        limits: dict[str, int]

        def issue(self, call_id: int) -> None: ...
        def judge(self, call_id: int, kind: int) -> Any: ...
        def charge_link(self, cost: int) -> None: ...
        def count(self, what: str) -> None: ...
        def turn_down(self, call_id: int, error: WireError) -> None: ...
        def serve(self, call_id: int, body: Any, events: Events) -> None: ...
        def unread(self, call: Any) -> bool: ...
        def spoil(self, call_id: int, call: Any, error: WireError, events: Events) -> None: ...
        def ends(self, kind: int, call_id: int, events: Events) -> bool: ...
        def on_result(
            self, kind: int, flags: int, call_id: int, body: Any, events: Events
        ) -> None: ...
        def on_error(
            self, kind: int, flags: int, call_id: int, body: Any, events: Events
        ) -> None: ...
        def take_data(
            self,
            flags: int,
            call_id: int,
            body: Any,
            cost: int,
            events: Events,
            prepaid: bool = False,
        ) -> None: ...


UNJOINED_BYTES = 64 * 1024 * 1024
"""All fragments of a connection whose messages are not complete."""

_CUTTABLE = (CALL, DATA, RESULT, ERROR)
"""Messages that may be large: the others are small by nature."""


class Assembly:
    """One message whose last fragment has not come."""

    __slots__ = ("cancelled", "cost", "kind", "limit", "parts", "total")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.limit = 0
        self.parts: bytearray | None = bytearray()  # None: given up, it was too long
        self.total = 0
        self.cost = 0
        self.cancelled = False


class Joiner:
    """The unfinished messages of one connection."""

    __slots__ = ("_calls", "_stored")

    def __init__(self, calls: Owner) -> None:
        self._calls = calls
        self._stored = 0

    def oversize(self, kind: int, flags: int, call_id: int, length: int, events: Events) -> None:
        """A frame whose body was over `max_frame` and has been skipped: it costs its call."""
        if flags & MORE or call_id in self._calls.joining:
            self.fragment(kind, flags, call_id, None, events, length)
            return
        if kind not in _CUTTABLE:
            raise ProtocolViolation("bad_frame", f"{name_of(kind)} of {length} bytes")
        if kind == CALL:
            self._calls.issue(call_id)
        elif kind == DATA:
            self._calls.charge_link(length + FRAME_COST_BYTES)
        self._too_long(kind, flags, call_id, length, events)

    def fragment(
        self, kind: int, flags: int, call_id: int, body: Any, events: Events, length: int = 0
    ) -> None:
        """One fragment is paid for and stored; the message is handled when it is whole.

        `body` is None, and `length` says how long it was, if it was skipped.
        """
        calls = self._calls
        if kind not in _CUTTABLE:
            raise ProtocolViolation("bad_frame", f"{name_of(kind)} in fragments")
        if body is not None:
            length = len(body)
        entry = calls.joining.get(call_id)
        if entry is not None or kind != CALL:
            calls.charge_link(length + FRAME_COST_BYTES)
        if entry is None:
            entry = self._begin(kind, call_id)
            if entry is None:
                return
        elif entry.kind != kind:
            outer = name_of(entry.kind)
            raise ProtocolViolation("bad_frame", f"{name_of(kind)} inside a {outer}")
        self._store(entry, flags, body, length)
        if flags & MORE:
            return
        del calls.joining[call_id]
        if entry.parts is None:
            self._too_long(kind, flags, call_id, entry.total, events, entry.limit)
            return
        self._stored -= len(entry.parts)
        self._whole(flags, call_id, entry, entry.parts, events)

    def drop(self, call_id: int) -> None:
        """Its call is over: what is still to come of it is late."""
        entry = self._calls.joining.pop(call_id, None)
        if entry is not None and entry.parts is not None:
            self._stored -= len(entry.parts)

    def _begin(self, kind: int, call_id: int) -> Assembly | None:
        calls = self._calls
        if kind == CALL:
            calls.issue(call_id)
            # A correct caller never has more calls open, unfinished ones included; twice as many
            # allows for those that crossed their terminal.
            if len(calls.joining) >= 2 * calls.limits["inflight"]:
                raise ProtocolViolation("flow", f"{len(calls.joining)} unfinished messages")
        elif calls.judge(call_id, kind) is None:
            return None
        entry = calls.joining[call_id] = Assembly(kind)
        return entry

    def _store(self, entry: Assembly, flags: int, body: Any, length: int) -> None:
        entry.total += length
        entry.cost += length + FRAME_COST_BYTES
        if entry.parts is None:
            return
        raw = flags & RAW and entry.kind == DATA
        entry.limit = self._calls.limits["max_raw" if raw else "max_message"]
        if body is None or entry.total > entry.limit or self._stored + length > UNJOINED_BYTES:
            self._stored -= len(entry.parts)
            entry.parts = None
            return
        entry.parts += body
        self._stored += length

    def _whole(
        self, flags: int, call_id: int, entry: Assembly, body: bytearray, events: Events
    ) -> None:
        calls = self._calls
        if entry.kind == CALL:
            if entry.cancelled:
                calls.turn_down(call_id, WireError("cancelled", executed="no"))
            else:
                calls.serve(call_id, body, events)
        elif entry.kind == DATA:
            calls.take_data(flags, call_id, body, entry.cost, events, prepaid=True)
        elif entry.kind == RESULT:
            calls.on_result(RESULT, flags, call_id, body, events)
        else:
            calls.on_error(ERROR, flags, call_id, body, events)

    def _too_long(
        self, kind: int, flags: int, call_id: int, length: int, events: Events, limit: int = 0
    ) -> None:
        calls = self._calls
        calls.count("oversize_messages")
        limit = limit or calls.limits["max_frame"]
        if kind == CALL:
            calls.turn_down(call_id, too_large(length, limit))
        elif kind == DATA:
            call = calls.judge(call_id, END_INPUT if flags & END else DATA)
            if call is not None and not calls.unread(call):
                calls.spoil(call_id, call, too_large(length, limit, executed="maybe"), events)
        elif not calls.ends(kind, call_id, events):
            events.append(Failed(call_id, too_large(length, limit, executed="yes")))
