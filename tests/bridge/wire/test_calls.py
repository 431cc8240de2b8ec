"""Calls in both directions, and what a wrong body costs them (CAL, FRM-006, FRM-010..012)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from purra_bridge.wire import codec, messages
from purra_bridge.wire import events as ev
from purra_bridge.wire.errors import CODES, ProtocolViolation, WireError
from purra_bridge.wire.header import LAST_CALL_ID
from tests.bridge.wire.links import HELLO_BODY, Link, call_frame, frame, linked, names


def called(link: Link, **options: Any) -> int:
    """A call of the host that the plugin end serves."""
    call_id = link.host.call("a", "m", None, options)
    link.to_plugin()
    return call_id


def test_every_field_arrives_verbatim() -> None:
    """CAL-007, CAN-008: also the falsy ones (H22)."""
    link = linked()
    link.host.call(
        "fs",
        "grep",
        {"pattern": "", "n": 0, "raw": b""},
        {
            "window": 512,
            "deadline_ms": 0,
            "key": "k-1",
            "trace": {"run": "r", "call": 0},
            "parent": None,
        },
    )
    (event,) = link.to_plugin()
    assert (event.id, event.adapter, event.method) == (1, "fs", "grep")
    assert event.args == {"pattern": "", "n": 0, "raw": b""}
    assert (event.window, event.deadline_ms, event.key) == (512, 0, "k-1")
    assert event.trace == {"run": "r", "call": 0}
    assert event.parent is None


def test_absent_fields_have_their_defaults() -> None:
    link = linked()
    link.host.call("a", "m", None, {"window": 0, "key": "", "trace": {}, "deadline_ms": None})
    packed = b"".join(link.host.take())
    assert codec.decode(packed[10:]) == {"adapter": "a", "method": "m", "args": None}
    (event,) = link.plugin.receive(packed)
    assert (event.deadline_ms, event.key, event.trace) == (None, "", {})
    assert event.window == link.plugin.limits["window"]


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", b"", [], {}, {"": None}])
def test_falsy_results_are_results(value: Any) -> None:
    """FRM-016, H22."""
    link = linked()
    call_id = called(link)
    link.plugin.result(call_id, value)
    (event,) = link.to_host()
    assert event == ev.Returned(call_id, value)
    assert type(event.value) is type(value)


def test_shuffled_replies_find_their_calls() -> None:
    """CAL-002: 256 concurrent calls."""
    link = linked({"inflight": 256}, {"inflight": 256})
    ids = [link.host.call("a", "m", number) for number in range(256)]
    events = link.to_plugin()
    assert [event.args for event in events] == list(range(256))
    random.Random(3).shuffle(events)
    for event in events:
        link.plugin.result(event.id, event.args)
    results = {event.id: event.value for event in link.to_host()}
    assert results == {call_id: number for number, call_id in enumerate(ids)}
    assert link.host.calls == link.plugin.serving == 0


def test_ids_are_odd_for_the_host_even_for_the_plugin_and_never_reused() -> None:
    """CAL-007."""
    link = linked()
    ids = []
    for _ in range(3):
        call_id = called(link)
        ids.append(call_id)
        link.plugin.call("h", "m", None, {"parent": call_id})
        (event,) = link.to_host()
        ids.append(event.id)
        link.host.result(event.id, None)
        link.to_plugin()
        link.plugin.result(call_id, None)
        link.to_host()
    assert ids == [1, 2, 3, 4, 5, 6]


def test_the_last_id_ends_the_connection_not_the_program() -> None:
    """The host reloads an instance before ids run out."""
    link = linked()
    link.host._calls._next_id = LAST_CALL_ID - 1
    call_id = called(link)
    assert call_id == LAST_CALL_ID - 1
    link.plugin.result(call_id, None)
    link.to_host()
    with pytest.raises(WireError, match="draining"):
        link.host.call("a", "m", None)


def test_more_calls_than_agreed_are_overloaded() -> None:
    """CAL-003: the plugin end never serves more than `inflight`, whatever the host does."""
    link = linked({"inflight": 2})
    for _ in range(3):
        link.host.call("a", "m", None)
    at_plugin = link.to_plugin()
    assert names(at_plugin) == ["Called", "Called"]
    (failed,) = link.to_host()
    assert failed.error.code == "overloaded"
    assert failed.error.executed == "no"


def test_an_error_says_what_it_is() -> None:
    """CAL-005: code, blame, executed, retry, detail cross unchanged."""
    link = linked()
    call_id = called(link)
    error = WireError(
        "rate_limited", "slow down", executed="no", after_ms=250, detail={"status": 429}
    )
    link.plugin.error(call_id, error)
    (event,) = link.to_host()
    assert event.error.to_body() == error.to_body()


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_its_usual_meaning(code: str) -> None:
    origin, executed, retry = CODES[code]
    error = WireError(code)
    assert (error.origin, error.executed, error.retry) == (origin, executed, retry)
    assert WireError.from_body(error.to_body()).to_body() == error.to_body()


def test_words_of_a_newer_peer() -> None:
    """An unknown code stays; an unknown blame, state or advice becomes the usual one."""
    error = WireError.from_body(
        {"code": "not_found", "message": "", "origin": "moon", "executed": "soon", "retry": "x"}
    )
    assert (error.origin, error.executed, error.retry) == ("plugin", "yes", "other")
    unknown = WireError.from_body({"code": "brand_new", "message": "m"})
    assert (unknown.code, unknown.origin, unknown.executed) == ("brand_new", "plugin", "maybe")


def test_an_error_whose_detail_cannot_be_sent_still_ends_the_call() -> None:
    """H20, CAL-001: the terminal is owed, whatever the handler put into it."""
    link = linked()
    call_id = called(link)
    link.plugin.error(call_id, WireError("upstream", "bad \ud800", detail={"x": object()}))
    (event,) = link.to_host()
    assert (event.error.code, event.error.message) == ("upstream", "bad ?")


def test_a_result_that_cannot_be_sent_leaves_the_call_open() -> None:
    """H20: the owner learns it and can still answer; the link stays."""
    link = linked()
    call_id = called(link)
    with pytest.raises(codec.ValueRefused, match="of type object"):
        link.plugin.result(call_id, {"x": object()})
    with pytest.raises(codec.ValueRefused, match="not finite"):
        link.plugin.items(call_id, [1.0, float("nan")])
    link.plugin.error(call_id, WireError("internal", "encode"))
    (event,) = link.to_host()
    assert event.error.code == "internal"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x01\x01",
        b"\xa1\xff",
        b"\x91",
        b"\xcb\x7f\xf8" + bytes(6),
    ],
)
def test_an_unreadable_result_costs_its_call(body: bytes) -> None:
    """FRM-006, H19: contract_violation with the offset; the link and other calls stay."""
    link = linked()
    first, second = called(link), called(link)
    (event,) = link.host.receive(frame(messages.RESULT, first, body))
    assert event.id == first
    assert (event.error.code, event.error.executed) == ("contract_violation", "yes")
    assert type(event.error.detail["offset"]) is int
    link.plugin.result(second, "fine")
    assert link.to_host() == [ev.Returned(second, "fine")]


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        {"code": "x"},
        {"code": 1, "message": ""},
        [],
        {"code": "x", "message": "", "after_ms": -1},
    ],
)
def test_an_unreadable_error_costs_its_call(body: Any) -> None:
    """FRM-006: it is a terminal all the same."""
    link = linked()
    call_id = called(link)
    (event,) = link.host.receive(frame(messages.ERROR, call_id, body))
    assert event.error.code == "contract_violation"
    assert link.host.calls == 0


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"\x81\xa1",
        [],
        {"adapter": "a", "method": "m"},
        {"adapter": "a", "args": 1, "method": 1},
        {"adapter": None, "args": 1, "method": "m"},
        {"adapter": "a", "args": 1, "method": "m", "window": -1},
        {"adapter": "a", "args": 1, "method": "m", "deadline_ms": 1.5},
        {"adapter": "a", "args": 1, "method": "m", "trace": "x"},
        {"adapter": "a", "args": 1, "method": "m", "key": 7},
        {"adapter": "a", "args": 1, "method": "m", "parent": "1"},
    ],
)
@pytest.mark.parametrize("at", ["host", "plugin"])
def test_a_wrong_call_is_answered_invalid_argument(body: Any, at: str) -> None:
    """FRM-006, H19: a callback as well as a call; not executed, and the link stays."""
    link = linked()
    parent = called(link)
    call_id = 2 if at == "host" else parent + 2
    session = link.host if at == "host" else link.plugin
    if type(body) is dict and at == "host":
        body = {"parent": parent} | body
    assert session.receive(frame(messages.CALL, call_id, body)) == []
    assert session.counters["refused_calls"] == 1
    reply = b"".join(session.take())
    error = WireError.from_body(codec.decode(reply[10:]))
    assert (error.code, error.executed) == ("invalid_argument", "no")
    assert session.state == "ready"


def test_bad_values_in_a_callback_are_refused_by_the_host() -> None:
    """FRM-007: the host checks what it receives, inside arguments too."""
    link = linked()
    parent = called(link)
    body = bytearray(codec.encode({"adapter": "a", "method": "m", "args": 0.5, "parent": parent}))
    at = body.index(b"\xcb")
    body[at + 1 : at + 9] = bytes.fromhex("7ff8000000000000")
    assert link.host.receive(frame(messages.CALL, 2, bytes(body))) == []
    assert b"not finite" in b"".join(link.host.take())


# Frames that do not fit


def test_unknown_types_are_skipped_unless_they_must_be_understood() -> None:
    """FRM-010."""
    link = linked()
    assert link.host.receive(frame(99, 7, b"whatever") + frame(0x20, 0)) == []
    assert link.host.counters == {"unknown_types": 2}
    with pytest.raises(ProtocolViolation, match="unknown_type"):
        link.host.receive(frame(99 | 0x80, 0))


@pytest.mark.parametrize("kind", [messages.RESULT, messages.ERROR, messages.DATA])
@pytest.mark.parametrize("call_id", [3, 2, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_an_id_that_nobody_issued(kind: int, call_id: int) -> None:
    """PLG-12, FRM-011."""
    link = linked()
    called(link)
    body = {"code": "x", "message": ""} if kind == messages.ERROR else 1
    with pytest.raises(ProtocolViolation) as caught:
        link.host.receive(frame(kind, call_id, body))
    assert caught.value.reason in ("unknown_id", "out_of_order")
    assert link.host.calls == 1


@pytest.mark.parametrize("second", [messages.RESULT, messages.ERROR])
def test_the_first_terminal_stands(second: int) -> None:
    """FRM-012, STR-002."""
    link = linked()
    call_id = called(link)
    body = {"code": "internal", "message": ""} if second == messages.ERROR else 2
    with pytest.raises(ProtocolViolation, match="duplicate_terminal") as caught:
        link.host.receive(frame(messages.RESULT, call_id, 1) + frame(second, call_id, body))
    assert caught.value.events == [ev.Returned(call_id, 1)]


def test_no_data_after_the_terminal() -> None:
    """STR-002."""
    link = linked()
    call_id = called(link)
    with pytest.raises(ProtocolViolation, match="after_terminal"):
        link.host.receive(frame(messages.RESULT, call_id, 1) + frame(messages.DATA, call_id, 2))


def test_late_frames_for_a_call_that_is_over_are_ignored_and_counted() -> None:
    """FRM-011, CAN-004, H34: what the caller sent before it could know."""
    link = linked()
    call_id = called(link)
    link.host.chunk(call_id, b"upload")
    link.host.cancel(call_id)
    link.plugin.result(call_id, 1)
    assert link.to_plugin() == []
    assert link.plugin.counters["late_frames"] == 2
    assert link.to_host() == [ev.Returned(call_id, 1)]


@pytest.mark.parametrize("call_id", [0, 1, 3, LAST_CALL_ID + 2])
def test_a_call_on_a_wrong_id(call_id: int) -> None:
    """FRM-011: the wrong parity, the connection's, or beyond the last."""
    link = linked()
    called(link)
    with pytest.raises(ProtocolViolation, match="unknown_id"):
        link.host.receive(call_frame(call_id, parent=1))


def test_a_call_on_a_used_id() -> None:
    """PLG-12, CAL-007."""
    link = linked()
    with pytest.raises(ProtocolViolation, match="reused_id"):
        link.plugin.receive(call_frame(5) + call_frame(3))


@pytest.mark.parametrize("state", ["start", "greeted"])
def test_errors_of_calls_before_there_can_be_any(state: str) -> None:
    """HSK-001: before WELCOME only ERROR on id 0 is legal."""
    link = Link()
    if state == "greeted":
        link.plugin.hello(HELLO_BODY)
        link.to_host()
    with pytest.raises(ProtocolViolation) as caught:
        link.host.receive(frame(messages.ERROR, 1, {"code": "internal", "message": ""}))
    assert caught.value.reason == ("before_hello" if state == "start" else "out_of_order")


@pytest.mark.parametrize("kind", [messages.PING, messages.LOG, messages.DRAIN])
def test_connection_messages_belong_on_id_0(kind: int) -> None:
    link = linked()
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        link.host.receive(frame(kind, 1, {"level": "x", "msg": "", "reason": "", "last_id": 0}))


def test_after_a_violation_nothing_more_is_read() -> None:
    """FRM-013: the session is over; pending calls say why; the peer can be told."""
    link = linked()
    call_id = called(link)
    for _ in range(2):
        with pytest.raises(ProtocolViolation, match="unknown_type") as caught:
            link.host.receive(frame(0xFF, 0) + frame(messages.RESULT, call_id, 1))
        assert caught.value.events == []
    with pytest.raises(WireError, match="protocol_violation"):
        link.host.call("a", "m", None)
    link.host.refuse(WireError("protocol_violation", "unknown type"))
    (refused,) = link.to_plugin()
    assert refused.error.code == "protocol_violation"
    (failed,) = link.host.eof()
    assert (failed.error.code, failed.error.executed) == ("protocol_violation", "maybe")
    assert failed.error.detail == {"reason": "unknown_type"}


def test_answering_a_call_that_is_over_is_harmless_and_inventing_one_is_a_bug() -> None:
    link = linked()
    call_id = called(link)
    link.plugin.result(call_id, 1)
    link.plugin.result(call_id, 2)
    link.plugin.error(call_id, WireError("internal"))
    link.plugin.items(call_id, [1])
    link.plugin.chunk(call_id, b"x")
    assert link.to_host() == [ev.Returned(call_id, 1)]
    assert link.plugin.counters["unwanted_answers"] == 4
    for wrong in (call_id + 2, 2, 0):
        with pytest.raises(ValueError, match="no call"):
            link.plugin.result(wrong, 1)


def test_answers_to_wrong_calls_do_not_pile_up_without_bound(monkeypatch: Any) -> None:
    """FRM-017: a peer that sends nonsense and reads nothing is given up."""
    monkeypatch.setattr("purra_bridge.wire.calls.UNREAD_BYTES", 10_000)
    link = linked()
    with pytest.raises(ProtocolViolation, match="flow"):
        for call_id in range(2, 2000, 2):
            link.host.receive(frame(messages.CALL, call_id, b"\xc1"))
    assert link.host.pending_bytes < 11_000


# Callbacks


def test_a_callback_belongs_to_the_call_being_served() -> None:
    """CAL-009: possible with one call in flight."""
    link = linked({"inflight": 1})
    parent = called(link)
    child = link.plugin.call("memory", "find", {"q": 1}, {"parent": parent})
    (event,) = link.to_host()
    assert (event.id, event.parent) == (child, parent)
    link.host.result(child, "found")
    assert link.to_plugin() == [ev.Returned(child, "found")]
    link.plugin.result(parent, "done")
    assert link.to_host() == [ev.Returned(parent, "done")]


@pytest.mark.parametrize(
    ("parent", "code"), [(None, "invalid_argument"), (3, "parent_gone"), (2, "parent_gone")]
)
def test_the_host_refuses_a_callback_of_no_call(parent: int | None, code: str) -> None:
    """CAP-005: a plugin cannot name a call that it does not serve."""
    link = linked()
    called(link)
    assert link.host.receive(call_frame(2, parent=parent)) == []
    (failed_body,) = [codec.decode(b"".join(link.host.take())[10:])]
    assert (failed_body["code"], failed_body["executed"]) == (code, "no")


def test_the_plugin_end_does_not_even_send_it() -> None:
    link = linked()
    parent = called(link)
    link.plugin.result(parent, None)
    with pytest.raises(WireError, match="parent_gone") as caught:
        link.plugin.call("h", "m", None, {"parent": parent})
    assert caught.value.executed == "no"


def test_a_parent_whose_answer_waits_for_credit_is_over() -> None:
    """It has answered: nothing more is done on its behalf."""
    link = linked()
    parent = called(link, window=10)
    link.plugin.items(parent, ["x" * 50])
    link.plugin.items(parent, ["waits"])
    link.plugin.result(parent, None)
    assert link.plugin.serving == 1
    with pytest.raises(WireError, match="parent_gone"):
        link.plugin.call("h", "m", None, {"parent": parent})


def test_callbacks_die_with_their_parent() -> None:
    """Wire rule 5, H41: cancelled by the end of the parent, still with a terminal of their own."""
    link = linked()
    parent = called(link)
    child = link.plugin.call("h", "m", None, {"parent": parent})
    link.to_host()
    link.plugin.result(parent, "done")
    packed = b"".join(link.plugin.take())
    assert packed.startswith(frame(messages.CANCEL, child, {"reason": "parent_gone"}))
    events = link.host.receive(packed)
    assert events == [ev.Cancelled(child, "parent_gone"), ev.Returned(parent, "done")]
    link.host.error(child, WireError("parent_gone"))
    (failed,) = link.to_plugin()
    assert failed.error.code == "parent_gone"
    assert link.plugin.calls == link.host.serving == 0


def test_a_callback_is_cancelled_once() -> None:
    """CAN-002: by its caller, or by the end of its parent, not by both."""
    link = linked()
    parent = called(link)
    child = link.plugin.call("h", "m", None, {"parent": parent})
    link.to_host()
    link.plugin.cancel(child, "mine")
    link.plugin.result(parent, None)
    cancel = frame(messages.CANCEL, child, {"reason": "mine"})
    assert b"".join(link.plugin.take()) == cancel + frame(messages.RESULT, parent, None)


def test_callbacks_are_cancelled_with_their_parent() -> None:
    link = linked()
    parent = called(link)
    child = link.plugin.call("h", "m", None, {"parent": parent})
    link.to_host()
    link.host.cancel(parent, "stop")
    assert link.to_plugin() == [ev.Cancelled(parent, "stop")]
    assert link.to_host() == [ev.Cancelled(child, "parent_gone")]
    with pytest.raises(WireError, match="parent_gone"):
        link.plugin.call("h", "m", None, {"parent": parent})


def test_a_parent_that_ends_without_telling_takes_its_callbacks_along() -> None:
    """The host does not rely on the plugin to cancel them."""
    link = linked()
    parent = called(link)
    link.host.receive(call_frame(2, parent=parent))
    events = link.host.receive(frame(messages.RESULT, parent, None))
    assert events == [ev.Cancelled(2, "parent_gone"), ev.Returned(parent, None)]


# Connection messages in passing


def test_ping_pong_log_status_changed() -> None:
    link = linked()
    link.host.ping({"n": 1})
    (ping,) = link.to_plugin()
    assert ping == ev.Ping({"n": 1})
    link.plugin.pong(ping.token, lag_ms=1.5, inflight=2, rss=4096)
    link.plugin.log("info", "hello", {"k": 1}, call=1)
    link.plugin.status({"phase": "busy", "hold": True})
    link.plugin.changed({"epoch": 2})
    assert link.to_host() == [
        ev.Pong({"token": {"n": 1}, "lag_ms": 1.5, "inflight": 2, "rss": 4096}),
        ev.Log({"level": "info", "msg": "hello", "fields": {"k": 1}, "call": 1}),
        ev.Status({"phase": "busy", "hold": True}),
        ev.Changed({"epoch": 2}),
    ]


def test_a_log_line_never_fails_its_writer() -> None:
    """LOG is droppable, and counted."""
    link = linked()
    link.plugin.log("info", "bad", {"x": object()})
    link.plugin.log("info", "x" * (2 << 20))
    assert link.plugin.counters == {"dropped_logs": 2}
    while link.plugin.pending_bytes < 1 << 20:
        link.plugin.log("info", "x" * 10_000)
    for _ in range(3):
        link.plugin.log("info", "x" * 10_000)
    assert link.plugin.counters["dropped_logs"] >= 4
    assert link.plugin.pending_bytes < (1 << 20) + 20_000
    link.plugin.eof()
    link.plugin.log("info", "after the end")
    link.host.log("info", "the host has no log to send")
