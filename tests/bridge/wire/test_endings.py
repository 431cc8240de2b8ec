"""Cancel, drain, end of the connection (CAN, STR-006, STR-007, FRM-005, CAL-010, H34, H40)."""

from __future__ import annotations

from typing import Any

import pytest

from purra_bridge.wire import codec, messages
from purra_bridge.wire import events as ev
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.header import pack_header
from tests.bridge.wire.links import Link, call_frame, frame, linked, names


def called(link: Link) -> int:
    call_id = link.host.call("a", "m", None)
    link.to_plugin()
    return call_id


# Cancel


def test_a_call_cancelled_before_it_left_leaves_no_frame() -> None:
    """CAN-001: and no event either; the return value says so."""
    link = linked()
    first, second = link.host.call("a", "m", 1), link.host.call("a", "m", 2)
    assert link.host.cancel(first, "never mind")
    (event,) = link.to_plugin()
    assert event.id == second
    assert link.host.calls == 1
    assert not link.host.cancel(first)


def test_cancel_is_sent_once() -> None:
    """CAN-002, STR-006: and the callee is told once, whatever arrives."""
    link = linked()
    call_id = called(link)
    assert not link.host.cancel(call_id, "stop")
    assert not link.host.cancel(call_id, "again")
    packed = b"".join(link.host.take())
    assert packed == frame(messages.CANCEL, call_id, {"reason": "stop"})
    assert link.plugin.receive(packed + packed) == [ev.Cancelled(call_id, "stop")]


@pytest.mark.parametrize("body", [b"\xc1", b"", [], {"reason": 7}, {}])
def test_a_cancel_counts_whatever_its_reason_looks_like(body: Any) -> None:
    link = linked()
    call_id = called(link)
    assert link.plugin.receive(frame(messages.CANCEL, call_id, body)) == [ev.Cancelled(call_id, "")]


def test_a_cancelled_call_still_has_one_terminal() -> None:
    """Wire rule 1: it tells the effect state; items in between are dropped, their credit is not."""
    link = linked()
    call_id = called(link)
    link.plugin.items(call_id, ["crossing"])
    link.host.cancel(call_id)
    assert link.to_host() == []
    link.to_plugin()
    link.plugin.items(call_id, ["dropped here"])
    assert link.plugin.pending_bytes == 0
    error = WireError("cancelled", executed="yes", detail={"effect_state": "committed"})
    link.plugin.error(call_id, error)
    (failed,) = link.to_host()
    assert failed.error.detail == {"effect_state": "committed"}
    assert link.host.counters == {"late_frames": 1}
    assert link.host._calls._link.left == link.host.limits["link_window"] - 41
    assert link.host._calls._link.due == 41


def test_the_result_of_a_cancelled_call_is_reported() -> None:
    """CAN-003: the callee was faster."""
    link = linked()
    call_id = called(link)
    link.plugin.result(call_id, 1)
    link.host.cancel(call_id)
    assert link.to_plugin() == []
    assert link.to_host() == [ev.Returned(call_id, 1)]


def test_cancel_after_the_terminal_is_nothing() -> None:
    """CAN-004."""
    link = linked()
    call_id = called(link)
    link.plugin.result(call_id, 1)
    link.to_host()
    assert not link.host.cancel(call_id)
    assert link.host.pending_bytes == 0


def test_cancelling_one_leaves_the_others() -> None:
    """CAN-007."""
    link = linked()
    first, second = called(link), called(link)
    link.plugin.items(second, [1])
    link.host.cancel(first)
    link.to_plugin()
    link.plugin.items(second, [2])
    link.plugin.result(second, "fine")
    assert names(link.to_host()) == ["Items", "Items", "Returned"]


def test_cancel_overtakes_data_but_not_its_own_call() -> None:
    """Wire rule 4."""
    link = linked()
    first = called(link)
    second = link.host.call("a", "m", None)
    link.host.chunk(second, b"x")  # so the CALL cannot be withdrawn
    link.host.cancel(second, "b")
    link.host.chunk(first, b"y" * 1000)
    link.host.cancel(first, "a")
    events = link.to_plugin()
    assert [(type(e).__name__, e.id) for e in events] == [
        ("Cancelled", first),
        ("Called", second),
        ("Chunk", second),
        ("Cancelled", second),
    ]


def test_a_producer_at_its_window_is_freed_by_the_cancel() -> None:
    """What waits for credit that will never come is dropped; the terminal goes out."""
    link = linked()
    call_id = link.host.call("a", "m", None, {"window": 100})
    link.to_plugin()
    for _ in range(5):
        link.plugin.items(call_id, ["x" * 100])
    link.plugin.result(call_id, "end")
    assert names(link.to_host()) == ["Items"]
    link.host.cancel(call_id)
    assert link.to_plugin() == []  # answered already: its handler has nothing to hear
    assert link.to_host() == [ev.Returned(call_id, "end")]
    assert link.plugin.serving == 0
    assert link.plugin.sendable(call_id)


def test_a_cancelled_producer_is_never_told_to_wait() -> None:
    """Otherwise it would wait for credit that nobody sends any more."""
    link = linked()
    call_id = link.host.call("a", "m", None, {"window": 100})
    link.to_plugin()
    link.plugin.items(call_id, ["x" * 100])
    assert not link.plugin.sendable(call_id)
    link.host.cancel(call_id)
    assert names(link.to_plugin()) == ["Cancelled"]
    assert link.plugin.sendable(call_id)


def test_nothing_that_comes_after_the_cancel_replaces_the_terminal() -> None:
    """An unreadable or oversize item was on its way: the effect state still comes (rule 1)."""
    link = linked({"max_frame": 4096})
    call_id = called(link)
    link.host.cancel(call_id)
    late = frame(messages.DATA, call_id, b"\xc1") + pack_header(5000, call_id, messages.DATA, 0)
    assert link.host.receive(late + bytes(5000)) == []
    (failed,) = link.host.receive(
        frame(messages.ERROR, call_id, WireError("cancelled", executed="yes").to_body())
    )
    assert failed.error.executed == "yes"


# Drain


def test_drain_lets_what_is_under_way_finish() -> None:
    """SHD-001: calls in flight, with their callbacks, go on; new ones are refused at once."""
    link = linked()
    call_id = called(link)
    link.host.drain("stop", 5000)
    (drain,) = link.to_plugin()
    assert drain.body == {"reason": "stop", "deadline_ms": 5000, "last_id": 0}
    with pytest.raises(WireError, match="draining") as caught:
        link.host.call("a", "m", None)
    assert caught.value.executed == "no"
    child = link.plugin.call("h", "m", None, {"parent": call_id})
    link.to_host()
    link.host.result(child, 1)
    assert link.to_plugin() == [ev.Returned(child, 1)]
    link.plugin.result(call_id, 2)
    assert link.to_host() == [ev.Returned(call_id, 2)]


def test_calls_that_crossed_a_drain_were_not_executed() -> None:
    """Calls above last_id: executed = no; the late answer to them is swallowed."""
    link = linked()
    served = called(link)
    link.plugin.drain("memory")
    crossing = link.host.call("a", "m", None)
    packed = b"".join(link.host.take())
    unsent = link.host.call("a", "m", None)
    drain_bytes = b"".join(link.plugin.take())
    failed, other, drain = link.host.receive(drain_bytes)
    assert (failed.id, other.id) == (crossing, unsent)
    for event in (failed, other):
        assert (event.error.code, event.error.executed) == ("draining", "no")
    assert drain.body["last_id"] == served
    assert link.host.calls == 2  # the served one, and the one that crossed
    assert link.host.pending_bytes == 0  # the unsent one was withdrawn
    assert link.plugin.receive(packed) == []
    assert link.plugin.counters == {"refused_calls": 1}
    assert link.to_host() == []
    link.plugin.result(served, 1)
    assert link.to_host() == [ev.Returned(served, 1)]
    assert link.host.calls == 0


def test_nothing_more_is_believed_of_calls_that_were_not_started() -> None:
    """The peer said so itself: items and callbacks for them are dropped, or refused."""
    link = linked()
    crossing = link.host.call("a", "m", None)
    link.host.take()
    link.host.receive(frame(messages.DRAIN, 0, {"reason": "x", "last_id": 0}))
    assert link.host.receive(frame(messages.DATA, crossing, "item")) == []
    assert link.host.receive(call_frame(2, parent=crossing)) == []
    assert b"parent_gone" in b"".join(link.host.take())
    assert link.host.counters == {"late_frames": 1, "refused_calls": 1}


def test_a_callback_that_crosses_a_drain_goes_on() -> None:
    """It belongs to a call that was taken, so `last_id` does not speak of it."""
    link = linked()
    parent = called(link)
    link.host.drain("stop")
    child = link.plugin.call("h", "m", None, {"parent": parent})
    assert names(link.to_plugin()) == ["Drain"]
    (event,) = link.to_host()
    link.host.result(event.id, "still here")
    assert link.to_plugin() == [ev.Returned(child, "still here")]


def test_both_may_drain() -> None:
    link = linked()
    link.host.drain("stop")
    link.plugin.drain("stop")
    assert names(link.to_host()) == ["Drain"]
    assert names(link.to_plugin()) == ["Drain"]
    link.host.drain("sooner", 10)
    assert names(link.to_plugin()) == ["Drain"]


# The end of the bytes


def test_eof_fails_what_is_pending_and_says_what_is_known() -> None:
    """CAL-010, FRM-005: not given out: no; given out: maybe."""
    link = linked()
    sent = called(link)
    unsent = link.host.call("a", "m", None)
    first, second = link.host.eof()
    assert (first.id, first.error.code, first.error.executed) == (sent, "closed", "maybe")
    assert (second.id, second.error.executed) == (unsent, "no")
    assert link.host.eof() == []
    assert link.host.calls == 0
    with pytest.raises(WireError, match="closed"):
        link.host.call("a", "m", None)


def test_what_came_before_eof_counts() -> None:
    """Wire rule 3, H40: a result and then the end is a result."""
    link = linked()
    first, second = called(link), called(link)
    link.plugin.items(second, [1])
    link.plugin.result(first, "done")
    assert names(link.to_host()) == ["Items", "Returned"]
    (failed,) = link.host.eof()
    assert failed.id == second


@pytest.mark.parametrize("cut", [1, 5, 9, 10, 11, 13])
def test_a_frame_that_is_cut_off_is_not_delivered(cut: int) -> None:
    """PLG-12, FRM-005: at every part of the frame."""
    link = linked()
    call_id = called(link)
    data = frame(messages.RESULT, call_id, "abc")
    assert link.host.receive(data[:cut]) == []
    (failed,) = link.host.eof()
    assert failed.error.code == "closed"
    assert link.host.counters == {"cut_off_frames": 1}


def test_a_message_that_is_cut_off_is_not_delivered() -> None:
    """FRM-005: nor a part of its fragments."""
    link = linked({"max_frame": 4096})
    call_id = called(link)
    link.plugin.result(call_id, "x" * 10_000)
    assert link.host.receive(b"".join(link.plugin.take())[:9000]) == []
    (failed,) = link.host.eof()
    assert failed.id == call_id


def test_handlers_are_told_of_the_end() -> None:
    """Their answers have nowhere to go, and do no harm."""
    link = linked()
    first, second = called(link), called(link)
    link.host.cancel(first)
    link.to_plugin()
    assert link.plugin.eof() == [ev.Cancelled(second, "closed")]
    link.plugin.result(first, 1)
    link.plugin.items(second, [1])
    link.plugin.error(second, WireError("internal"))
    assert link.plugin.pending_bytes == 0


def test_a_violation_delivers_what_came_before_it() -> None:
    """Wire rule 3."""
    link = linked()
    first, second = called(link), called(link)
    data = frame(messages.RESULT, first, 1) + b"Traceback"
    with pytest.raises(Exception, match="bad_frame") as caught:
        link.host.receive(data)
    assert caught.value.events == [ev.Returned(first, 1)]  # type: ignore[attr-defined]
    (failed,) = link.host.eof()
    assert (failed.id, failed.error.code) == (second, "protocol_violation")


def test_a_violation_late_in_a_long_read_keeps_all_that_came_before() -> None:
    """Wire rule 3: more than one buffer full of frames, then garbage."""
    link = linked()
    data = frame(messages.PING, 0, {"token": "x" * 1000}) * 600 + b"x"
    with pytest.raises(Exception, match="bad_frame") as caught:
        link.host.receive(data)
    assert len(caught.value.events) == 600  # type: ignore[attr-defined]


def test_calls_before_the_end_of_init_are_answered_from_the_table() -> None:
    """H07: not_active does not disturb a later start."""
    link = Link().greet()
    link.plugin.receive(call_frame(1))
    body = codec.decode(b"".join(link.plugin.take())[10:])
    assert (body["code"], body["executed"], body["retry"]) == ("not_active", "no", "same")
