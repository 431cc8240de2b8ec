"""Counts what passes between this process and its plugins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from purra_bridge.wire import messages
from purra_bridge.wire.codec import decode
from purra_bridge.wire.frames import FrameReader
from purra_bridge.wire.header import HEADER_BYTES, unpack
from purra_bridge.wire.session import Session

__all__ = ["Tap", "tapped"]


class Tap:
    """Counts frames as they pass between this process and its plugins.

    What goes out is read again from the bytes that a session hands to its channel, what comes in is
    taken where the bytes have been cut into frames. `frames`: (what the call is, frame) -> count.
    """

    def __init__(self) -> None:
        self.frames: Counter[tuple[str, str]] = Counter()
        self._calls: dict[tuple[Session, int], str] = {}
        self._receiving: Session | None = None

    def sent(self, session: Session, parts: list[Any]) -> None:
        data, at = b"".join(parts), 0
        while at < len(data):
            length, call, kind, flags = unpack(data, at)
            body = data[at + HEADER_BYTES : at + HEADER_BYTES + length]
            at += HEADER_BYTES + length
            if kind == messages.CALL and (session, call) not in self._calls:
                assert not flags, "a CALL in fragments: not in a run this small"
                self._calls[session, call] = what(decode(body))
            self._count(session, call, kind)

    def receiving(self, session: Session) -> None:
        self._receiving = session

    def received(self, call: int, kind: int) -> None:
        assert self._receiving is not None
        self._count(self._receiving, call, kind)

    def of(self, *kinds: str, but: tuple[str, ...] = ()) -> int:
        """How many frames of these kinds there were, of calls that are none of `but`."""
        return sum(
            n for (call, kind), n in self.frames.items() if kind in kinds and call not in but
        )

    def _count(self, session: Session, call: int, kind: int) -> None:
        about = self._calls.get((session, call), "connection")
        self.frames[about, messages.NAMES[kind]] += 1


def what(call: dict[str, Any]) -> str:
    """A call's method; commits that the bound leaves out have names of their own."""
    if call["method"] != "commit":
        return str(call["method"])
    ops = call["args"]["ops"]
    if all(op["op"] == "touch" or op.get("key", "").startswith("kernel/") for op in ops):
        return "touch"  # a heartbeat, also one that has news of the kernel's plugins
    drafts = all(op["op"] == "append" and op["stream"].endswith("/out") for op in ops)
    return "delta batch" if drafts else "commit"


@contextmanager
def tapped(patch: pytest.MonkeyPatch) -> Iterator[Tap]:
    """Counts while this holds."""
    tap = Tap()
    take, received, advance = Session.take, Session.received, FrameReader.advance

    def taken(session: Session) -> list[Any]:
        parts = take(session)
        tap.sent(session, parts)
        return parts

    def receiving(session: Session, count: int) -> list[Any]:
        tap.receiving(session)
        return received(session, count)

    def advancing(reader: FrameReader, count: int) -> Iterator[tuple[int, int, int, Any]]:
        for frame in advance(reader, count):
            tap.received(frame[2], frame[0])
            yield frame

    with patch.context() as patched:
        patched.setattr(Session, "take", taken)
        patched.setattr(Session, "received", receiving)
        patched.setattr(FrameReader, "advance", advancing)
        yield tap
