"""The transition tables, alone and as the sessions obey them: every (state, sender, message) pair.

FRM-010..012, HSK-001, HSK-008, STR-002, CAN-004, H07: legal is what the table lists.
"""

from __future__ import annotations

from typing import Any

import pytest

from purra_bridge.wire import messages, tables
from purra_bridge.wire.errors import REASONS, ProtocolViolation, WireError
from purra_bridge.wire.header import END
from tests.bridge.wire.links import (
    HELLO_BODY,
    READY_BODY,
    WELCOME_BODY,
    Link,
    call_frame,
    frame,
    linked,
)

BODIES: dict[int, Any] = {
    messages.HELLO: HELLO_BODY,
    messages.WELCOME: WELCOME_BODY | {"limits": {}},
    messages.READY: READY_BODY,
    messages.PING: {"token": 1},
    messages.PONG: {"token": 1},
    messages.DRAIN: {"reason": "test", "last_id": 1 << 20},
    messages.STATUS: {"phase": "warm"},
    messages.LOG: {"level": "info", "msg": "x"},
    messages.CHANGED: {"epoch": 2},
    messages.CALL: {"adapter": "a", "method": "m", "args": None},
    messages.DATA: "item",
    messages.CREDIT: 32,
    messages.RESULT: None,
    messages.ERROR: {"code": "internal", "message": "x"},
    messages.CANCEL: {},
}
ON_CALLS = (messages.CALL, messages.DATA, messages.CREDIT, messages.RESULT, messages.CANCEL)

CONNECTION_INPUTS = [*(set(messages.NAMES) - {messages.ERROR}), tables.REFUSE_INPUT]
CALL_INPUTS = [
    messages.CALL,
    messages.DATA,
    tables.END_INPUT,
    messages.CREDIT,
    messages.RESULT,
    messages.ERROR,
    messages.CANCEL,
]


def test_the_tables_only_name_known_states_and_messages() -> None:
    for table, states, senders in (
        (tables.CONNECTION, tables.CONNECTION_STATES, (tables.HOST, tables.PLUGIN)),
        (tables.CALLS, tables.CALL_STATES, (tables.CALLER, tables.CALLEE)),
    ):
        for (state, sender, number), to in table.items():
            assert state in states
            assert to in states
            assert sender in senders
            assert number & 0xFF in messages.NAMES


def test_every_state_can_be_reached_and_nothing_follows_the_end() -> None:
    assert set(tables.CONNECTION.values()) == set(tables.CONNECTION_STATES) - {
        tables.START,
        tables.CLOSED,  # by the end of the bytes, not by a message
    }
    assert set(tables.CALLS.values()) == set(tables.CALL_STATES) - {tables.IDLE}
    for ended in (tables.REFUSED, tables.CLOSED):
        assert not [key for key in tables.CONNECTION if key[0] == ended]
    assert all(to == tables.DONE for key, to in tables.CALLS.items() if key[0] == tables.DONE)


# The connection


def at_state(state: str) -> Link:
    """Two ends that agree on being in `state`."""
    link = Link()
    if state == tables.START:
        return link
    if state == tables.GREETED:
        link.plugin.hello(HELLO_BODY)
        link.to_host()
        return link
    link.greet()
    if state == tables.WELCOMED:
        return link
    link.plugin.ready(READY_BODY)
    link.to_host()
    if state == tables.DRAINING:
        link.host.drain("test")
        link.to_plugin()
    elif state == tables.REFUSED:
        link.host.refuse(WireError("retired"))
        link.to_plugin()
    elif state == tables.CLOSED:
        link.host.eof()
        link.plugin.eof()
    return link


def connection_frame(link: Link, sender: str, number: int) -> bytes:
    """A well-formed frame of this kind, on an id that makes sense."""
    kind = number & 0xFF
    call_id = 0
    body = BODIES[kind]
    if number == messages.CREDIT:
        # something must have been spent for it: so on an id that is over
        call_id = 2 if sender == tables.PLUGIN else 1
        body = 1
    elif number in ON_CALLS:
        call_id = 2 if sender == tables.PLUGIN else 1
    return frame(kind, call_id, body)


@pytest.mark.parametrize("number", CONNECTION_INPUTS, ids=lambda n: messages.name_of(n))
@pytest.mark.parametrize("sender", [tables.HOST, tables.PLUGIN])
@pytest.mark.parametrize("state", [s for s in tables.CONNECTION_STATES if s != tables.CLOSED])
def test_the_receiver_obeys_the_connection_table(state: str, sender: str, number: int) -> None:
    """Every pair: listed moves as listed, unlisted is a violation and moves nothing."""
    link = at_state(state)
    receiver = link.plugin if sender == tables.HOST else link.host
    assert receiver.state == state
    to = tables.CONNECTION.get((state, sender, number))
    try:
        receiver.receive(connection_frame(link, sender, number))
    except ProtocolViolation as violation:
        assert violation.reason in REASONS
        if violation.reason == "unknown_id":  # legal here, but no such call is open
            assert to is not None
            assert number in (messages.DATA, messages.CREDIT, messages.RESULT, messages.CANCEL)
        else:
            assert to is None
            expected = "before_hello" if state == tables.START else "out_of_order"
            assert violation.reason == expected
        assert receiver.state == state
    else:
        assert to is not None
        assert receiver.state == to


SENDERS: dict[int, Any] = {
    messages.HELLO: lambda session: session.hello(HELLO_BODY),
    messages.WELCOME: lambda session: session.welcome(WELCOME_BODY | {"limits": {}}),
    messages.READY: lambda session: session.ready(READY_BODY),
    messages.PING: lambda session: session.ping(1),
    messages.PONG: lambda session: session.pong(1),
    messages.DRAIN: lambda session: session.drain("test"),
    messages.STATUS: lambda session: session.status({"phase": "x"}),
    messages.CHANGED: lambda session: session.changed({"epoch": 1}),
}


@pytest.mark.parametrize("number", SENDERS, ids=lambda n: messages.name_of(n))
@pytest.mark.parametrize("sender", [tables.HOST, tables.PLUGIN])
@pytest.mark.parametrize("state", tables.CONNECTION_STATES)
def test_the_sender_obeys_the_same_table(state: str, sender: str, number: int) -> None:
    """An end cannot send what the other would have to call a violation."""
    link = at_state(state)
    session = link.host if sender == tables.HOST else link.plugin
    if state in (tables.REFUSED, tables.DRAINING, tables.CLOSED):
        session.take()
    to = tables.CONNECTION.get((state, sender, number))
    if to is None:
        with pytest.raises(WireError) as caught:
            SENDERS[number](session)
        assert caught.value.executed == "no"
        assert session.state == state
        assert session.pending_bytes == 0
    else:
        SENDERS[number](session)
        assert session.state == to
        assert session.pending_bytes > 0


@pytest.mark.parametrize("state", tables.CONNECTION_STATES)
def test_calls_are_only_made_when_ready(state: str) -> None:
    """H07, CAP-003: never before READY, never after the end; the state is named."""
    link = at_state(state)
    if state == tables.READY_STATE:
        assert link.host.call("a", "m", None) == 1
        return
    with pytest.raises(WireError) as caught:
        link.host.call("a", "m", None)
    expected = {tables.DRAINING: "draining", tables.REFUSED: "closed", tables.CLOSED: "closed"}
    assert caught.value.code == expected.get(state, "not_active")
    assert caught.value.executed == "no"
    assert link.host.pending_bytes == 0


def test_a_call_before_ready_is_answered_not_active() -> None:
    """PLG-04, H07: a confused host learns it from one call, and the link stays."""
    link = Link().greet()
    assert link.plugin.receive(call_frame(1) + frame(messages.CANCEL, 1, {})) == []
    assert link.plugin.counters == {"refused_calls": 1, "late_frames": 1}
    reply = b"".join(link.plugin.take())
    assert b"not_active" in reply
    link.plugin.ready(READY_BODY)
    link.to_host()
    assert link.host.state == tables.READY_STATE


# Calls


def call_at(state: str, opened_by_host: bool) -> tuple[Link, int]:
    """Two ends with one call that both see in `state`."""
    link = linked()
    if not opened_by_host:  # a callback needs a call to belong to
        parent = link.host.call("a", "m", None)
        link.to_plugin()
        if state == tables.IDLE:
            return link, 2
        call_id = link.plugin.call("a", "m", None, {"parent": parent})
        link.to_host()
        caller, callee, carry = link.plugin, link.host, link.to_host
    else:
        if state == tables.IDLE:
            return link, 1
        call_id = link.host.call("a", "m", None)
        link.to_plugin()
        caller, callee, carry = link.host, link.plugin, link.to_plugin
    # Something is spent in both directions, so that CREDIT is due.
    callee.items(call_id, ["x" * 100])
    caller.chunk(call_id, b"x" * 100)
    link.settle()
    if state == tables.SENT:
        caller.end_upload(call_id)
    elif state == tables.CANCELLED:
        caller.cancel(call_id, "test")
    elif state == tables.DONE:
        callee.result(call_id, None)
    carry()
    link.settle()
    return link, call_id


@pytest.mark.parametrize("number", CALL_INPUTS, ids=lambda n: messages.name_of(n))
@pytest.mark.parametrize("part", [tables.CALLER, tables.CALLEE])
@pytest.mark.parametrize("state", tables.CALL_STATES)
@pytest.mark.parametrize("opened_by_host", [True, False], ids=["host calls", "plugin calls back"])
def test_both_ends_obey_the_call_table(
    state: str, part: str, number: int, opened_by_host: bool
) -> None:
    """Every pair, in both directions: one table judges both roles (wire rule 7)."""
    link, call_id = call_at(state, opened_by_host)
    sender_is_host = opened_by_host == (part == tables.CALLER)
    receiver = link.plugin if sender_is_host else link.host
    kind = number & 0xFF
    body = BODIES[kind]
    if kind == messages.CALL and not opened_by_host:
        body = body | {"parent": 1}
    to = tables.CALLS.get((state, part, number))
    open_before = receiver.calls + receiver.serving
    try:
        receiver.receive(frame(kind, call_id, body, END if number == tables.END_INPUT else 0))
    except ProtocolViolation as violation:
        assert to is None
        assert violation.reason == expected_reason(state, part, number)
        assert receiver.calls + receiver.serving == open_before
    else:
        assert to is not None
        moved = {tables.IDLE: 1}.get(state, 0)
        if to == tables.DONE and state != tables.DONE:
            moved = -1
        assert receiver.calls + receiver.serving == open_before + moved
        assert receiver.state == tables.READY_STATE


def expected_reason(state: str, part: str, number: int) -> str:
    if number == messages.CALL:
        return "unknown_id" if part == tables.CALLEE else "reused_id"
    if state == tables.IDLE:
        return "unknown_id"
    if state == tables.DONE and part == tables.CALLEE:
        terminal = number in (messages.RESULT, messages.ERROR)
        return "duplicate_terminal" if terminal else "after_terminal"
    if state == tables.DONE:
        terminal = number in (messages.RESULT, messages.ERROR)
        return "duplicate_terminal" if terminal else "after_terminal"
    return "out_of_order"
