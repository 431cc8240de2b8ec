"""Bytes to frames and back, whatever the pieces (FRM-001..004, H13)."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from purra_bridge.wire.credits import FRAME_COST_BYTES, SendWindow
from purra_bridge.wire.errors import ProtocolViolation
from purra_bridge.wire.frames import OVERSIZE, FrameReader, FrameWriter
from purra_bridge.wire.header import HEADER_BYTES, MORE, pack_header, unpack
from purra_bridge.wire.messages import CALL, CREDIT, DATA, RESULT

SMALL_BUFFER_BYTES = 40 * 1024


def feed(reader: FrameReader, data: bytes, piece: int) -> list[tuple[int, int, int, Any]]:
    """Reads `data` in pieces of at most `piece` bytes."""
    found: list[Any] = []
    at = 0
    while at < len(data):
        space = reader.buffer()
        assert len(space) > 0
        part = data[at : at + min(piece, len(space))]
        space[: len(part)] = part
        at += len(part)
        for kind, flags, call_id, body in reader.advance(len(part)):
            found.append((kind, flags, call_id, body if kind & OVERSIZE else bytes(body)))
    return found


def cut(data: bytes) -> list[tuple[int, int, int, Any]]:
    """What a correct reader must find, computed the slow way."""
    found = []
    while data:
        length, call_id, kind, flags = unpack(data, 0)
        found.append((kind, flags, call_id, data[HEADER_BYTES : HEADER_BYTES + length]))
        data = data[HEADER_BYTES + length :]
    return found


@pytest.mark.parametrize("piece", [1, 2, 9, 10, 11, 4095, 30_000, 10**9])
def test_every_split_gives_the_same_frames(piece: int) -> None:
    """FRM-001, FRM-002, FRM-016: empty, small, and larger than the buffer."""
    dice = random.Random(1)
    sizes = [0, 1, 5, 0, 100, 33_000, 0, 200_000, 32 * 1024, 32 * 1024 + 1, 3, 0]
    data = b"".join(
        pack_header(size, index, 17, index % 3) + dice.randbytes(size)
        for index, size in enumerate(sizes)
    )
    reader = FrameReader(1 << 20, SMALL_BUFFER_BYTES)
    assert feed(reader, data, piece) == cut(data)
    assert not reader.inside_frame


def test_random_splits_give_the_same_frames() -> None:
    """FRM-001: pieces of random size, 50 sessions."""
    dice = random.Random(2)
    for _ in range(50):
        data = b"".join(
            pack_header(size, 1, 19, 0) + dice.randbytes(size)
            for size in (dice.choice([0, 3, 700, 33_000, 70_000]) for _ in range(10))
        )
        reader = FrameReader(1 << 20, SMALL_BUFFER_BYTES)
        found, at = [], 0
        while at < len(data):
            step = dice.randrange(1, 40_000)
            found += feed(reader, data[at : at + step], step)
            at += step
        assert found == cut(data)


@pytest.mark.parametrize("piece", [1, 7, 10**9])
def test_an_oversize_body_is_skipped_and_reported(piece: int) -> None:
    """PLG-12, FRM-004, H13, H14, H17: the maximum is read; one more is skipped, with its true
    length."""
    data = (
        pack_header(1000, 1, 19, 0)
        + b"a" * 1000
        + pack_header(1001, 3, 19, 0)
        + b"b" * 1001
        + pack_header(2, 5, 19, 0)
        + b"cc"
    )
    reader = FrameReader(1000, SMALL_BUFFER_BYTES)
    assert feed(reader, data, piece) == [
        (19, 0, 1, b"a" * 1000),
        (19 | OVERSIZE, 0, 3, 1001),
        (19, 0, 5, b"cc"),
    ]


def test_an_oversize_body_is_reported_before_it_has_come() -> None:
    """FRM-003: the claim alone is enough, and nothing is allocated for it."""
    reader = FrameReader(1000, SMALL_BUFFER_BYTES)
    tracemalloc.start()
    found = feed(reader, pack_header(0x00FF_FFFF, 3, 19, 0), 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(19 | OVERSIZE, 0, 3, 0x00FF_FFFF)]
    assert peak < 100_000
    assert reader.inside_frame


@pytest.mark.parametrize("text", [b"h", b"hi\n", b"Traceback (most recent call last):\n", b"\x01"])
def test_stray_text_fails_at_its_first_byte(text: bytes) -> None:
    """HSK-009, H01: not one byte more is awaited, and what was seen is shown."""
    reader = FrameReader(1000)
    good = pack_header(1, 1, 19, 0) + b"x"
    with pytest.raises(ProtocolViolation) as caught:
        feed(reader, good + text, 10**9)
    assert caught.value.reason == "bad_frame"
    assert repr(text)[1:] in caught.value.message


def test_four_gibibytes_are_refused_not_allocated() -> None:
    """FRM-003."""
    reader = FrameReader(1 << 20)
    tracemalloc.start()
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        feed(reader, b"\xff\xff\xff\xff" + bytes(6), 100)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_bodies_outlive_the_buffer() -> None:
    """A body handed out is not changed by the next read."""
    reader = FrameReader(1 << 20, SMALL_BUFFER_BYTES)
    space = reader.buffer()
    first = pack_header(3, 1, 19, 0) + b"abc"
    space[: len(first)] = first
    ((_, _, _, body),) = reader.advance(len(first))
    feed(reader, pack_header(3, 3, 19, 0) + b"xyz", 100)
    assert body == b"abc"


# Writing


def written(writer: FrameWriter) -> list[tuple[int, int, int, Any]]:
    pending = writer.pending_bytes
    parts = writer.take()
    assert pending == sum(map(len, parts))
    assert writer.pending_bytes == 0
    return cut(b"".join(parts))


def test_control_frames_leave_first() -> None:
    """Wire rule 4: CREDIT and its like do not queue behind data."""
    writer = FrameWriter(100, 1000)
    writer.send(CALL, 1, b"call")
    writer.control(CREDIT, 0, b"c")
    writer.send(CALL, 3, b"next")
    assert [frame[0] for frame in written(writer)] == [CREDIT, CALL, CALL]
    assert written(writer) == []


def test_data_waits_for_both_credits_and_the_terminal_behind_it() -> None:
    """STR-003, H26: order within a call holds whatever waits."""
    writer = FrameWriter(100, 1000)
    window = SendWindow(40)
    writer.data(0, 1, b"a" * 10, window)  # costs 42: the window is overdrawn by 2
    writer.data(0, 1, b"b", window)
    writer.send(RESULT, 1, b"end")
    writer.send(RESULT, 3, b"other")
    assert [(f[0], f[2]) for f in written(writer)] == [(DATA, 1), (RESULT, 3)]
    assert writer.waits(1) and not writer.waits(3)
    window.add(2)  # credit is 0 now: still nothing
    assert writer.pump() == [] and written(writer) == []
    window.add(1)
    assert writer.pump() == [1]
    assert [f[3] for f in written(writer)] == [b"b", b"end"]


@pytest.mark.parametrize(("stream", "link"), [(33, 1000), (1000, 33)])
def test_a_credit_of_nothing_is_no_credit(stream: int, link: int) -> None:
    """STR-003: a frame may start while credit is above 0, not at 0."""
    writer = FrameWriter(100, link)
    window = SendWindow(stream)
    writer.data(0, 1, b"a", window)
    writer.data(0, 1, b"b", window)
    assert min(window.credit, writer.link.credit) == 0
    assert [f[3] for f in written(writer)] == [b"a"]


def test_lanes_take_turns() -> None:
    """STR-009: what waits for the link goes out frame by frame, not call by call."""
    writer = FrameWriter(100, 50)
    windows = {call_id: SendWindow(10_000) for call_id in (1, 3)}
    writer.data(0, 1, b"x" * 100, windows[1])  # uses the link up
    written(writer)
    for call_id, window in windows.items():
        for _ in range(3):
            writer.data(0, call_id, b"y", window)
    writer.link.add(132)
    writer.pump()
    assert [f[2] for f in written(writer)] == [1, 3]


def test_a_large_body_is_cut_and_pays_by_fragment() -> None:
    """Fragments of any message cost link credit; the last one has no MORE."""
    writer = FrameWriter(100, 10_000)
    writer.send(RESULT, 1, b"x" * 250)
    frames = written(writer)
    assert [(f[0], f[1], len(f[3])) for f in frames] == [
        (RESULT, MORE, 100),
        (RESULT, MORE, 100),
        (RESULT, 0, 50),
    ]
    assert writer.link.credit == 10_000 - 250 - 3 * FRAME_COST_BYTES


def test_the_first_fragment_of_a_call_is_free() -> None:
    """Calls must open in the order of their ids, whatever waits for credit."""
    writer = FrameWriter(100, 1000)
    writer.link.credit = 0
    writer.send(CALL, 1, b"x" * 250)
    writer.send(CALL, 3, b"y")
    assert [(f[1], f[2], len(f[3])) for f in written(writer)] == [(MORE, 1, 100), (0, 3, 1)]
    assert writer.link.credit == 0


def test_fragments_wait_for_link_credit() -> None:
    writer = FrameWriter(100, 200)
    writer.send(RESULT, 1, b"x" * 1000)
    assert len(written(writer)) == 2
    for _ in range(4):
        writer.link.add(264)
        writer.pump()
        written(writer)
    assert not writer.waits(1)


def test_a_cut_item_is_paid_by_its_stream_as_a_whole() -> None:
    """Otherwise a stream of large items would have no window."""
    writer = FrameWriter(100, 10_000)
    window = SendWindow(500)
    writer.data(0, 1, b"x" * 900, window)
    assert window.credit == 500 - 900 - 9 * FRAME_COST_BYTES
    writer.data(0, 1, b"y", window)
    assert len(written(writer)) == 9


def test_what_was_not_taken_can_be_withdrawn() -> None:
    """CAN-001."""
    writer = FrameWriter(100, 1000)
    first, second = writer.send(CALL, 1, b"one"), writer.send(CALL, 3, b"two")
    assert writer.withdraw(first)
    assert writer.unsent(second)
    assert [f[2] for f in written(writer)] == [3]
    assert not writer.withdraw(second)
    assert not writer.unsent(second)


def test_forgetting_keeps_what_has_begun_and_the_terminal() -> None:
    writer = FrameWriter(100, 100)
    window = SendWindow(10_000)
    writer.data(0, 1, b"x" * 150, window)  # begun: one fragment is out
    writer.data(0, 1, b"y", window)
    writer.send(RESULT, 1, b"end")
    assert not writer.forget(1)
    writer.link.add(100)
    writer.pump()
    assert [(f[0], len(f[3])) for f in written(writer)] == [(DATA, 100), (DATA, 50), (RESULT, 3)]
    assert writer.forget(1)
