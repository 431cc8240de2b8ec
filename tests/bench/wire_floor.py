"""The floor: a blocking socket and msgpack, and nothing else. Worker and caller in one file.

`python wire_floor.py echo|strict|each|bulk` is the worker on descriptor 0.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from purra_bridge.wire.codec import decode, encode

__all__ = ["ITEM", "Floor", "floor"]

SOCKET_BYTES: Final = 1 << 20
READ_BYTES: Final = 256 * 1024
LENGTH_BYTES: Final = 8
ITEM: Final = " a token of about thirty bytes"
"""What a model's stream is made of."""


class Floor:
    """The caller's end: one request, one answer, in the same thread."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.descriptor = channel.fileno()
        self._unpacker = msgpack.Unpacker()
        self._ahead = 0

    def call(self, value: Any) -> Any:
        """An echo, checked by nobody."""
        os.write(self.descriptor, msgpack.packb(value))
        while True:
            self._feed()
            for answer in self._unpacker:
                return answer

    def strict_call(self, value: Any) -> Any:
        """An echo through the project's codec: values are checked in both directions."""
        self.channel.sendall(_framed(encode(value)))
        return decode(_exactly(self.channel, _length(self.channel)))

    def many(self, value: Any, count: int, inflight: int) -> None:
        """`count` echoes with that many under way: what was read is answered with one write."""
        os.write(self.descriptor, b"".join([msgpack.packb(value) for _ in range(inflight)]))
        sent, done = inflight, 0
        while done < count:
            self._feed()
            found = sum(1 for _ in self._unpacker)
            done += found
            more = min(found, count - sent)
            if more > 0:
                os.write(self.descriptor, b"".join([msgpack.packb(value) for _ in range(more)]))
                sent += more

    def strict_many(self, value: Any, count: int, inflight: int) -> None:
        """As `many`, with the project's codec."""
        self.channel.sendall(b"".join([_framed(encode(value)) for _ in range(inflight)]))
        sent, done, buffer = inflight, 0, bytearray()
        while done < count:
            data = self.channel.recv(READ_BYTES)
            if not data:
                raise EOFError
            buffer += data
            found = sum(1 for body in _frames(buffer) if decode(body) is not None)
            done += found
            more = min(found, count - sent)
            if more > 0:
                self.channel.sendall(b"".join([_framed(encode(value)) for _ in range(more)]))
                sent += more

    def items(self, count: int) -> None:
        """Reads a stream of `count` packed items."""
        while self._ahead < count:
            self._feed()
            for _ in self._unpacker:
                self._ahead += 1
        self._ahead -= count

    def paced(self, count: int) -> list[float]:
        """How long each of `count` items was under way, in seconds; the worker paces them."""
        delays: list[float] = []
        while len(delays) < count:
            self._feed()
            now = time.monotonic()
            delays += [now - float(item) for item in self._unpacker]
        return delays

    def _feed(self) -> None:
        data = os.read(self.descriptor, READ_BYTES)
        if not data:
            raise EOFError
        self._unpacker.feed(data)

    def bulk(self, data: bytes, into: bytearray | None) -> bytearray:
        """Sends bytes and gets them back, into `into` or a fresh buffer."""
        self.channel.sendall(len(data).to_bytes(LENGTH_BYTES, "little"))
        self.channel.sendall(data)
        answer = bytearray(len(data)) if into is None else into
        _fill(self.channel, memoryview(answer)[: _length(self.channel)])
        return answer


@contextmanager
def floor(mode: str, *arguments: str) -> Iterator[Floor]:
    """A worker of that mode and the caller's end to it."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
    worker = subprocess.Popen([sys.executable, __file__, mode, *arguments], stdin=theirs.fileno())
    theirs.close()
    try:
        yield Floor(ours)
    finally:
        ours.close()
        worker.wait()


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def _frames(buffer: bytearray) -> list[bytes]:
    """Takes the whole frames out of the beginning of `buffer`."""
    found, at = [], 0
    while len(buffer) - at >= LENGTH_BYTES:
        end = at + LENGTH_BYTES + int.from_bytes(buffer[at : at + LENGTH_BYTES], "little")
        if end > len(buffer):
            break
        found.append(bytes(buffer[at + LENGTH_BYTES : end]))
        at = end
    del buffer[:at]
    return found


def _length(channel: socket.socket) -> int:
    return int.from_bytes(_exactly(channel, LENGTH_BYTES), "little")


def _exactly(channel: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    _fill(channel, memoryview(found))
    return found


def _fill(channel: socket.socket, view: memoryview) -> None:
    while view:
        count = channel.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]


# --- the worker -----------------------------------------------------------------------------------


def _echo(channel: socket.socket) -> None:
    unpacker = msgpack.Unpacker()
    while data := os.read(channel.fileno(), READ_BYTES):
        unpacker.feed(data)
        channel.sendall(b"".join([msgpack.packb(value) for value in unpacker]))


def _strict(channel: socket.socket) -> None:
    buffer = bytearray()
    while data := channel.recv(READ_BYTES):
        buffer += data
        channel.sendall(b"".join([_framed(encode(decode(body))) for body in _frames(buffer)]))


def _each(channel: socket.socket) -> None:
    for _ in range(int(sys.argv[2])):
        os.write(channel.fileno(), msgpack.packb(ITEM))


def _paced(channel: socket.socket) -> None:
    for _ in range(int(sys.argv[2])):
        time.sleep(float(sys.argv[3]))
        os.write(channel.fileno(), msgpack.packb(repr(time.monotonic())))


def _bulk(channel: socket.socket) -> None:
    buffer = bytearray()
    while True:
        size = _length(channel)
        if size > len(buffer):
            buffer = bytearray(size)
        view = memoryview(buffer)[:size]
        _fill(channel, view)
        channel.sendall(size.to_bytes(LENGTH_BYTES, "little"))
        channel.sendall(view)


_MODES: Final[dict[str, Callable[[socket.socket], None]]] = {
    "echo": _echo,
    "strict": _strict,
    "each": _each,
    "paced": _paced,
    "bulk": _bulk,
}

if __name__ == "__main__":
    try:
        _MODES[sys.argv[1]](socket.socket(fileno=os.dup(0)))
    except (EOFError, ConnectionError):
        pass
