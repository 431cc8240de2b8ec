"""One end of one connection, without I/O, clock or thread. Both ends are this class.

    read into `buffer()`, say `received(n)`  -> a list of events (see `events`)
    call the methods                         -> bytes to write, given out by `take()`

It never blocks and holds no time: deadlines are carried, whoever owns the session enforces them.
One session is used by one thread at a time. A `ProtocolViolation` out of `received` ends the
connection; `eof()` is then, and in any other case of loss, what fails the calls that are pending.

What may be sent when is not decided here but in `tables`; what a frame of a call means is in
`calls`. This file knows the connection: handshake, readiness, draining, and which of its states
gives which frames to which handler.

Not chosen: one session class for each role (the rules would be written twice and drift apart);
callbacks instead of returned events (a handler could then re-enter the session in the middle of a
read); a queue of decoded frames between reading and handling (nothing would bound it).
"""

from __future__ import annotations

from purra_bridge.wire import events as ev
from purra_bridge.wire.calls import Calls
from purra_bridge.wire.codec import ValueRefused, decode, encode, encode_trusted
from purra_bridge.wire.errors import ProtocolViolation, WireError, too_large
from purra_bridge.wire.frames import BUFFER_BYTES, OVERSIZE, FrameReader
from purra_bridge.wire.header import MORE, MUST_UNDERSTAND
from purra_bridge.wire.messages import (
    CALL,
    CANCEL,
    CHANGED,
    CREDIT,
    DATA,
    DRAIN,
    ERROR,
    HELLO,
    LOG,
    NAMES,
    PING,
    PONG,
    READY,
    RESULT,
    STATUS,
    WELCOME,
    agreed_limits,
    fault,
    full_limits,
    name_of,
)
from purra_bridge.wire.tables import (
    CLOSED,
    HOST,
    PLUGIN,
    READY_STATE,
    REFUSE_INPUT,
    REFUSED,
    ROUTABLE,
    START,
    connection_steps,
    illegal,
)

__all__ = ["HELLO_BYTES", "Session"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELLO_BYTES = 64 * 1024
"""The largest frame before WELCOME (HSK-007): nothing is agreed with a stranger."""
LOG_PENDING_BYTES = 1024 * 1024
"""With more than this waiting to be written, log lines are dropped and counted."""

_RECORDS = {
    READY: ev.Ready,
    PONG: ev.Pong,
    STATUS: ev.Status,
    LOG: ev.Log,
    CHANGED: ev.Changed,
}
_NO_OPTIONS: dict[str, Any] = {}


class Session:
    """One end of a connection.

    `role` is "host" or "plugin"; `limits` replaces defaults of `messages.LIMITS`; `buffer_bytes`
    is the size of the read buffer. Public attributes, to be read only: `state` (a state of
    `tables.CONNECTION_STATES`), `counters` (what was ignored or dropped, by name).
    """

    __slots__ = (
        "_calls",
        "_fault",
        "_handlers",
        "_joining",
        "_legal",
        "_limits",
        "_peer",
        "_reader",
        "_role",
        "_writer",
        "counters",
        "state",
    )

    def __init__(
        self,
        role: str,
        limits: dict[str, int] | None = None,
        *,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        if role not in (HOST, PLUGIN):
            raise ValueError(f"a role is {HOST!r} or {PLUGIN!r}, not {role!r}")
        self._role = role
        self._peer = PLUGIN if role == HOST else HOST
        self._limits = full_limits(limits or {})
        self.counters: dict[str, int] = {}
        calls = self._calls = Calls(role, self._limits, self.counters)
        self._joining = calls.joining
        self._writer = calls.writer
        first = HELLO_BYTES if role == HOST else self._limits["max_frame"]
        self._reader = FrameReader(first, buffer_bytes)
        self._fault: ProtocolViolation | None = None
        self._handlers = {
            HELLO: self._on_hello,
            WELCOME: self._on_welcome,
            READY: self._on_record,
            PING: self._on_ping,
            PONG: self._on_record,
            DRAIN: self._on_drain,
            STATUS: self._on_record,
            LOG: self._on_record,
            CHANGED: self._on_record,
            CALL: calls.on_call,
            DATA: calls.on_data,
            CREDIT: calls.on_credit,
            RESULT: calls.on_result,
            ERROR: self._on_error,
            CANCEL: calls.on_cancel,
        }
        self.state = ""
        self._enter(START)

    # Reading

    def buffer(self) -> memoryview:
        """Where the next bytes are to be read into; valid until `received`."""
        return self._reader.buffer()

    def received(self, count: int) -> list[Any]:
        """`count` bytes are in `buffer()`; returns what they mean, in order.

        Raises `ProtocolViolation`, whose `events` came before the offence; nothing else. The
        session then takes no more bytes: `refuse` may tell the peer why, `eof` ends it.
        """
        if self._fault is not None:
            raise ProtocolViolation(self._fault.reason, self._fault.message)
        events: list[Any] = []
        try:
            for kind, flags, call_id, body in self._reader.advance(count):
                handle = self._legal.get(kind)
                if handle is None or flags & MORE or self._joining:
                    self._unusual(kind, flags, call_id, body, events)
                else:
                    handle(kind, flags, call_id, body, events)
        except ProtocolViolation as violation:
            violation.events = events
            self._fault = violation
            raise
        return events

    def receive(self, data: Any) -> list[Any]:
        """As `received`, for bytes that are at hand already."""
        events: list[Any] = []
        view = memoryview(data)
        try:
            while view:
                space = self.buffer()
                count = min(len(space), len(view))
                space[:count] = view[:count]
                events += self.received(count)
                view = view[count:]
        except ProtocolViolation as violation:
            violation.events = events + violation.events
            raise
        return events

    def eof(self) -> list[Any]:
        """No more bytes will come: fails our pending calls, cancels those that we serve.

        Everything received before has been handled by then; a frame that was cut off is dropped.
        Calls that were never given out by `take` were not executed, others may have been.
        """
        events: list[Any] = []
        if self.state == CLOSED:
            return events
        if self._reader.inside_frame:
            self._count("cut_off_frames")
        violation = self._fault
        if violation is None:
            self._calls.close("closed", "the connection is closed", {}, events)
        else:
            detail = {"reason": violation.reason}
            self._calls.close("protocol_violation", str(violation), detail, events)
        self._enter(CLOSED)
        return events

    # Writing

    @property
    def pending_bytes(self) -> int:
        """How much `take` would give out now."""
        return self._writer.pending_bytes

    def take(self) -> list[Any]:
        """All bytes that are to be written now, control frames first; they count as written.

        Buffers that were given to `chunk` may be among them: do not change those before writing.
        """
        return self._writer.take()

    # The connection

    @property
    def limits(self) -> dict[str, int]:
        """The limits in force: ours, and after the handshake the agreed ones."""
        return self._calls.limits

    @property
    def calls(self) -> int:
        """Calls of ours whose terminal has not come, cancelled ones included."""
        return len(self._calls.own)

    @property
    def receiving(self) -> bool:
        """A frame has begun and is not complete."""
        return self._reader.inside_frame

    @property
    def serving(self) -> int:
        """Calls of the peer that have not got their terminal."""
        return len(self._calls.served)

    def negotiate(self, theirs: dict[str, Any]) -> dict[str, int]:
        """Puts the smaller of both ends' limits in force and returns them.

        The host calls it with HELLO.limits and sends the result as WELCOME.limits; a plugin's
        session does it by itself. Raises `ProtocolViolation` for a limit that makes no sense.
        """
        try:
            agreed = agreed_limits(self._limits, theirs)
        except ValueError as error:
            raise ProtocolViolation("bad_frame", str(error)) from None
        self._calls.agree(agreed)
        return agreed

    def adopt(self, welcome: dict[str, Any]) -> None:
        """Takes over after a handshake that somebody else did on this connection: HELLO is sent,
        `welcome` is the body that answered it (the bootstrap of a worker does that)."""
        self._move(PLUGIN, HELLO)
        self._move(HOST, WELCOME)
        self._welcomed(welcome)

    def hello(self, body: dict[str, Any]) -> None:
        """HELLO, the plugin's first frame. `WireError(too_large)` if over `HELLO_BYTES`."""
        self._send(HELLO, body, HELLO_BYTES)

    def welcome(self, body: dict[str, Any]) -> None:
        """WELCOME; `body["limits"]` is what `negotiate` returned."""
        self._send(WELCOME, body)
        self._reader.max_body = self._calls.limits["max_frame"]

    def ready(self, body: dict[str, Any]) -> None:
        """READY: we may be called from now on."""
        self._send(READY, body)

    def ping(self, token: Any = None) -> None:
        """PING; the peer answers with the same token."""
        self._send(PING, {"token": token})

    def pong(self, token: Any = None, lag_ms: float = 0, inflight: int = 0, rss: int = 0) -> None:
        """PONG: `lag_ms` of our own loop, open calls, resident memory in bytes."""
        body = {"token": token, "lag_ms": lag_ms, "inflight": inflight, "rss": rss}
        self._send(PONG, body)

    def drain(self, reason: str, deadline_ms: int | None = None) -> None:
        """DRAIN: we take no new calls; those that the peer had made until now go on."""
        body: dict[str, Any] = {"reason": reason, "last_id": self._calls.seen}
        if deadline_ms is not None:
            body["deadline_ms"] = deadline_ms
        self._send(DRAIN, body)
        self._calls.draining = True

    def status(self, body: dict[str, Any]) -> None:
        """STATUS: phase, extend_ms, hold, text."""
        self._send(STATUS, body)

    def changed(self, body: dict[str, Any]) -> None:
        """CHANGED: a dynamic catalog has a new epoch."""
        self._send(CHANGED, body)

    def refuse(self, error: WireError) -> None:
        """ERROR on id 0: gives the connection up and tells the peer why. Write, then close."""
        if self.state not in (REFUSED, CLOSED):
            self._move(self._role, REFUSE_INPUT)
            self._writer.send(ERROR, 0, encode_trusted(error.to_body()))

    def log(
        self,
        level: str,
        msg: str,
        fields: dict[str, Any] | None = None,
        call: int | None = None,
    ) -> None:
        """LOG. Never fails: a line that cannot be sent is dropped and counted."""
        legal = LOG in _STEPS[self._role][self.state]
        if not legal or self._writer.pending_bytes > LOG_PENDING_BYTES:
            self._count("dropped_logs")
            return
        body: dict[str, Any] = {"level": level, "msg": msg}
        if fields:
            body["fields"] = fields
        if call is not None:
            body["call"] = call
        try:
            self._send(LOG, body)
        except (ValueRefused, WireError):
            self._count("dropped_logs")

    # Calls of ours

    def call(
        self, adapter: str, method: str, args: Any, options: dict[str, Any] = _NO_OPTIONS
    ) -> int:
        """CALL; returns its id. It ends with exactly one `Returned` or `Failed` event.

        `options`, each may be absent or None: `window` (bytes of items under way, 0 = the agreed
        default), `deadline_ms` (what is left), `parent` (id of the call being served; the plugin
        end must give it), `key` (idempotency), `trace` (map). Raises `WireError` with
        executed = no (not_active, draining, parent_gone, too_large, closed), `ValueRefused`.
        """
        if self.state is not READY_STATE or self._fault is not None:
            self._check_routable()
        return self._calls.call(adapter, method, args, options)

    def cancel(self, call_id: int, reason: str = "") -> bool:
        """CANCEL, once; nothing if the call is over. Its terminal is still to come, unless this
        returns True: the CALL had not been taken yet, is withdrawn, and no event will come."""
        return self._calls.cancel(call_id, reason)

    def end_upload(self, call_id: int) -> None:
        """The upload of a call of ours is complete."""
        self._calls.chunk(call_id, b"", True)

    def consumed(self, call_id: int, cost: int) -> None:
        """The items or chunks of this `cost` have been taken: credit goes back at half a window.

        Every cost is to be handed back once, also when the call is over or nobody wants the items.
        """
        self._calls.consumed(call_id, cost)

    # Calls of the peer

    def items(self, call_id: int, values: list[Any]) -> None:
        """DATA with items of a call that we serve, as few frames as fit the window.

        Give some while `sendable`; what is over the credit waits inside and is sent as it comes.
        Dropped if the call is over or cancelled. Raises `ValueRefused`; `WireError(too_large)` for
        one item over `max_message`.
        """
        self._calls.items(call_id, values)

    def chunk(self, call_id: int, data: Any, end: bool = False) -> None:
        """DATA with plain bytes, of a call that we serve or of our own upload (`end`: its last).

        The buffer is not copied: leave it unchanged until it is written. Credit as with `items`.
        """
        self._calls.chunk(call_id, data, end)

    def sendable(self, call_id: int) -> bool:
        """True while DATA of this call leaves at once; `Credited` says when to ask again.

        Also true for a call that is over or cancelled: what is sent for it is dropped.
        """
        return self._calls.sendable(call_id)

    def result(self, call_id: int, value: Any) -> None:
        """RESULT: ends a call that we serve. Nothing if it has ended, for instance by `eof`.

        Raises `ValueRefused`; the call then still needs its terminal.
        """
        self._calls.result(call_id, value)

    def error(self, call_id: int, error: WireError) -> None:
        """ERROR: ends a call that we serve. Nothing if it has ended. Does not raise."""
        self._calls.error(call_id, error)

    # Inside

    def _enter(self, state: str) -> None:
        if state is self.state:
            return
        self.state = state
        self._calls.active = state in ROUTABLE
        steps = _STEPS[self._peer][state]
        self._legal = {
            kind: handler
            for kind, handler in self._handlers.items()
            if kind in steps or (kind == ERROR and REFUSE_INPUT in steps)
        }

    def _move(self, sender: str, kind: int) -> None:
        to = _STEPS[sender][self.state].get(kind)
        if to is not None:
            self._enter(to)
        elif sender == self._peer:
            raise self._illegal(kind)
        else:
            code = "closed" if self.state in (CLOSED, REFUSED) else "not_active"
            raise WireError(code, f"{_name(kind)} cannot be sent while {self.state}", executed="no")

    def _illegal(self, kind: int) -> ProtocolViolation:
        return illegal(_name(kind), kind, self.state)

    def _send(self, kind: int, body: dict[str, Any], limit: int = 0) -> None:
        packed = encode(body) if self._role == PLUGIN else encode_trusted(body)
        limit = limit or self._writer.max_frame
        if len(packed) > limit:
            raise too_large(len(packed), limit)
        self._move(self._role, kind)
        if kind in (PING, PONG) and self.state in ROUTABLE:  # else it could overtake WELCOME
            self._writer.control(kind, 0, packed)
        else:
            self._writer.send(kind, 0, packed)

    def _check_routable(self) -> None:
        if self._fault is not None:
            raise WireError("protocol_violation", str(self._fault), executed="no")
        if self.state in (CLOSED, REFUSED):
            raise WireError("closed", "the connection is closed", executed="no")
        if self.state not in ROUTABLE:
            raise WireError("not_active", f"the connection is {self.state}")

    def _unusual(self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]) -> None:
        """Everything `received` does not hand straight to its handler."""
        bare = kind & ~OVERSIZE
        if bare not in NAMES:
            if self.state is START:
                raise self._illegal(bare)
            if bare & MUST_UNDERSTAND:
                raise ProtocolViolation("unknown_type", f"type {bare} must be understood")
            self._count("unknown_types")
            return
        handle = self._legal.get(bare)
        if handle is None:
            raise self._illegal(bare)
        if kind & OVERSIZE:
            if call_id == 0:
                raise ProtocolViolation("bad_frame", f"{_name(bare)} of {body} bytes")
            self._calls.joiner.oversize(bare, flags, call_id, body, events)
        elif flags & MORE or (call_id in self._joining and bare not in (CREDIT, CANCEL)):
            self._calls.joiner.fragment(bare, flags, call_id, body, events)
        else:
            handle(bare, flags, call_id, body, events)

    def _body(self, kind: int, call_id: int, body: Any) -> dict[str, Any]:
        """The checked body of a connection message; nothing about one may be wrong."""
        if call_id:
            raise ProtocolViolation("bad_frame", f"{_name(kind)} on id {call_id}")
        try:
            decoded = decode(body)
        except ValueRefused as refused:
            raise ProtocolViolation("bad_frame", f"unreadable {_name(kind)}: {refused}") from None
        wrong = fault(kind, decoded)
        if wrong:
            raise ProtocolViolation("bad_frame", wrong)
        self._move(self._peer, kind)
        return decoded  # type: ignore[no-any-return]

    def _on_hello(self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]) -> None:
        events.append(ev.Hello(self._body(kind, call_id, body)))

    def _on_welcome(
        self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]
    ) -> None:
        decoded = self._body(kind, call_id, body)
        self._welcomed(decoded)
        events.append(ev.Welcome(decoded))

    def _welcomed(self, body: dict[str, Any]) -> None:
        agreed = self.negotiate(body["limits"])
        self._reader.max_body = agreed["max_frame"]

    def _on_record(self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]) -> None:
        events.append(_RECORDS[kind](self._body(kind, call_id, body)))

    def _on_ping(self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]) -> None:
        events.append(ev.Ping(self._body(kind, call_id, body).get("token")))

    def _on_drain(self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]) -> None:
        decoded = self._body(kind, call_id, body)
        self._calls.peer_drains(decoded["last_id"], events)
        events.append(ev.Drain(decoded))

    def _on_error(self, kind: int, flags: int, call_id: int, body: Any, events: list[Any]) -> None:
        if call_id:
            if kind not in _STEPS[self._peer][self.state]:
                raise self._illegal(kind)
            self._calls.on_error(kind, flags, call_id, body, events)
            return
        try:
            decoded = decode(body)
        except ValueRefused as refused:
            raise ProtocolViolation("bad_frame", f"unreadable ERROR: {refused}") from None
        wrong = fault(kind, decoded)
        if wrong:
            raise ProtocolViolation("bad_frame", wrong)
        self._move(self._peer, REFUSE_INPUT)
        events.append(ev.Refused(WireError.from_body(decoded)))

    def _count(self, what: str) -> None:
        self.counters[what] = self.counters.get(what, 0) + 1


_STEPS = {HOST: connection_steps(HOST), PLUGIN: connection_steps(PLUGIN)}


def _name(kind: int) -> str:
    return "ERROR on id 0" if kind == REFUSE_INPUT else name_of(kind)
