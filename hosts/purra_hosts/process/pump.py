"""Bytes to session and back: the only asyncio on the frame path.

Measured choices, each against its plain alternative: the kernel writes received bytes straight into
the session's buffer (BufferedProtocol; `data_received` costs a tenth more, and much more on one
core); nothing here makes a task, a timer or a thread per frame; what calls of one loop pass produce
is joined into one write, but handed over at 8 KiB, so that the worker decodes while we still encode
(0.64 of the cost at 64 callers); a write is at most 256 KiB and waits while the transport is full,
because asyncio copies the unsent rest of a larger one.

The reader never stops: what has arrived is bounded by credit, and control frames must get through
however slow a consumer is.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from purra_bridge.wire.errors import ProtocolViolation
from purra_bridge.wire.session import Session
from purra_hosts.process.alarm import NEVER

__all__ = ["CONGESTED_BYTES", "Pump", "PumpOwner"]

HANDOVER_BYTES: Final = 8 * 1024
SLICE_BYTES: Final = 256 * 1024
CONGESTED_BYTES: Final = 1024 * 1024
"""Waiting output above which no new call is sent: it would only wait here instead of in the queue,
and be `maybe` executed instead of `no` if the worker dies."""
LAST_WORDS_BYTES: Final = 64 * 1024 * 1024
"""Read at most after the process is gone. Its socket holds far less; a grandchild may go on."""


class PumpOwner(Protocol):
    """Who handles what comes in. Called on the loop; must not raise."""

    def on_events(self, events: Sequence[Any]) -> None:
        """Decoded events, in order."""

    def on_violation(self, violation: ProtocolViolation) -> None:
        """The worker broke the protocol; nothing more is read."""

    def on_eof(self) -> None:
        """The channel has ended; every byte before that was handled. Once."""

    def on_room(self) -> None:
        """The channel takes output again after it was full."""


class Pump(asyncio.BufferedProtocol):
    """One channel. `owner` gets what the session makes of the bytes.

    `heard_s`: when bytes came last. `partial_s`: since when they make no whole frame, else never.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, session: Session, owner: PumpOwner) -> None:
        self._loop = loop
        self._session = session
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._scheduled = False
        self._reading = False
        self.ended = False
        self.heard_s = loop.time()
        self.partial_s = NEVER

    @property
    def congested(self) -> bool:
        """Too much output waits for the worker to read."""
        return self._waiting_bytes > CONGESTED_BYTES

    async def connect(self, channel: socket.socket) -> None:
        """Takes the channel over. Raises `OSError`."""
        self._socket = channel
        await self._loop.connect_accepted_socket(lambda: self, channel)

    def kick(self) -> None:
        """The session has new output: written at the end of this pass, or now if it is much."""
        if self._session.pending_bytes >= HANDOVER_BYTES:
            self.flush()
        elif not self._scheduled and not self._reading:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hands over to the transport whatever it takes."""
        self._scheduled = False
        transport = self._transport
        if transport is None or self._paused or self.ended:
            return
        if self._waiting:
            self._send_waiting(transport)
        while not self._paused and (size := self._session.pending_bytes):
            parts = self._session.take()
            if size <= SLICE_BYTES:
                transport.write(b"".join(parts))
            else:
                self._cut(parts)
                self._send_waiting(transport)

    def half_close(self) -> None:
        """No more output; the worker sees the end of its input once it has read what waits."""
        self.flush()
        if self._transport is not None and not self._transport.is_closing():
            try:
                self._transport.write_eof()
            except OSError:
                pass  # it closed first

    def read_last_words(self) -> None:
        """Handles what the dead worker had sent (protocol, messages, 3), then ends the channel.

        A dead process sends nothing more, so reading until the socket is empty is complete; waiting
        for the end of the stream is not possible if a grandchild holds the other end.
        """
        self.catch_up()
        self._end()

    def catch_up(self) -> None:
        """Handles what has arrived by now, so that nobody is judged for not having said it. For
        when the loop was late, or reads no more; must not be called while bytes are handled.
        """
        left = LAST_WORDS_BYTES
        while not self.ended and self._socket is not None and left > 0:
            try:
                count = self._socket.recv_into(self._session.buffer())
            except OSError:
                break
            if count == 0:
                break
            left -= count
            self.buffer_updated(count)

    def close(self) -> None:
        """Drops the channel at once. Idempotent."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()
        elif self._socket is not None:
            self._socket.close()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=SLICE_BYTES)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._session.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.ended:
            return
        self.heard_s = self._loop.time()
        self._reading = True
        try:
            events = self._session.received(nbytes)
            if events:
                self.partial_s = NEVER
                self._owner.on_events(events)
            elif self.partial_s == NEVER and self._session.receiving:
                self.partial_s = self.heard_s
        except ProtocolViolation as violation:
            if violation.events:
                self._owner.on_events(violation.events)
            self.ended = True
            self._owner.on_violation(violation)
        finally:
            self._reading = False
        if self._session.pending_bytes:
            self.flush()

    def eof_received(self) -> bool:
        self._end()
        return True  # the transport stays open: its owner closes it with the rest

    def connection_lost(self, exc: Exception | None) -> None:
        # A failed write closes the transport before everything was read: the answer of a worker
        # that answered and exited is still in the socket, and wins (H40).
        if not self.ended:
            self.read_last_words()
        self._socket = None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()
        # Not only when nothing waits any more: a large message refills what it has sent, and would
        # keep small ones out for as long as it lasts (FRM-015).
        if not self.congested:
            self._owner.on_room()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._owner.on_eof()

    def _cut(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Queues parts as writes of at most a slice: small ones joined, large ones cut."""
        small: list[bytes | bytearray | memoryview] = []
        size = 0
        for part in parts:
            length = len(part)
            if small and size + length > SLICE_BYTES:
                self._queue(b"".join(small))
                small, size = [], 0
            if length > SLICE_BYTES:
                view = memoryview(part)
                for start in range(0, length, SLICE_BYTES):
                    self._queue(view[start : start + SLICE_BYTES])
            else:
                small.append(part)
                size += length
        if small:
            self._queue(b"".join(small))

    def _queue(self, data: bytes | memoryview) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _send_waiting(self, transport: asyncio.Transport) -> None:
        while self._waiting and not self._paused:
            data = self._waiting.popleft()
            self._waiting_bytes -= len(data)
            transport.write(data)
