"""Messages over a frame, and over every limit (FRM-004, FRM-015, LIM-004, H13, H14, H25)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from purra_bridge.wire import codec, messages
from purra_bridge.wire import events as ev
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.header import MORE, RAW, pack_header
from tests.bridge.wire.links import Link, call_frame, frame, linked, names

SMALL = {"max_frame": 4096, "max_message": 20_000, "max_raw": 50_000, "link_window": 16_384}


def called(link: Link, **options: Any) -> int:
    call_id = link.host.call("a", "m", None, options)
    link.to_plugin()
    return call_id


def pieces(kind: int, call_id: int, body: bytes, size: int = 4096, flags: int = 0) -> list[bytes]:
    """The fragments of a message."""
    cuts = [body[at : at + size] for at in range(0, len(body), size)]
    return [
        frame(kind, call_id, part, flags | (MORE if index < len(cuts) - 1 else 0))
        for index, part in enumerate(cuts)
    ]


def test_exactly_the_limit_is_one_frame_and_one_more_is_two() -> None:
    """FRM-004, both directions."""
    link = linked(SMALL)
    for body, frames in ((b"x" * 4093, 1), (b"x" * 4094, 2)):
        call_id = called(link)
        link.plugin.result(call_id, body)
        data = b"".join(link.plugin.take())
        assert len(data) == len(body) + 3 + 10 * frames
        assert link.host.receive(data) == [ev.Returned(call_id, body)]
        link.settle()


def test_large_messages_of_every_kind_arrive_whole() -> None:
    """CALL, DATA, RESULT, ERROR in fragments, while smaller ones pass (FRM-015)."""
    link = linked(SMALL | {"window": 100_000}, {"window": 100_000})
    big = "x" * 15_000
    first = link.host.call("a", "m", big)
    second = link.host.call("a", "m", "small")
    _, at_plugin = link.settle()
    assert sorted(names(at_plugin)).count("Called") == 2
    assert {e.id: len(e.args) for e in at_plugin if type(e) is ev.Called} == {
        first: 15_000,
        second: 5,
    }
    link.plugin.items(first, [big, "tail"])
    link.plugin.error(first, WireError("internal", big))
    link.plugin.result(second, [big])
    at_host, _ = link.settle()
    seen = [e for e in at_host if type(e) is not ev.Credited]
    assert [value for e in seen if type(e) is ev.Items for value in e.values] == [big, "tail"]
    (failed,) = [e for e in seen if type(e) is ev.Failed]
    assert failed.error.message == big
    assert ev.Returned(second, [big]) in seen
    assert link.host.calls == link.plugin.serving == 0


def test_a_small_reply_does_not_wait_for_a_large_one() -> None:
    """FRM-015, H25: a large message is under way for a link's window at a time."""
    link = linked()
    large, small = called(link), called(link)
    link.plugin.result(large, "x" * (15 << 20))
    link.plugin.result(small, "quick")
    events = link.to_host()
    assert events == [ev.Returned(small, "quick")]
    at_host, _ = link.settle()
    assert [type(e) for e in at_host] == [ev.Returned]
    assert len(at_host[0].value) == 15 << 20


def test_fragments_of_different_calls_may_be_interleaved() -> None:
    link = linked(SMALL)
    first, second = called(link), called(link)
    parts = [pieces(messages.RESULT, i, codec.encode(str(i) * 9000)) for i in (first, second)]
    mixed = [part for pair in zip(*parts, strict=True) for part in pair]
    events = link.host.receive(b"".join(mixed))
    assert events == [ev.Returned(first, "1" * 9000), ev.Returned(second, "3" * 9000)]


def test_within_a_call_only_credit_and_cancel_may_come_between() -> None:
    link = linked(SMALL)
    call_id = called(link)
    link.host.chunk(call_id, b"x" * 100)
    parts = pieces(messages.RESULT, call_id, codec.encode("y" * 9000))
    between = frame(messages.CREDIT, call_id, 132)
    assert names(link.host.receive(parts[0] + between + parts[1] + parts[2])) == [
        "Credited",
        "Returned",
    ]
    link = linked(SMALL)
    call_id = called(link)
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        link.host.receive(parts[0] + frame(messages.DATA, call_id, 1))


@pytest.mark.parametrize("kind", [messages.CREDIT, messages.CANCEL, messages.PING, messages.LOG])
def test_small_messages_are_never_cut(kind: int) -> None:
    link = linked(SMALL)
    call_id = called(link) if kind in (messages.CREDIT, messages.CANCEL) else 0
    session = link.plugin if call_id else link.host
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        session.receive(frame(kind, call_id, b"", MORE))


def test_a_call_in_fragments_can_be_cancelled() -> None:
    """Ours goes behind its CALL; a peer's may come between."""
    link = linked(SMALL)
    call_id = link.host.call("a", "m", "x" * 15_000)
    assert not link.host.cancel(call_id, "stop")
    _, events = link.settle()
    assert names(events) == ["Called", "Cancelled"]
    body = codec.encode({"adapter": "a", "method": "m", "args": "x" * 9000})
    parts = pieces(messages.CALL, 3, body)
    cancel = frame(messages.CANCEL, 3, {})
    assert link.plugin.receive(parts[0] + cancel + parts[1] + parts[2]) == []
    reply = b"".join(link.plugin.take())
    assert b"cancelled" in reply


def test_large_items_pay_their_stream_as_a_whole() -> None:
    """Otherwise a stream of large items would have no window at all."""
    link = linked(SMALL | {"window": 8192})
    call_id = called(link)
    sent = 0
    while link.plugin.sendable(call_id):
        link.plugin.items(call_id, ["x" * 6000])
        sent += 1
    assert sent == 2
    at_host, _ = link.settle()
    items = [e for e in at_host if type(e) is ev.Items]
    assert [len(e.values[0]) for e in items] == [6000, 6000]
    # The link's credit came back with the fragments, the stream's only now, and not twice.
    link.host.consumed(call_id, sum(e.cost for e in items))
    link.settle()
    assert link.plugin.sendable(call_id)
    assert link.host._calls._link.due <= link.host._calls._link.window - link.host._calls._link.left


# Too large


def test_a_call_that_is_too_large_is_not_sent() -> None:
    """FRM-004, LIM-004: the caller gets too_large, with both sizes."""
    link = linked(SMALL)
    with pytest.raises(WireError, match="too_large") as caught:
        link.host.call("a", "m", "x" * 20_000)
    assert caught.value.executed == "no"
    assert caught.value.detail == {"bytes": 20_028, "limit": 20_000}
    assert link.host.pending_bytes == 0


def test_a_result_that_is_too_large_becomes_an_error() -> None:
    """LIM-004: the call ran, and the caller learns that."""
    link = linked(SMALL)
    call_id = called(link)
    link.plugin.result(call_id, "x" * 20_000)
    (failed,) = link.to_host()
    assert (failed.error.code, failed.error.executed) == ("too_large", "yes")


def test_an_item_that_is_too_large_is_refused_to_its_producer() -> None:
    link = linked(SMALL)
    call_id = called(link)
    with pytest.raises(WireError, match="too_large"):
        link.plugin.items(call_id, ["x" * 20_000])
    with pytest.raises(WireError, match="too_large"):
        link.plugin.items(call_id, ["y", "x" * 20_000])


@pytest.mark.parametrize("kind", [messages.RESULT, messages.ERROR])
def test_an_oversize_reply_costs_its_call(kind: int) -> None:
    """H14: max_frame + 1 in one frame; the next call works, the true size is said (H13)."""
    link = linked(SMALL)
    call_id = called(link)
    (failed,) = link.host.receive(pack_header(4097, call_id, kind, 0) + bytes(4097))
    assert (failed.error.code, failed.error.executed) == ("too_large", "yes")
    assert failed.error.detail == {"bytes": 4097, "limit": 4096}
    other = called(link)
    link.plugin.result(other, 1)
    assert link.to_host() == [ev.Returned(other, 1)]


def test_an_oversize_call_is_answered_before_it_has_come() -> None:
    """LIM-004: no executed call, no stored byte."""
    link = linked(SMALL)
    assert link.plugin.receive(pack_header(15 << 20, 1, messages.CALL, 0)) == []
    (failed_body,) = [codec.decode(b"".join(link.plugin.take())[10:])]
    assert (failed_body["code"], failed_body["executed"]) == ("too_large", "no")
    tracemalloc.start()
    for _ in range(15 * 16):
        assert link.plugin.receive(bytes(65_536)) == []
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert names(link.plugin.receive(call_frame(3))) == ["Called"]


def test_an_oversize_call_before_ready_costs_the_call_too() -> None:
    link = Link(SMALL).greet()
    assert link.plugin.receive(pack_header(5000, 1, messages.CALL, 0) + bytes(5000)) == []
    body = codec.encode({"adapter": "a", "method": "m", "args": "x" * 9000})
    assert link.plugin.receive(b"".join(pieces(messages.CALL, 3, body))) == []
    answers = b"".join(link.plugin.take())
    assert b"too_large" in answers
    assert b"not_active" in answers


def test_an_oversize_item_cancels_its_call() -> None:
    """Ours: failed at once, cancelled, its terminal swallowed; the link's credit comes back."""
    link = linked(SMALL)
    call_id = called(link)
    (failed,) = link.host.receive(pack_header(10_000, call_id, messages.DATA, 0) + bytes(10_000))
    assert (failed.error.code, failed.error.executed) == ("too_large", "maybe")
    frames = b"".join(link.host.take())
    assert frame(messages.CREDIT, 0, 10_032) in frames
    assert b"too_large" in frames
    again = pack_header(5000, call_id, messages.DATA, 0) + bytes(5000)
    assert link.host.receive(again) == []
    assert link.host.receive(frame(messages.RESULT, call_id, 1)) == []
    assert link.host.calls == 0


def test_an_oversize_chunk_of_an_upload_ends_the_call() -> None:
    link = linked(SMALL)
    call_id = called(link)
    events = link.plugin.receive(pack_header(5000, call_id, messages.DATA, RAW) + bytes(5000))
    assert events == [ev.Cancelled(call_id, "too_large")]
    at_host, _ = link.settle()
    (failed,) = [e for e in at_host if type(e) is ev.Failed]
    assert failed.error.code == "too_large"


@pytest.mark.parametrize("kind", [messages.CREDIT, messages.CANCEL])
def test_an_oversize_control_frame_is_a_violation(kind: int) -> None:
    link = linked(SMALL)
    call_id = called(link)
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        link.plugin.receive(pack_header(5000, call_id, kind, 0))


@pytest.mark.parametrize("kind", [messages.LOG, messages.ERROR, messages.STATUS])
def test_oversize_on_id_0_is_a_violation(kind: int) -> None:
    link = linked(SMALL)
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        link.host.receive(pack_header(5000, 0, kind, 0))


def test_an_unknown_oversize_type_is_skipped() -> None:
    """FRM-010."""
    link = linked(SMALL)
    assert link.host.receive(pack_header(5000, 0, 99, 0) + bytes(5000)) == []
    link.host.ping(1)
    assert names(link.to_plugin()) == ["Ping"]


def test_a_message_that_grows_too_long_is_not_kept() -> None:
    """LIM-004: dropped when it passes the limit, answered when it ends."""
    link = linked(SMALL | {"link_window": 1 << 20}, {"link_window": 1 << 20})
    call_id = called(link)
    part = frame(messages.RESULT, call_id, bytes(4096), MORE)
    for _ in range(100):
        assert link.host.receive(part) == []
        stored = link.host._calls.joining[call_id].parts
        assert stored is None or len(stored) <= 20_000
        link.to_plugin()
    (failed,) = link.host.receive(frame(messages.RESULT, call_id, b"x"))
    assert failed.error.code == "too_large"
    assert failed.error.detail["bytes"] == 100 * 4096 + 1
    assert link.host.calls == 0


def test_an_oversize_fragment_spoils_its_message() -> None:
    link = linked(SMALL)
    body = pack_header(5000, 1, messages.CALL, MORE) + bytes(5000)
    assert link.plugin.receive(body + frame(messages.CALL, 1, b"rest")) == []
    assert b"too_large" in b"".join(link.plugin.take())
    assert names(link.plugin.receive(call_frame(3))) == ["Called"]


def test_raw_messages_have_their_own_limit() -> None:
    """64 MiB by default, 16 MiB for values; here 50,000 and 20,000 bytes."""
    link = linked(SMALL | {"link_window": 1 << 20}, {"link_window": 1 << 20})
    call_id = called(link, window=1 << 20)
    (chunk,) = link.host.receive(b"".join(pieces(messages.DATA, call_id, bytes(50_000), flags=RAW)))
    assert len(chunk.data) == 50_000
    (failed,) = link.host.receive(
        b"".join(pieces(messages.DATA, call_id, bytes(50_001), flags=RAW))
    )
    assert failed.error.code == "too_large"


def test_all_unjoined_messages_together_are_bounded(monkeypatch: Any) -> None:
    """64 MiB by default: the message that passes it is given up, the others go on."""
    monkeypatch.setattr("purra_bridge.wire.fragments.UNJOINED_BYTES", 10_000)
    link = linked(SMALL)
    three, four = called(link), called(link)
    link.host.receive(pieces(messages.RESULT, three, codec.encode("x" * 8000))[0])
    events = link.host.receive(b"".join(pieces(messages.RESULT, four, codec.encode("y" * 8000))))
    assert names(events) == ["Failed"]
    events = link.host.receive(pieces(messages.RESULT, three, codec.encode("x" * 8000))[1])
    assert names(events) == ["Returned"]
    assert link.host._calls.joiner._stored == 0


def test_unfinished_calls_are_bounded() -> None:
    """A peer cannot begin calls without end, however small their fragments."""
    link = linked({"inflight": 4})
    with pytest.raises(ProtocolViolation, match="unfinished"):
        for call_id in range(1, 100, 2):
            link.plugin.receive(frame(messages.CALL, call_id, b"", MORE))
    assert len(link.plugin._calls.joining) <= 8


def test_fragments_for_a_call_that_is_over_leave_nothing() -> None:
    link = linked(SMALL)
    call_id = called(link)
    part = frame(messages.DATA, call_id, bytes(4096), MORE | RAW)
    link.plugin.receive(part)
    assert link.plugin._calls.joiner._stored == 4096
    link.plugin.result(call_id, None)
    assert link.plugin._calls.joiner._stored == 0
    for _ in range(10):
        assert link.plugin.receive(part) == []
    assert link.plugin._calls.joining == {}


def test_fragments_need_credit_of_the_link() -> None:
    """STR-003: fragments that ignore it are a violation, like any data; credit comes back when
    they are stored, so a correct peer never stands still."""
    link = linked(SMALL | {"max_message": 1 << 20}, {"max_message": 1 << 20})
    link.plugin._calls._link.left = 100
    part = frame(messages.CALL, 1, bytes(4096), MORE)
    link.plugin.receive(part)  # the first of a CALL is free
    link.plugin._calls._link.left = 0
    with pytest.raises(ProtocolViolation, match="flow"):
        link.plugin.receive(part)


def test_a_300_kib_reply_in_one_byte_writes() -> None:
    """H13."""
    link = linked({"max_frame": 65_536})
    call_id = called(link)
    link.plugin.result(call_id, "x" * (300 << 10))
    data = b"".join(link.plugin.take())
    events: list[Any] = []
    for at in range(len(data)):
        events += link.host.receive(data[at : at + 1])
    assert events == [ev.Returned(call_id, "x" * (300 << 10))]
