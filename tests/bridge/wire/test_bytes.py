"""Whole sessions as bytes: split at every place, and damaged in every way (FRM-001, FRM-017)."""

from __future__ import annotations

import gc
import random
import struct
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from purra_bridge.wire import events as ev
from purra_bridge.wire import messages
from purra_bridge.wire.header import HEADER_BYTES, unpack
from tests.bridge.wire.sample import HostScript, PluginScript, Script, frames, record

HOST_WROTE, PLUGIN_WROTE = record()
SIDES = [(HostScript, PLUGIN_WROTE), (PluginScript, HOST_WROTE)]


def test_the_sample_is_what_it_says() -> None:
    """Every message of the protocol is in it, and twelve frames or more each way."""
    there, back = frames(b"".join(HOST_WROTE)), frames(b"".join(PLUGIN_WROTE))
    assert {unpack(part, 0)[2] for part in there + back} == set(messages.NAMES)
    assert min(len(there), len(back)) >= 12


def played(script: Any, parts: list[bytes], cuts: Sequence[int] = ()) -> Script:
    """Plays the parts, each in pieces that end at the offsets in `cuts`."""
    end: Script = script()
    at = 0
    for part in parts:
        stops = [cut - at for cut in cuts if at < cut < at + len(part)]
        for start, stop in zip([0, *stops], [*stops, len(part)], strict=True):
            end.play(part[start:stop])
        at += len(part)
    return end


def by_call(end: Script) -> dict[int, list[Any]]:
    """What was seen of each call (0 = of the connection), in order. When an answer leaves depends
    on how many bytes were read at once, so events of different calls may change places, and credit
    may come in other portions."""
    found: dict[int, list[Any]] = {}
    for event in end.seen:
        if type(event) is not ev.Credited:
            what = event.error.to_body() if type(event) is ev.Failed else event
            found.setdefault(getattr(event, "id", 0), []).append(what)
    return found


@pytest.mark.parametrize(("script", "parts"), SIDES, ids=["host", "plugin"])
def test_every_split_gives_the_same_events(script: Any, parts: list[bytes]) -> None:
    """FRM-001, FRM-002: as they were written; byte by byte; and cut in two at every offset."""
    whole = played(script, parts)
    assert whole.violation is None
    size = sum(map(len, parts))
    by_bytes = played(script, parts, range(size))
    assert by_bytes.violation is None
    assert by_call(by_bytes) == by_call(whole)
    assert by_bytes.session.counters == whole.session.counters
    for cut in range(1, size):
        assert by_call(played(script, parts, (cut,))) == by_call(whole), cut


def test_the_sample_ends_as_meant() -> None:
    host = played(HostScript, PLUGIN_WROTE)
    terminals = {e.id: e for e in host.seen if type(e) in (ev.Returned, ev.Failed)}
    assert terminals[1] == ev.Returned(1, {"matches": 3})
    assert terminals[3].error.detail == {"store": {"a": 1}}
    assert terminals[5] == ev.Returned(5, "x" * 6000)
    assert 7 not in terminals  # withdrawn
    assert terminals[9].error.code == "cancelled"
    assert host.session.calls == 0
    plugin = played(PluginScript, HOST_WROTE)
    assert len([e for e in plugin.seen if type(e) is ev.Called]) == 4
    assert plugin.session.serving == 0


def damaged(parts: list[bytes], dice: random.Random) -> list[bytes]:
    """One to three faults, each in one part: of its frames or of its bytes."""
    parts = list(parts)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(parts))
        try:
            cut = frames(parts[at])
        except struct.error:  # damaged before: no frames any more
            cut = []
        if cut and dice.random() < 0.6:
            _damage_frames(cut, dice)
            parts[at] = b"".join(cut)
        else:
            parts[at] = _damage_bytes(parts[at], dice)
    return parts


def _damage_frames(cut: list[bytes], dice: random.Random) -> None:
    at = dice.randrange(len(cut))
    choice = dice.randrange(4)
    if choice == 0:  # twice
        cut.insert(dice.randrange(len(cut)), cut[at])
    elif choice == 1:  # lost
        del cut[at]
    elif choice == 2:  # another id, type or flags
        header = bytearray(cut[at])
        value = dice.choice([0, 1, 2, 3, 4, 8, 9, 16, 17, 18, 19, 20, 21, 99, 255])
        header[dice.choice([7, 8, 9])] = value
        cut[at] = bytes(header)
    else:  # another body, of the same length
        cut[at] = cut[at][:HEADER_BYTES] + dice.randbytes(len(cut[at]) - HEADER_BYTES)


def _damage_bytes(data: bytes, dice: random.Random) -> bytes:
    choice = dice.randrange(3)
    at = dice.randrange(len(data) + 1)
    if choice == 0:
        return data[:at]
    if choice == 1:
        return data[:at] + dice.randbytes(dice.randint(1, 20)) + data[at:]
    return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]


@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_damaged_sessions(part: int) -> None:
    """FRM-017: a verdict each time, events or one violation; no hang, no crash, no growth, and
    every call that was made gets its one terminal."""
    dice = random.Random(part)
    verdicts: Counter[str] = Counter()
    for number in range(1000):
        script, parts = SIDES[number % 2]
        parts = damaged(parts, dice)
        end = played(script, parts)
        session = end.session
        verdicts[end.violation.reason if end.violation else "fine"] += 1
        size = sum(map(len, parts))
        assert len(end.sent) < 50_000
        assert session.serving <= 8
        assert sum(len(e.parts or b"") for e in session._calls.joining.values()) <= size
        end.seen += session.eof()
        ended = [e.id for e in end.seen if type(e) in (ev.Returned, ev.Failed)]
        assert len(ended) == len(set(ended))
        assert session.calls == session.serving == 0
        if script is HostScript and any(type(e) is ev.Ready for e in end.seen):
            assert set(ended) == {1, 3, 5, 9} or end.violation is not None
    assert min(verdicts["fine"], verdicts["bad_frame"]) > 50, verdicts
    assert len(verdicts) >= 5, verdicts


def test_damaged_sessions_leave_no_memory_behind() -> None:
    """FRM-017: the same sessions again, and nothing of them is kept."""
    dice = random.Random(99)
    tracemalloc.start()
    for number in range(100):
        script, parts = SIDES[number % 2]
        played(script, damaged(parts, dice)).session.eof()
        if number == 20:
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
    peak = tracemalloc.get_traced_memory()[1]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 100_000
    assert peak < 8 << 20
