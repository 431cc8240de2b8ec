"""Bytes to frames and frames to bytes. Knows buffers and queues, not what a message means.

Reading. `recv_into` writes into `buffer()`, `advance` gives the frames that are complete. Small
bodies are copied out of the one reused buffer (they outlive it); a large body that is not complete
yet gets its own buffer, and the rest of it is received straight into that: a blob is not copied.

A length is judged before anything is allocated for it: over 16 MiB (a first byte that is not 0) is
a violation, and stray text is one from its first byte on; over `max_body` the body is skipped as it
comes in and only its header is reported, because it costs one call and not the link.

Writing. Three classes of frames. *Control* frames (PING, PONG, CREDIT, CANCEL) leave first, so that
they never wait behind data. Everything else leaves in the order it was given. What has no credit
yet, and messages that must be cut into fragments, wait in a *lane*, one for each call, and lanes
take turns frame by frame; whatever else the call sends queues behind, so the order within a call
always holds. Holding such frames here and not at the callers means that a terminal can be given at
once and still leaves after the last item, and that no caller can overrun a window by mistake.
"""

from __future__ import annotations

from collections import deque

from purra_bridge.wire.credits import FRAME_COST_BYTES, SendWindow
from purra_bridge.wire.errors import ProtocolViolation
from purra_bridge.wire.header import HEADER_BYTES, MORE, pack_header, unpack
from purra_bridge.wire.messages import CALL, DATA

__all__ = ["BUFFER_BYTES", "OVERSIZE", "FrameReader", "FrameWriter"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

BUFFER_BYTES = 256 * 1024
"""One read takes what a socket buffer usually holds; pages that are never used cost nothing."""
OVERSIZE = 0x100
"""Set in the type of a reported frame whose body was over `max_body`; its body is the length."""
_OWN_BYTES = 32 * 1024
"""A larger body that is not complete gets its own buffer. Must be well below any buffer's size."""


class FrameReader:
    """Cuts one stream of bytes into frames. `max_body` may be changed between two frames."""

    __slots__ = (
        "_big",
        "_big_view",
        "_buffer",
        "_got",
        "_have",
        "_head",
        "_skip",
        "_view",
        "max_body",
    )

    def __init__(self, max_body: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        if buffer_bytes < _OWN_BYTES + HEADER_BYTES:
            raise ValueError(f"a buffer of {buffer_bytes} bytes is too small")
        self.max_body = max_body
        self._buffer = bytearray(buffer_bytes)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._big: bytearray | None = None
        self._big_view = self._view
        self._head = (0, 0, 0)
        self._got = 0
        self._skip = 0

    @property
    def inside_frame(self) -> bool:
        """True while a frame has begun and is not complete."""
        return bool(self._have or self._skip or self._big is not None)

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty. Valid until the next `advance`."""
        if self._big is not None:
            return self._big_view[self._got :]
        return self._view[self._have :]

    def advance(self, count: int) -> Iterator[tuple[int, int, int, Any]]:
        """`count` bytes are in `buffer()`: yields (type, flags, call id, body) of complete frames.

        Must be run to its end. Raises `ProtocolViolation(bad_frame)` when the frames before it have
        been given out. A frame over `max_body` comes as (type | OVERSIZE, flags, call id, length).
        """
        if self._big is not None:
            self._got += count
            if self._got == len(self._big):
                body, self._big = self._big, None
                self._big_view = self._view
                yield (*self._head, body)
            return
        have = self._have + count
        buffer = self._buffer
        at = min(self._skip, have)
        self._skip -= at
        while have - at >= HEADER_BYTES:
            length, call_id, kind, flags = unpack(buffer, at)
            start = at + HEADER_BYTES
            if length > self.max_body:
                _refuse_stray(buffer, at, have)
                at = min(start + length, have)
                self._skip = start + length - at
                yield kind | OVERSIZE, flags, call_id, length
                continue
            end = start + length
            if end > have:
                if length > _OWN_BYTES:
                    self._head = (kind, flags, call_id)
                    self._own(length, start, have)
                    have = at = 0
                break
            at = end
            yield kind, flags, call_id, buffer[start:end]
        if at < have:
            _refuse_stray(buffer, at, have)
            if at:
                self._view[: have - at] = self._view[at:have]
        self._have = have - at

    def _own(self, length: int, start: int, have: int) -> None:
        self._big = bytearray(length)
        self._big_view = memoryview(self._big)
        self._got = have - start
        self._big_view[: self._got] = self._view[start:have]


def _refuse_stray(buffer: bytearray, at: int, have: int) -> None:
    if buffer[at]:
        seen = bytes(buffer[at : min(have, at + 120)])
        raise ProtocolViolation("bad_frame", f"not a frame: {seen!r}")


class _Waiting:
    """One message in a lane. `at` is how much of it has left, for one that is cut."""

    __slots__ = ("at", "body", "flags", "kind", "window")

    def __init__(self, kind: int, flags: int, body: Any, window: SendWindow | None) -> None:
        self.kind = kind
        self.flags = flags
        self.body = memoryview(body)
        self.window = window
        self.at = 0


class FrameWriter:
    """Everything that waits to be written, in the order in which it will be."""

    __slots__ = ("_base", "_control", "_frames", "_lanes", "link", "max_frame", "pending_bytes")

    def __init__(self, max_frame: int, link_window: int) -> None:
        self.max_frame = max_frame
        self.link = SendWindow(link_window)
        self.pending_bytes = 0
        self._control: list[Any] = []
        self._frames: list[Any] = []
        self._base = 0
        self._lanes: dict[int, deque[_Waiting]] = {}

    def agree(self, max_frame: int, link_window: int) -> None:
        """Sets the limits; before the first DATA only."""
        self.max_frame = max_frame
        self.link = SendWindow(link_window)

    def control(self, kind: int, call_id: int, body: bytes) -> None:
        """Queues a frame that goes ahead of all data."""
        self._control += (pack_header(len(body), call_id, kind, 0), body)
        self.pending_bytes += HEADER_BYTES + len(body)

    def send(self, kind: int, call_id: int, body: bytes) -> int:
        """Queues a message that needs no credit; returns its place for `withdraw`, or -1.

        It is cut if it is over `max_frame`, and waits if its call has something waiting: then it
        has no place.
        """
        place = self._base + len(self._frames)
        if len(body) <= self.max_frame and call_id not in self._lanes:
            self._frames += (pack_header(len(body), call_id, kind, 0), body)
            self.pending_bytes += HEADER_BYTES + len(body)
            return place
        self._wait(call_id, _Waiting(kind, 0, body, None))
        return -1

    def data(self, flags: int, call_id: int, body: Any, window: SendWindow) -> None:
        """Queues a DATA message; it waits while its stream or the link has no credit."""
        size = len(body)
        link = self.link
        # A call only waits while one of these is used up, so nothing of it can be overtaken here.
        if size <= self.max_frame and window.credit > 0 and link.credit > 0:
            cost = size + FRAME_COST_BYTES
            window.credit -= cost
            link.credit -= cost
            self._frames += (pack_header(size, call_id, DATA, flags), body)
            self.pending_bytes += HEADER_BYTES + size
            return
        self._wait(call_id, _Waiting(DATA, flags, body, window))

    def take(self) -> list[Any]:
        """Everything that may be written now; it counts as written."""
        out = self._control
        if out:
            out += self._frames
            self._control = []
        else:
            out = self._frames
        self._base += len(self._frames)
        self._frames = []
        self.pending_bytes = 0
        return out

    def unsent(self, place: int) -> bool:
        """True while the message that `send` put at `place` has not been taken."""
        return place >= self._base

    def withdraw(self, place: int) -> bool:
        """Takes the message at `place` back; False if it has been taken already."""
        if place < self._base:
            return False
        index = place - self._base
        self.pending_bytes -= len(self._frames[index]) + len(self._frames[index + 1])
        self._frames[index] = self._frames[index + 1] = b""
        return True

    def waits(self, call_id: int) -> bool:
        """True while something of this call waits for credit."""
        return call_id in self._lanes

    def forget(self, call_id: int) -> bool:
        """Drops the waiting data of a call that nobody reads any more; a message that has begun,
        and a terminal, still go out. Returns True if nothing is left waiting."""
        lane = self._lanes.get(call_id)
        if lane is None:
            return True
        kept = deque(item for item in lane if item.at or item.kind != DATA)
        if not kept:
            del self._lanes[call_id]
            return True
        self._lanes[call_id] = kept
        return False

    def pump(self) -> list[int]:
        """Moves what has credit out of the lanes; returns the calls that wait no more."""
        ended: list[int] = []
        moved = True
        while moved and self._lanes:
            moved = False
            for call_id, lane in list(self._lanes.items()):
                if not self._step(call_id, lane):
                    continue
                moved = True
                if not lane:
                    ended.append(call_id)
        return ended

    def _wait(self, call_id: int, item: _Waiting) -> None:
        lane = self._lanes.get(call_id)
        if lane is not None:
            lane.append(item)
            return
        lane = self._lanes[call_id] = deque((item,))
        while lane and self._step(call_id, lane):
            pass  # bounded: each step uses up credit of the link or ends the message

    def _step(self, call_id: int, lane: deque[_Waiting]) -> bool:
        """Sends one frame of a call that waits, if it has credit; drops the lane with its last."""
        item = lane[0]
        size = len(item.body)
        flags = item.flags
        if size <= self.max_frame:
            cost = size + FRAME_COST_BYTES if item.kind == DATA else 0
            if cost and (self.link.credit <= 0 or not _pay(item.window, cost)):
                return False
            piece = item.body
        else:
            opens = item.kind == CALL and not item.at  # free, so that ids are opened in order
            if self.link.credit <= 0 and not opens:
                return False
            # The stream pays for the whole message when it begins, the link for each fragment.
            if not item.at and not _pay(item.window, _cut_cost(size, self.max_frame)):
                return False
            piece = item.body[item.at : item.at + self.max_frame]
            cost = 0 if opens else len(piece) + FRAME_COST_BYTES
            if item.at + len(piece) < size:
                flags |= MORE
        self.link.credit -= cost
        item.at += len(piece)
        self._frames += (pack_header(len(piece), call_id, item.kind, flags), piece)
        self.pending_bytes += HEADER_BYTES + len(piece)
        if item.at >= size:
            lane.popleft()
            if not lane:
                del self._lanes[call_id]
        return True


def _pay(window: SendWindow | None, cost: int) -> bool:
    if window is None:
        return True
    if window.credit <= 0:
        return False
    window.credit -= cost
    return True


def _cut_cost(size: int, max_frame: int) -> int:
    return size + FRAME_COST_BYTES * -(-size // max_frame)
