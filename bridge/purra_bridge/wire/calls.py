"""The calls of one connection, in both directions: who may send what, and what it means.

A call lives from its CALL to its one terminal, cancelled or not. It is known by its id: our own and
the peer's have different parity, ids only grow, so an id that is not in the tables is either over
(issued before) or was never issued, and nothing need be remembered of calls that are over.

Every frame that comes in passes `judge`: the transition table decides, seen from its sender's part
(the callee of our own calls, the caller of those we serve). What we send is kept legal by the same
states: a call that is over or cancelled swallows what is still produced for it.

A call of ours that cannot be finished properly (an unreadable item, an oversize result) fails at
once here and stays in the table *muted* until its terminal comes, because the callee does not know.
"""

from __future__ import annotations

from purra_bridge.wire import events as ev
from purra_bridge.wire.codec import (
    MAX_DEPTH,
    ValueRefused,
    decode,
    decode_trusted,
    encode,
    encode_trusted,
)
from purra_bridge.wire.credits import FRAME_COST_BYTES, ReceiveWindow, SendWindow
from purra_bridge.wire.errors import ProtocolViolation, WireError, too_large, unreadable
from purra_bridge.wire.frames import FrameWriter
from purra_bridge.wire.header import BATCH, END, LAST_CALL_ID, RAW
from purra_bridge.wire.messages import CALL, CANCEL, CREDIT, DATA, ERROR, RESULT, fault, name_of
from purra_bridge.wire.tables import (
    CALLEE,
    CALLER,
    CANCELLED,
    DONE,
    END_INPUT,
    HOST,
    OPEN,
    SENT,
    call_steps,
    illegal,
)

__all__ = ["Calls"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from purra_bridge.wire.fragments import Assembly, Joiner

    Events = list[Any]

_BY_CALLER = call_steps(CALLER)
_BY_CALLEE = call_steps(CALLEE)
UNREAD_BYTES = 64 * 1024 * 1024
"""With more waiting to be written, a peer that still sends wrong calls is not worth an answer."""
_ENVELOPE_DEPTH = MAX_DEPTH + 1
"""A CALL and a BATCH hold values one level down."""


class _Call:
    """One open call. `window` is for what the callee sends, `place` where its CALL was queued."""

    __slots__ = ("ended", "muted", "parent", "place", "recv", "send", "state", "window")

    def __init__(self, window: int, parent: int | None, place: int) -> None:
        self.state = OPEN
        self.window = window
        self.parent = parent
        self.place = place
        self.send: SendWindow | None = None
        self.recv: ReceiveWindow | None = None
        self.muted = False  # ours: its terminal has been reported, the callee's is still to come
        self.ended = False  # served: its terminal waits behind its items


class Calls:
    """All calls of one connection. Its methods for incoming frames take (kind, flags, id, body,
    events) and add to `events`; they raise `ProtocolViolation` and nothing else."""

    __slots__ = (
        "_decode",
        "_encode",
        "_joiner",
        "_link",
        "_next_id",
        "_odd",
        "_prepaid",
        "_role",
        "active",
        "counters",
        "draining",
        "joining",
        "limits",
        "own",
        "peer_draining",
        "seen",
        "served",
        "writer",
    )

    def __init__(self, role: str, limits: dict[str, int], counters: dict[str, int]) -> None:
        self._role = role
        self._odd = 1 if role == HOST else 0
        # The host checks what it receives, the plugin end what its handlers return; what has been
        # checked once is not checked again.
        self._decode = decode if role == HOST else decode_trusted
        self._encode = encode_trusted if role == HOST else encode
        self.counters = counters
        self.own: dict[int, _Call] = {}
        self.served: dict[int, _Call] = {}
        self.joining: dict[int, Assembly] = {}
        self._joiner: Joiner | None = None
        self._prepaid: dict[int, int] = {}
        self._next_id = 1 if role == HOST else 2
        self.seen = 0
        self.active = False
        self.draining = False
        self.peer_draining = False
        self.limits = limits
        self.writer = FrameWriter(limits["max_frame"], limits["link_window"])
        self._link = ReceiveWindow(limits["link_window"])

    def agree(self, limits: dict[str, int]) -> None:
        """Sets the limits; before the first call only."""
        self.limits = limits
        self.writer.agree(limits["max_frame"], limits["link_window"])
        self._link = ReceiveWindow(limits["link_window"])

    # What we ask for

    def call(self, adapter: str, method: str, args: Any, options: dict[str, Any]) -> int:
        """Opens a call; see `Session.call`."""
        parent = options.get("parent")
        if parent is not None:
            if not _alive(self.served.get(parent)):
                raise WireError("parent_gone", f"call {parent} is over")
        elif self.draining or self.peer_draining:
            raise WireError("draining", "the connection takes no new calls")
        if self._next_id > LAST_CALL_ID:
            raise WireError("draining", "the call ids of the connection are used up")
        body = {"adapter": adapter, "method": method, "args": args}
        for name, value in options.items():
            if value or (value == 0 and name == "deadline_ms"):
                body[name] = value
        packed = self._encode(body, _ENVELOPE_DEPTH)
        if len(packed) > self.limits["max_message"]:
            raise too_large(len(packed), self.limits["max_message"])
        call_id = self._next_id
        self._next_id += 2
        place = self.writer.send(CALL, call_id, packed)
        window = options.get("window") or self.limits["window"]
        self.own[call_id] = _Call(window, parent, place)
        return call_id

    def cancel(self, call_id: int, reason: str) -> bool:
        """Cancels a call of ours; see `Session.cancel`."""
        call = self.own.get(call_id)
        if call is None or call.state is CANCELLED:
            return False
        if self._withdrawn(call_id, call):
            return True
        self._tell_cancelled(call_id, call, reason)
        return False

    def _withdrawn(self, call_id: int, call: _Call) -> bool:
        if call.send is not None or not self.writer.withdraw(call.place):
            return False
        del self.own[call_id]
        return True

    def _tell_cancelled(self, call_id: int, call: _Call, reason: str) -> None:
        call.state = _BY_CALLER[CANCEL][call.state]
        self.writer.forget(call_id)
        body = encode_trusted({"reason": reason})
        if call.place < 0 or self.writer.unsent(call.place):
            self.writer.send(CANCEL, call_id, body)  # never ahead of its own CALL
        else:
            self.writer.control(CANCEL, call_id, body)

    # What we answer

    def items(self, call_id: int, values: list[Any]) -> None:
        """Sends items of a call that we serve."""
        call = self.served.get(call_id)
        if call is None or call.ended or call.state is CANCELLED:
            self._unwanted(call_id)
        elif len(values) == 1:
            body = self._encode(values[0])
            if len(body) > self.limits["max_message"]:
                raise too_large(len(body), self.limits["max_message"], executed="yes")
            self.writer.data(0, call_id, body, self._sending(call_id, call))
        elif values:
            body = self._encode(values, _ENVELOPE_DEPTH)
            # One frame may overshoot the window: keep a batch within it, and within a frame.
            pieces = -(-len(body) // min(call.window, self.writer.max_frame))
            if pieces > 1:
                step = max(len(values) // pieces, 1)
                for at in range(0, len(values), step):
                    self.items(call_id, values[at : at + step])
            else:
                self.writer.data(BATCH, call_id, body, self._sending(call_id, call))

    def chunk(self, call_id: int, data: Any, end: bool) -> None:
        """Sends bytes: an upload of our call, or the stream of a call that we serve."""
        mine = call_id & 1 == self._odd
        call = (self.own if mine else self.served).get(call_id)
        if call is None or call.ended or call.state is CANCELLED or (mine and call.state is SENT):
            self._unwanted(call_id)
            return
        window = self._sending(call_id, call)
        step = self.writer.max_frame
        while len(data) > step:
            data = memoryview(data)
            self.writer.data(RAW, call_id, data[:step], window)
            data = data[step:]
        flags = RAW
        if mine and end:
            call.state = _BY_CALLER[END_INPUT][call.state]
            flags |= END
        self.writer.data(flags, call_id, data, window)

    def result(self, call_id: int, value: Any) -> None:
        """Ends a call that we serve with its result."""
        call = self.served.get(call_id)
        if call is None or call.ended:
            self._unwanted(call_id)
            return
        body = self._encode(value)
        if len(body) > self.limits["max_message"]:
            error = too_large(len(body), self.limits["max_message"], executed="yes")
            self.error(call_id, error)
            return
        self._finish(RESULT, call_id, call, body)

    def error(self, call_id: int, error: WireError) -> None:
        """Ends a call that we serve with an error."""
        call = self.served.get(call_id)
        if call is None or call.ended:
            self._unwanted(call_id)
            return
        try:
            body = self._encode(error.to_body())
        except ValueRefused:  # a detail that cannot be sent must not cost the call its terminal
            plain = WireError(
                error.code,
                error.message.encode(errors="replace").decode(),
                executed=error.executed,
                retry=error.retry,
            )
            body = self._encode(plain.to_body())
        self._finish(ERROR, call_id, call, body)

    def _finish(self, kind: int, call_id: int, call: _Call, body: bytes) -> None:
        self.writer.send(kind, call_id, body)
        if call_id in self.joining:  # an upload that nobody will read
            self.joiner.drop(call_id)
        if self.writer.waits(call_id):
            call.ended = True
        else:
            del self.served[call_id]
        if self.own:
            self._cancel_children(call_id)

    def _cancel_children(self, parent: int) -> None:
        for call_id, call in self.own.items():
            if call.parent == parent and call.state is not CANCELLED:
                self._tell_cancelled(call_id, call, "parent_gone")

    # Windows

    def sendable(self, call_id: int) -> bool:
        """True while DATA of this call would leave, or be dropped, at once."""
        call = (self.own if call_id & 1 == self._odd else self.served).get(call_id)
        if call is None or call.state is CANCELLED:
            return True
        if self.writer.link.credit <= 0:
            return False
        return call.send is None or call.send.credit > 0

    def consumed(self, call_id: int, cost: int) -> None:
        """Items or chunks of this cost have been taken."""
        mine = call_id & 1 == self._odd
        call = (self.own if mine else self.served).get(call_id)
        if call is not None and call.recv is not None:
            due = call.recv.consume(cost)
            wanted = call.state is OPEN or (mine and call.state is SENT)
            if due and wanted:
                self.writer.control(CREDIT, call_id, encode_trusted(due))
        if self._prepaid and call_id in self._prepaid:
            free = min(cost, self._prepaid[call_id])
            self._prepaid[call_id] -= free
            if not self._prepaid[call_id]:
                del self._prepaid[call_id]
            cost -= free
        self._return_link(cost)

    def _return_link(self, cost: int) -> None:
        due = self._link.consume(cost)
        if due:
            self.writer.control(CREDIT, 0, encode_trusted(due))

    def _sending(self, call_id: int, call: _Call) -> SendWindow:
        if call.send is None:
            mine = call_id & 1 == self._odd
            call.send = SendWindow(self.limits["raw_window"] if mine else call.window)
        return call.send

    # What comes in

    def judge(self, call_id: int, kind: int) -> _Call | None:
        """The call of an incoming frame, moved on by the table; None if the call is over."""
        if call_id & 1 == self._odd:
            call = self.own.get(call_id)
            issued = call_id < self._next_id
            steps = _BY_CALLEE
        else:
            call = self.served.get(call_id)
            issued = call_id <= self.seen
            steps = _BY_CALLER
        if call is None:
            if not issued or not call_id:
                raise ProtocolViolation("unknown_id", f"{name_of(kind)} on id {call_id}")
            if DONE not in steps[kind]:
                raise illegal(f"{name_of(kind)} on id {call_id}", kind, DONE)
            self.count("late_frames")
            return None
        to = steps[kind].get(call.state)
        if to is None:
            raise illegal(f"{name_of(kind)} on id {call_id}", kind, call.state)
        if to is not DONE:  # a call that is done is not kept
            call.state = to
        return call

    def on_result(self, kind: int, flags: int, call_id: int, body: Any, events: Events) -> None:
        """RESULT: the terminal of a call of ours."""
        if self.ends(kind, call_id, events):
            return
        try:
            value = self._decode(body)
        except ValueRefused as refused:
            events.append(ev.Failed(call_id, unreadable("RESULT", refused)))
        else:
            events.append(ev.Returned(call_id, value))

    def on_error(self, kind: int, flags: int, call_id: int, body: Any, events: Events) -> None:
        """ERROR on an id: the other terminal of a call of ours."""
        if self.ends(kind, call_id, events):
            return
        try:
            decoded = self._decode(body, _ENVELOPE_DEPTH)
        except ValueRefused as refused:
            events.append(ev.Failed(call_id, unreadable("ERROR", refused)))
            return
        wrong = fault(ERROR, decoded)
        error = WireError("contract_violation", wrong) if wrong else WireError.from_body(decoded)
        events.append(ev.Failed(call_id, error))

    def ends(self, kind: int, call_id: int, events: Events) -> bool:
        """Takes a call of ours off the table; True if its end has been reported already."""
        call = self.judge(call_id, kind)
        if call is None:
            return True
        del self.own[call_id]
        self.writer.forget(call_id)
        if self.served:
            for child_id, child in list(self.served.items()):
                if child.parent == call_id and child.state is not CANCELLED:
                    self._caller_left(child_id, child, "parent_gone", events)
        if call.muted:
            self.count("late_frames")
        return call.muted

    def on_data(self, kind: int, flags: int, call_id: int, body: Any, events: Events) -> None:
        """DATA in one frame."""
        cost = len(body) + FRAME_COST_BYTES
        self._link.charge(cost)
        self.take_data(flags, call_id, body, cost, events)

    def take_data(
        self, flags: int, call_id: int, body: Any, cost: int, events: Events, prepaid: bool = False
    ) -> None:
        """A whole DATA message that costs its stream `cost`; the link is paid if `prepaid`."""
        end = bool(flags & END)
        call = self.judge(call_id, END_INPUT if end else DATA)
        link_cost = 0 if prepaid else cost
        if call is None or self.unread(call):
            self._return_link(link_cost)
            return
        if call.recv is None:
            mine = call_id & 1 == self._odd
            call.recv = ReceiveWindow(call.window if mine else self.limits["raw_window"])
        call.recv.charge(cost)
        if flags & RAW:
            events.append(ev.Chunk(call_id, body, cost, end))
        else:
            try:
                values = self._values(flags, body)
            except ValueRefused as refused:
                self._return_link(link_cost)
                self.spoil(call_id, call, unreadable("DATA", refused, "maybe"), events)
                return
            events.append(ev.Items(call_id, values, cost, end))
        if prepaid:
            self._prepaid[call_id] = self._prepaid.get(call_id, 0) + cost

    def unread(self, call: _Call) -> bool:
        """True, and counted, if nobody wants more DATA of a call that is still open."""
        late = call.muted or call.ended or call.state is CANCELLED
        if late:
            self.count("late_frames")
        return late

    def _values(self, flags: int, body: Any) -> list[Any]:
        if not flags & BATCH:
            return [self._decode(body)]
        values = self._decode(body, _ENVELOPE_DEPTH)
        if type(values) is not list:
            raise ValueRefused("a batch that is not a list", offset=0)
        return values

    def spoil(self, call_id: int, call: _Call, error: WireError, events: Events) -> None:
        """Gives a call up because of DATA that cannot be used: ours fails now and is cancelled,
        one that we serve gets its error now and its handler is told."""
        if call_id & 1 == self._odd:
            call.muted = True
            if call.state is not CANCELLED:
                self._tell_cancelled(call_id, call, error.code)
            events.append(ev.Failed(call_id, error))
            return
        code = "invalid_argument" if error.code == "contract_violation" else error.code
        self.error(call_id, WireError(code, error.message, executed="maybe", detail=error.detail))
        events.append(ev.Cancelled(call_id, code))

    def on_credit(self, kind: int, flags: int, call_id: int, body: Any, events: Events) -> None:
        """CREDIT of a stream, or of the whole link on id 0."""
        try:
            count = self._decode(body)
        except ValueRefused as refused:
            raise ProtocolViolation("flow", f"unreadable CREDIT: {refused}") from None
        if call_id:
            call = self.judge(call_id, CREDIT)
            if call is None:
                return
            if call.send is None:
                raise ProtocolViolation("flow", f"CREDIT on id {call_id}, which sent nothing")
            call.send.add(count)
        else:
            self.writer.link.add(count)
        self._pump()
        events.append(ev.Credited(call_id))

    def _pump(self) -> None:
        for call_id in self.writer.pump():
            if call_id in self.served and self.served[call_id].ended:
                del self.served[call_id]

    def on_cancel(self, kind: int, flags: int, call_id: int, body: Any, events: Events) -> None:
        """CANCEL of a call that we serve."""
        before = self.served.get(call_id)
        again = before is not None and before.state is CANCELLED
        call = self.judge(call_id, CANCEL)
        if call is None:
            if call_id in self.joining:  # its CALL has not arrived completely
                self.joining[call_id].cancelled = True
        elif not again:
            self._caller_left(call_id, call, self._reason(body), events)

    def _caller_left(self, call_id: int, call: _Call, reason: str, events: Events) -> None:
        call.state = CANCELLED
        if not self.writer.forget(call_id):
            self._pump()
        if not call.ended:
            events.append(ev.Cancelled(call_id, reason))
            self._cancel_children(call_id)

    def _reason(self, body: Any) -> str:
        # Whatever the reason looks like, the caller has gone.
        try:
            decoded = self._decode(body)
        except ValueRefused:
            return ""
        return "" if fault(CANCEL, decoded) else str(decoded.get("reason", ""))

    def on_call(self, kind: int, flags: int, call_id: int, body: Any, events: Events) -> None:
        """CALL in one frame."""
        self.issue(call_id)
        self.serve(call_id, body, events)

    def issue(self, call_id: int) -> None:
        """The peer opens this id: once, and in order."""
        if not call_id or call_id & 1 == self._odd or call_id > LAST_CALL_ID:
            raise ProtocolViolation("unknown_id", f"CALL on id {call_id}")
        if call_id <= self.seen:
            raise ProtocolViolation("reused_id", f"CALL on id {call_id}")
        self.seen = call_id

    def serve(self, call_id: int, body: Any, events: Events) -> None:
        """A whole CALL on an id that was just opened."""
        try:
            decoded = self._decode(body, _ENVELOPE_DEPTH)
        except ValueRefused as refused:
            self.turn_down(call_id, WireError("invalid_argument", f"unreadable CALL: {refused}"))
            return
        wrong = fault(CALL, decoded)
        refusal = WireError("invalid_argument", wrong) if wrong else self._refusal(decoded)
        if refusal is not None:
            self.turn_down(call_id, refusal)
            return
        window = decoded.get("window") or self.limits["window"]
        self.served[call_id] = _Call(window, decoded.get("parent"), -1)
        events.append(ev.Called(call_id, decoded, window))

    def _refusal(self, body: dict[str, Any]) -> WireError | None:
        """Why a well-formed call is not served, if so."""
        parent = body.get("parent")
        if not self.active:
            return WireError("not_active", "called before READY")
        if parent is None and self._role == HOST:
            return WireError("invalid_argument", "a callback names the call it belongs to")
        if parent is not None and not _alive(self.own.get(parent)):
            return WireError("parent_gone", f"call {parent} is over")
        if self.draining and parent is None:
            return WireError("draining", "the connection takes no new calls")
        if len(self.served) >= self.limits["inflight"]:
            return WireError("overloaded", f"{self.limits['inflight']} calls are open already")
        return None

    def turn_down(self, call_id: int, error: WireError) -> None:
        """Answers a call that never reaches the owner."""
        self.count("refused_calls")
        if self.writer.pending_bytes > UNREAD_BYTES:
            raise ProtocolViolation("flow", "the answers to wrong calls are not read")
        self.writer.send(ERROR, call_id, encode_trusted(error.to_body()))

    # Frames that are not whole messages

    @property
    def joiner(self) -> Joiner:
        """Who handles frames that are not a whole message; most connections never need it."""
        if self._joiner is None:
            from purra_bridge.wire.fragments import Joiner

            self._joiner = Joiner(self)
        return self._joiner

    def charge_link(self, cost: int) -> None:
        """Bytes that came in and are not kept for the owner: counted, and returned at once."""
        self._link.charge(cost)
        self._return_link(cost)

    # Ends of the connection

    def peer_drains(self, last_id: int, events: Events) -> None:
        """The peer takes no new calls, and has not started those of ours above `last_id`."""
        self.peer_draining = True
        for call_id, call in list(self.own.items()):
            if call_id <= last_id or call.parent is not None or call.muted:
                continue
            call.muted = not self._withdrawn(call_id, call)
            events.append(ev.Failed(call_id, WireError("draining", "the call was not started")))

    def close(self, code: str, message: str, detail: dict[str, Any], events: Events) -> None:
        """The link is gone: fails what is pending, cancels what is being served."""
        for call_id, call in self.own.items():
            if not call.muted:
                executed = "no" if self.writer.unsent(call.place) else "maybe"
                error = WireError(code, message, executed=executed, detail=dict(detail))
                events.append(ev.Failed(call_id, error))
        events.extend(
            ev.Cancelled(call_id, "closed")
            for call_id, call in self.served.items()
            if call.state is not CANCELLED and not call.ended
        )
        self.own.clear()
        self.served.clear()
        self.joining.clear()
        self.active = False

    def count(self, what: str) -> None:
        """One more of what the owner never sees."""
        self.counters[what] = self.counters.get(what, 0) + 1

    def _unwanted(self, call_id: int) -> None:
        mine = call_id & 1 == self._odd
        if call_id <= 0 or (call_id >= self._next_id if mine else call_id > self.seen):
            raise ValueError(f"no call has the id {call_id}")
        self.count("unwanted_answers")


def _alive(parent: _Call | None) -> bool:
    """True if calls may be made on behalf of `parent`."""
    if parent is None or parent.muted or parent.ended:
        return False
    return parent.state is not CANCELLED
