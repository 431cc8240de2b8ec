"""Hosts that read or judge frames and values wrongly."""

from __future__ import annotations

import time
from typing import Any

import msgpack  # type: ignore[import-untyped]

from purra_bridge.wire import calls as wire_calls
from purra_bridge.wire.calls import Calls
from purra_bridge.wire.codec import ValueRefused, decode
from purra_bridge.wire.credits import SendWindow
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.events import Returned
from purra_bridge.wire.frames import OVERSIZE, FrameReader, FrameWriter
from purra_bridge.wire.header import HEADER_BYTES, unpack
from purra_bridge.wire.messages import NAMES
from purra_bridge.wire.session import Session
from purra_hosts.process.inflight import InFlight
from purra_hosts.process.instance import Instance
from purra_hosts.process.pump import Pump
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _assumes_whole_header(patch: Patch) -> None:
    received = Session.received

    def hasty(self: Session, count: int) -> list[Any]:
        return received(self, count) if count >= HEADER_BYTES else []  # and forgets the bytes

    patch(Session, "received", hasty)


def _drops_second(patch: Patch) -> None:
    received = Session.received
    patch(Session, "received", lambda self, count: received(self, count)[:1])


def _allocates_claims(patch: Patch) -> None:
    advance = FrameReader.advance

    def trusting(self: FrameReader, count: int) -> Any:
        if count >= HEADER_BYTES:
            bytearray(min(unpack(self._buffer, 0)[0], 64 * 1024 * 1024))
        return advance(self, count)

    patch(FrameReader, "advance", trusting)


def _one_more_byte(patch: Patch) -> None:
    welcome = Session.welcome

    def generous(self: Session, body: dict[str, Any]) -> None:
        welcome(self, body)
        self._reader.max_body += 1

    patch(Session, "welcome", generous)


def _delivers_truncated(patch: Patch) -> None:
    end = Pump._end

    def eager(self: Pump) -> None:
        reader = self._session._reader
        cut = bytes(reader._buffer[: reader._have])
        if not self.ended and len(cut) > HEADER_BYTES:
            self._owner.on_events([Returned(unpack(cut, 0)[1], cut[HEADER_BYTES:])])
        end(self)

    patch(Pump, "_end", eager)


def _decoding(change: Any) -> Any:
    """A sabotage of the decoder: `change` gets the body."""

    def sabotage(patch: Patch) -> None:
        def decoder(body: Any, _depth: int = 0) -> Any:
            try:
                return change(bytes(body))
            except ValueRefused:
                raise
            except Exception as error:  # whatever the lax decoder stumbles over
                raise ValueRefused(str(error), offset=0) from None

        patch(wire_calls, "decode", decoder)

    return sabotage


def _first_only(body: bytes) -> Any:
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(body)
    return unpacker.unpack()


def _whole_floats_are_integers(body: bytes) -> Any:
    value = decode(body)
    return int(value) if type(value) is float and value.is_integer() else value


def _bytes_are_text(body: bytes) -> Any:
    value = decode(body)
    return value.decode("latin-1") if type(value) is bytes else value


def _skips_all(patch: Patch) -> None:
    unusual = Session._unusual

    def careless(self: Session, kind: int, *rest: Any) -> None:
        if kind & ~OVERSIZE in NAMES:
            unusual(self, kind, *rest)

    patch(Session, "_unusual", careless)


def _looks_up_blindly(patch: Patch) -> None:
    judge = Calls.judge

    def blind(self: Calls, call_id: int, kind: int) -> Any:
        self.own[call_id]  # KeyError for whatever is over or never was
        return judge(self, call_id, kind)

    patch(Calls, "judge", blind)


def _accepts_stray(patch: Patch) -> None:
    judge = Calls.judge

    def lenient(self: Calls, call_id: int, kind: int) -> Any:
        try:
            return judge(self, call_id, kind)
        except ProtocolViolation as violation:
            if violation.reason != "unknown_id":
                raise
            return None

    patch(Calls, "judge", lenient)


def _opens_again(patch: Patch) -> None:
    issue = Calls.issue

    def forgetful(self: Calls, call_id: int) -> None:
        self.seen = 0
        issue(self, call_id)

    patch(Calls, "issue", forgetful)


def _last_wins(patch: Patch) -> None:
    returned = InFlight.returned
    last: dict[int, Any] = {}

    def on_result(self: Calls, _kind: int, _flags: int, call: int, body: Any, out: Any) -> None:
        self.own.pop(call, None)
        out.append(Returned(call, decode(body)))

    def late(self: InFlight, call_id: int, value: Any) -> None:
        last[call_id] = value
        self._loop.call_later(0.02, lambda: returned(self, call_id, last[call_id]))

    patch(Calls, "on_result", on_result)
    patch(InFlight, "returned", late)


def _aborts_all(patch: Patch) -> None:
    made: list[Instance] = []
    init, violated = Instance.__init__, Instance.on_violation

    def remember(self: Instance, *arguments: Any) -> None:
        init(self, *arguments)
        made.append(self)

    def panic(self: Instance, violation: ProtocolViolation) -> None:
        for instance in made:
            violated(instance, violation)

    patch(Instance, "__init__", remember)
    patch(Instance, "on_violation", panic)


def _blocks_in_a_read(patch: Patch) -> None:
    updated = Pump.buffer_updated

    def blocking(self: Pump, nbytes: int) -> None:
        updated(self, nbytes)
        if self._session._reader.inside_frame:
            time.sleep(0.06)

    patch(Pump, "buffer_updated", blocking)


def _sends_large_ones_whole(patch: Patch) -> None:
    agree = FrameWriter.agree

    def unbounded(self: FrameWriter, max_frame: int, link_window: int) -> None:
        agree(self, max_frame, link_window)
        self.link = SendWindow(1 << 40)

    patch(FrameWriter, "agree", unbounded)


def _lets_unicode_errors_out(patch: Patch) -> None:
    patch(wire_calls, "decode", lambda body, _depth=0: msgpack.unpackb(body))


def _misses_falsy(patch: Patch) -> None:
    returned = InFlight.returned

    def picky(self: InFlight, call_id: int, value: Any) -> None:
        if value:
            returned(self, call_id, value)
        else:
            self.failed(call_id, WireError("internal", "no result"))

    patch(InFlight, "returned", picky)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("assumes-whole-header", "FRM-001", "WELCOME within", _assumes_whole_header),
    broken("drops-second-in-buffer", "FRM-002", "no end within", _drops_second),
    broken("bytearray(size)", "FRM-003", "more memory for a claim", _allocates_claims),
    broken("off-by-one-max", "FRM-004", "the error of a frame of 4097 bytes", _one_more_byte),
    broken("delivers-truncated", "FRM-005", "the loss of the connection", _delivers_truncated),
    broken("unpack-first-ignore-rest", "FRM-006", "two values", _decoding(_first_only)),
    broken(
        "msgpack-defaults",
        "FRM-007",
        "a duplicate key",
        _decoding(lambda body: msgpack.unpackb(body, strict_map_key=False)),
    ),
    broken("recursive-decoder", "FRM-008", "nested 65 deep", _decoding(msgpack.unpackb)),
    broken("float-to-int", "FRM-009", "float 0.0", _decoding(_whole_floats_are_integers)),
    broken("str-for-bytes", "FRM-009", "bytes, empty", _decoding(_bytes_are_text)),
    broken("ignores-all-unknown", "FRM-010", "state DOWN", _skips_all),
    broken("KeyError-kills-host", "FRM-011", "after a late CREDIT", _looks_up_blindly),
    broken("accepts-stray", "FRM-011", "no end within", _accepts_stray),
    broken("opens-an-id-again", "FRM-011", "no end within", _opens_again),
    broken("last-terminal-wins", "FRM-012", "with two terminals", _last_wins),
    broken("global-abort", "FRM-013", "the calls of its sibling", _aborts_all),
    broken("blocking-read", "FRM-014", "while a frame stalls", _blocks_in_a_read),
    broken("head-of-line", "FRM-015", "before the end of a large one", _sends_large_ones_whole),
    broken("falsy-is-missing", "FRM-016", "no result", _misses_falsy),
    broken("unhandled-UnicodeError", "FRM-017", "contract_violation", _lets_unicode_errors_out),
)
