"""Items, chunks, uploads, and credit between two real ends (STR, H23, H26, H31, H32)."""

from __future__ import annotations

from typing import Any

import pytest

from purra_bridge.wire import codec, messages
from purra_bridge.wire import events as ev
from purra_bridge.wire.credits import FRAME_COST_BYTES
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.header import BATCH, END, RAW
from tests.bridge.wire.links import Link, call_frame, frame, linked, names

SMALL = {"max_frame": 4096, "window": 2048, "raw_window": 4096, "link_window": 16_384}


def stream(link: Link, **options: Any) -> int:
    call_id = link.host.call("a", "stream", None, options)
    link.to_plugin()
    return call_id


def values(events: list[Any]) -> list[Any]:
    return [value for event in events if type(event) is ev.Items for value in event.values]


def test_items_come_in_order_without_gaps() -> None:
    """STR-001: 10,000 numbered items, in batches of every size up to 100."""
    link = linked()
    call_id = stream(link)
    seen: list[int] = []
    number = size = 0
    while number < 10_000:
        size = size % 100 + 1
        link.plugin.items(call_id, list(range(number, number + size)))
        number += size
        for event in link.to_host():
            seen += event.values
            link.host.consumed(event.id, event.cost)
        link.to_plugin()
    link.plugin.result(call_id, number)
    assert link.to_host() == [ev.Returned(call_id, number)]
    assert seen == list(range(number))


def test_one_item_is_bare_and_several_are_a_batch() -> None:
    link = linked()
    call_id = stream(link)
    link.plugin.items(call_id, ["one"])
    link.plugin.items(call_id, ["two", "three"])
    link.plugin.items(call_id, [])
    first = frame(messages.DATA, call_id, "one")
    second = frame(messages.DATA, call_id, ["two", "three"], BATCH)
    assert b"".join(link.plugin.take()) == first + second
    assert link.host.receive(first + second) == [
        ev.Items(call_id, ["one"], len(first) - 10 + FRAME_COST_BYTES, False),
        ev.Items(call_id, ["two", "three"], len(second) - 10 + FRAME_COST_BYTES, False),
    ]


def test_a_list_is_one_item_and_a_batch_of_lists_is_many() -> None:
    link = linked()
    call_id = stream(link)
    link.plugin.items(call_id, [[1, 2]])
    link.plugin.items(call_id, [[1, 2], [3]])
    assert values(link.to_host()) == [[1, 2], [1, 2], [3]]


def test_an_empty_stream_is_legal() -> None:
    """STR-008: and the terminal needs no credit."""
    link = linked()
    call_id = stream(link)
    link.plugin.result(call_id, None)
    assert link.to_host() == [ev.Returned(call_id, None)]


def test_a_batch_stays_within_a_frame_and_a_window() -> None:
    """A frame may overshoot the window, so no batch is larger than it."""
    link = linked(SMALL)
    call_id = stream(link, window=512)
    link.plugin.items(call_id, ["x" * 50 for _ in range(100)])
    link.plugin.result(call_id, None)
    seen = 0
    while link.plugin.pending_bytes:
        for event in link.to_host():
            if type(event) is ev.Items:
                assert event.cost <= 512 + FRAME_COST_BYTES
                seen += len(event.values)
                link.host.consumed(event.id, event.cost)
        link.to_plugin()
    assert seen == 100
    assert link.host.calls == 0


def test_a_producer_stops_at_its_window_and_goes_on_with_credit() -> None:
    """STR-003, STR-004: what is under way is bounded by the window and one frame."""
    link = linked()
    call_id = stream(link, window=1000)
    sent = 0
    while link.plugin.sendable(call_id):
        link.plugin.items(call_id, ["x" * 66])  # 68 + 32 = 100 bytes
        sent += 1
    assert sent == 10
    taken = link.to_host()
    assert len(taken) == 10
    link.host.consumed(call_id, 400)
    assert link.host.pending_bytes == 0  # under half a window
    assert not link.plugin.sendable(call_id)
    link.host.consumed(call_id, 100)
    assert link.to_plugin() == [ev.Credited(call_id)]
    assert link.plugin.sendable(call_id)


def test_what_is_sent_beyond_the_window_waits_inside() -> None:
    """STR-003: no order of calls makes a correct end break a window; order holds (H26)."""
    link = linked()
    call_id = stream(link, window=1000)
    for number in range(30):
        link.plugin.items(call_id, [str(number) * 60])
    link.plugin.result(call_id, "end")
    assert link.plugin.serving == 1
    seen: list[Any] = []
    for _ in range(30):
        for event in link.to_host():
            seen.append(event)
            if type(event) is ev.Items:
                link.host.consumed(call_id, event.cost)
        link.to_plugin()
    assert values(seen) == [str(number) * 60 for number in range(30)]
    assert seen[-1] == ev.Returned(call_id, "end")
    assert link.plugin.serving == 0


def test_over_sending_is_a_violation() -> None:
    """STR-003, H31: a producer that ignores credit is found out within one window."""
    link = linked()
    call_id = stream(link, window=1000)
    item = frame(messages.DATA, call_id, "x" * 66)
    received = 0
    with pytest.raises(ProtocolViolation, match="flow"):
        for _ in range(1000):
            received += len(link.host.receive(item))
    assert received == 10


def test_over_sending_small_frames_is_found_out_too() -> None:
    """Each frame costs 32 bytes more than its body."""
    link = linked()
    call_id = stream(link, window=1024)
    with pytest.raises(ProtocolViolation, match="flow") as caught:
        link.host.receive(frame(messages.DATA, call_id, None) * 1000)
    assert len(caught.value.events) == 32


def test_the_link_has_a_window_of_its_own() -> None:
    """Many streams together cannot hold more than the link's window."""
    link = linked({"inflight": 1000, "link_window": 8192}, {"inflight": 1000})
    ids = [link.host.call("a", "m", None) for _ in range(100)]
    link.to_plugin()
    received: list[Any] = []
    with pytest.raises(ProtocolViolation, match="flow"):
        for call_id in ids:
            received += link.host.receive(frame(messages.DATA, call_id, "x" * 1000))
    assert len(received) == 8


@pytest.mark.parametrize("credit", [0, -1, -(2**63), 2**63 - 1, 101, 1.0, True, None, "1", [1], {}])
@pytest.mark.parametrize("on_link", [True, False])
def test_wrong_credit_is_a_violation(credit: Any, on_link: bool) -> None:
    """STR-005: zero, negative, more than was spent, or no count."""
    link = linked()
    call_id = stream(link)
    link.plugin.items(call_id, ["x" * 66])
    with pytest.raises(ProtocolViolation, match="flow"):
        link.plugin.receive(frame(messages.CREDIT, 0 if on_link else call_id, credit))


def test_unreadable_credit_and_credit_for_nothing() -> None:
    """STR-005."""
    for body in (b"", b"\xc1", b"\x01\x01", codec.encode(1)):
        link = linked()
        call_id = stream(link)
        with pytest.raises(ProtocolViolation, match="flow"):
            link.plugin.receive(frame(messages.CREDIT, call_id, body))
    link = linked()
    with pytest.raises(ProtocolViolation, match="unknown_id"):
        link.plugin.receive(frame(messages.CREDIT, 9, 1))


def test_credit_counts_bytes_of_the_header_not_of_the_value() -> None:
    """H32: a foreign encoder writes five bytes for every small integer."""
    link = linked()
    call_id = stream(link, window=1000)
    wide = b"\xdc\x00\x10" + b"\xd2\x00\x00\x00\x07" * 16
    (event,) = link.host.receive(frame(messages.DATA, call_id, wide, BATCH))
    assert event.values == [7] * 16
    assert event.cost == len(wide) + FRAME_COST_BYTES


def test_a_stalled_stream_does_not_stall_the_others() -> None:
    """STR-009, H23: 100 calls finish while a stream stands at its window."""
    link = linked({"inflight": 200}, {"inflight": 200})
    stalled = stream(link)
    while link.plugin.sendable(stalled):
        link.plugin.items(stalled, ["x" * 1000])
    link.plugin.items(stalled, ["one too many"])
    link.to_host()
    for number in range(100):
        other = stream(link)
        link.plugin.items(other, [number])
        link.plugin.result(other, number)
        events = link.to_host()
        assert names(events) == ["Items", "Returned"]
        link.host.consumed(other, events[0].cost)
        link.to_plugin()


def test_credit_of_the_link_reaches_everyone() -> None:
    """Items of a call that is over still hold the link until they are taken."""
    link = linked({"link_window": 4096, "window": 1 << 20}, {"window": 1 << 20})
    first, second = stream(link), stream(link)
    link.plugin.items(first, ["x" * 5000])
    link.plugin.result(first, None)
    assert not link.plugin.sendable(second)
    link.plugin.items(second, ["waits"])
    items, returned = link.to_host()
    assert type(returned) is ev.Returned
    link.host.consumed(first, items.cost)
    assert link.to_plugin() == [ev.Credited(0)]
    assert values(link.to_host()) == ["waits"]


def test_an_error_after_items_keeps_the_items() -> None:
    """STR-007: delivered items, then the error; never an end."""
    link = linked()
    call_id = stream(link)
    link.plugin.items(call_id, [1, 2])
    link.plugin.error(call_id, WireError("upstream", "gone"))
    items, failed = link.to_host()
    assert items.values == [1, 2]
    assert failed.error.code == "upstream"


@pytest.mark.parametrize("body", [b"\xc1", b"\xa1\xff", b"", b"\x81\x01\x01"])
def test_an_unreadable_item_costs_its_call(body: bytes) -> None:
    """FRM-006: the call fails at once and is cancelled; its terminal is swallowed when it comes."""
    link = linked()
    call_id = stream(link)
    (failed,) = link.host.receive(frame(messages.DATA, call_id, body))
    assert (failed.error.code, failed.error.executed) == ("contract_violation", "maybe")
    assert link.to_plugin() == [ev.Cancelled(call_id, "contract_violation")]
    link.plugin.items(call_id, ["dropped"])
    assert link.host.receive(frame(messages.DATA, call_id, "crossing")) == []
    link.plugin.result(call_id, None)
    assert link.to_host() == []
    assert link.host.calls == 0
    assert link.host.counters["late_frames"] == 2
    window = link.host._calls._link  # nothing of it is kept, so all of it is returned
    assert window.due == window.window - window.left


def test_a_batch_that_is_no_list_costs_its_call() -> None:
    link = linked()
    call_id = stream(link)
    (failed,) = link.host.receive(frame(messages.DATA, call_id, {"a": 1}, BATCH))
    assert failed.error.code == "contract_violation"
    assert link.host.state == "ready"


# Bytes


def test_raw_chunks_and_their_window() -> None:
    """Bytes are not decoded, and come out as they went in; empty ones too."""
    link = linked()
    call_id = stream(link, window=1 << 20)
    for data in (b"", b"\xc1\xff", b"x" * 300_000):
        link.plugin.chunk(call_id, data)
    events = link.to_host()
    assert [bytes(event.data) for event in events] == [b"", b"\xc1\xff", b"x" * 300_000]
    assert [event.cost for event in events] == [32, 34, 300_032]
    assert not any(event.end for event in events)


def test_a_long_chunk_is_cut_into_frames() -> None:
    """Each is a chunk of its own, so credit and order are those of any other."""
    link = linked(SMALL)
    call_id = stream(link, window=1 << 20)
    data = bytes(range(256)) * 40
    link.plugin.chunk(call_id, data)
    events = link.to_host()
    assert [len(event.data) for event in events] == [4096, 4096, 2048]
    assert b"".join(event.data for event in events) == data


def test_an_upload_and_its_end() -> None:
    """DATA of the caller: in order, with credit, ended by END."""
    link = linked()
    call_id = stream(link)
    link.host.chunk(call_id, b"one")
    link.host.chunk(call_id, b"two", end=True)
    first, second = link.to_plugin()
    assert (bytes(first.data), first.end) == (b"one", False)
    assert (bytes(second.data), second.end) == (b"two", True)
    link.host.chunk(call_id, b"three")
    link.host.end_upload(call_id)
    assert link.host.pending_bytes == 0
    assert link.host.counters == {"unwanted_answers": 2}
    link.plugin.items(call_id, ["answer"])
    link.plugin.result(call_id, None)
    assert names(link.to_host()) == ["Items", "Returned"]


def test_no_credit_is_sent_where_nothing_more_can_come() -> None:
    """Of an upload that has ended, of a call that is cancelled: only the link has it back."""
    link = linked({"raw_window": 1024, "window": 1024}, {"raw_window": 1024, "window": 1024})
    ended, cancelled = stream(link), stream(link)
    link.host.chunk(ended, b"x" * 1000, end=True)
    link.plugin.items(cancelled, ["x" * 1000])
    (chunk,) = link.to_plugin()
    (items,) = link.to_host()
    link.host.cancel(cancelled)
    link.to_plugin()
    link.plugin.consumed(ended, chunk.cost)
    link.host.consumed(cancelled, items.cost)
    assert link.plugin.pending_bytes == link.host.pending_bytes == 0


def test_an_upload_may_end_with_nothing() -> None:
    link = linked()
    call_id = stream(link)
    link.host.end_upload(call_id)
    (end,) = link.to_plugin()
    assert (bytes(end.data), end.cost, end.end) == (b"", FRAME_COST_BYTES, True)


def test_an_upload_waits_for_credit() -> None:
    """An upload starts at the default window of bytes."""
    link = linked(SMALL)
    call_id = stream(link)
    sent = 0
    while link.host.sendable(call_id):
        link.host.chunk(call_id, b"x" * 1000)
        sent += 1
    assert sent == 4
    link.host.chunk(call_id, b"waits", end=True)
    events = link.to_plugin()
    assert len(events) == 4
    link.plugin.consumed(call_id, sum(event.cost for event in events))
    assert link.to_host() == [ev.Credited(call_id)]
    (last,) = link.to_plugin()
    assert (bytes(last.data), last.end) == (b"waits", True)


def test_an_upload_that_waits_is_dropped_by_the_cancel() -> None:
    """Credit that comes later does not bring it back."""
    link = linked(SMALL)
    call_id = stream(link)
    while link.host.sendable(call_id):
        link.host.chunk(call_id, b"x" * 1000)
    link.host.chunk(call_id, b"waits")
    chunks = link.to_plugin()
    link.plugin.consumed(call_id, sum(chunk.cost for chunk in chunks))
    credit = b"".join(link.plugin.take())
    link.host.cancel(call_id)
    assert names(link.to_plugin()) == ["Cancelled"]
    assert link.host.receive(credit) == [ev.Credited(call_id)]
    assert link.host.pending_bytes == 0


def test_an_upload_to_a_call_whose_answer_waits_is_dropped() -> None:
    """It has answered, though the answer has not left: its handler reads no more."""
    link = linked()
    call_id = stream(link, window=10)
    link.plugin.items(call_id, ["x" * 50])
    link.plugin.items(call_id, ["waits"])
    link.plugin.result(call_id, None)
    link.host.chunk(call_id, b"more")
    assert link.to_plugin() == []
    assert link.plugin.counters == {"late_frames": 1}
    assert link.plugin._calls._link.due == 36


def test_an_upload_to_a_call_that_is_over_is_dropped_and_its_credit_returned() -> None:
    """The callee may answer before it has read everything."""
    link = linked(SMALL)
    call_id = stream(link)
    while link.host.sendable(call_id):
        link.host.chunk(call_id, b"x" * 4000)
    link.host.chunk(call_id, b"still waiting")
    link.plugin.result(call_id, "enough")
    assert link.to_plugin() == []
    assert link.to_host() == [ev.Returned(call_id, "enough")]
    link.settle()
    for _ in range(20):  # the link does not run dry
        other = stream(link)
        link.host.chunk(other, b"x" * 2000, end=True)
        link.plugin.result(other, None)
        assert link.to_plugin() == []
        link.settle()
    assert link.host.calls == 0
    assert link.host.sendable(call_id)


def test_unreadable_data_of_an_upload_ends_the_call() -> None:
    """FRM-006: the caller gets invalid_argument, the handler is told, the link stays."""
    link = linked()
    call_id = stream(link)
    events = link.plugin.receive(frame(messages.DATA, call_id, b"\xc1"))
    assert events == [ev.Cancelled(call_id, "invalid_argument")]
    link.plugin.result(call_id, "too late")
    (failed,) = link.to_host()
    assert failed.error.code == "invalid_argument"
    assert link.plugin.serving == 0


def test_the_callee_does_not_end_uploads() -> None:
    link = linked()
    call_id = stream(link)
    with pytest.raises(ProtocolViolation, match="out_of_order"):
        link.host.receive(frame(messages.DATA, call_id, b"", RAW | END))


def test_costs_are_to_be_handed_back_once() -> None:
    """Consuming twice is our own fault and is said so; it never becomes wrong credit."""
    link = linked()
    call_id = stream(link)
    link.plugin.items(call_id, ["x"])
    (items,) = link.to_host()
    link.host.consumed(call_id, items.cost)
    with pytest.raises(ValueError, match="consumed"):
        link.host.consumed(call_id, items.cost)


def test_a_callback_may_stream_and_upload() -> None:
    """Wire rule 7: the other direction is the same code."""
    link = linked()
    parent = stream(link)
    child = link.plugin.call("h", "m", None, {"parent": parent, "window": 100})
    link.plugin.chunk(child, b"up", end=True)
    called, chunk = link.to_host()
    assert (called.window, chunk.end) == (100, True)
    link.host.items(child, [1, 2])
    link.host.result(child, 3)
    assert names(link.to_plugin()) == ["Items", "Returned"]


def test_a_callback_frame_with_a_tiny_window_is_obeyed() -> None:
    """A window of one byte: one item under way at a time."""
    link = linked()
    link.plugin.receive(call_frame(1, window=1))
    link.plugin.items(1, ["a", "b", "c"])
    assert b"".join(link.plugin.take()) == frame(messages.DATA, 1, "a")
    link.plugin.receive(frame(messages.CREDIT, 1, 34))
    assert b"".join(link.plugin.take()) == frame(messages.DATA, 1, "b")
