"""Frames as the kit makes and reads them: by the specification, not by the code of any host.

Bodies are given as values, or as exact bytes where a check wants what no encoder makes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

__all__ = [
    "BATCH",
    "CALL",
    "CANCEL",
    "CREDIT",
    "DATA",
    "DRAIN",
    "END",
    "ERROR",
    "FRAME_COST_BYTES",
    "HEADER_BYTES",
    "HELLO",
    "LOG",
    "MORE",
    "NAMES",
    "PING",
    "PONG",
    "RAW",
    "READY",
    "RESULT",
    "STATUS",
    "WELCOME",
    "Frame",
    "Reader",
    "batch",
    "call",
    "credit",
    "data",
    "error",
    "frame",
    "pack",
    "raw",
    "result",
]

HEADER: Final = struct.Struct(">IIBB")
HEADER_BYTES: Final = 10
FRAME_COST_BYTES: Final = 32
"""What a DATA frame costs besides its body (chapter 5)."""
END, RAW, MORE, BATCH = 1, 2, 4, 8
HELLO, WELCOME, READY, PING, PONG, DRAIN, STATUS, LOG, CHANGED = range(1, 10)
CALL, DATA, CREDIT, RESULT, ERROR, CANCEL = range(16, 22)
NAMES: Final[Mapping[int, str]] = {
    number: name
    for name, number in {
        "HELLO": HELLO,
        "WELCOME": WELCOME,
        "READY": READY,
        "PING": PING,
        "PONG": PONG,
        "DRAIN": DRAIN,
        "STATUS": STATUS,
        "LOG": LOG,
        "CHANGED": CHANGED,
        "CALL": CALL,
        "DATA": DATA,
        "CREDIT": CREDIT,
        "RESULT": RESULT,
        "ERROR": ERROR,
        "CANCEL": CANCEL,
    }.items()
}


def pack(value: Any) -> bytes:
    """The shortest msgpack form of a value."""
    return msgpack.packb(value)  # type: ignore[no-any-return]


def frame(kind: int, call: int, body: bytes, flags: int = 0, size: int | None = None) -> bytes:
    """One frame with exactly this body; `size` is what the header claims, if not the truth."""
    return HEADER.pack(len(body) if size is None else size, call, kind, flags) + body


def result(call: int, value: Any) -> bytes:
    """RESULT."""
    return frame(RESULT, call, pack(value))


def error(call: int, code: str, message: str = "as the kit says", **more: Any) -> bytes:
    """ERROR; on id 0 the plugin gives up."""
    return frame(ERROR, call, pack({"code": code, "message": message, **more}))


def call(call_id: int, adapter: str, method: str, args: Any, **more: Any) -> bytes:
    """CALL; of a plugin with an even id, and `parent`."""
    body = {"adapter": adapter, "method": method, "args": args, **more}
    return frame(CALL, call_id, pack(body))


def data(call: int, item: Any) -> bytes:
    """DATA with one item."""
    return frame(DATA, call, pack(item))


def batch(call: int, items: Sequence[Any]) -> bytes:
    """DATA with a list of items."""
    return frame(DATA, call, pack(list(items)), BATCH)


def raw(call: int, chunk: bytes) -> bytes:
    """DATA with plain bytes."""
    return frame(DATA, call, chunk, RAW)


def credit(call: int, count: Any) -> bytes:
    """CREDIT; 0 = the connection's."""
    return frame(CREDIT, call, pack(count))


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that came from the host."""

    kind: int
    flags: int
    call: int
    body: bytes

    @property
    def name(self) -> str:
        return NAMES.get(self.kind, f"type {self.kind}")

    @property
    def value(self) -> Any:
        """The decoded body; bytes with RAW, and for a fragment."""
        if self.flags & (RAW | MORE):
            return self.body
        return msgpack.unpackb(self.body)

    def shown(self) -> dict[str, Any]:
        """For a report: decoded as far as it can be, and the bytes."""
        try:
            decoded = repr(self.value)
        except (ValueError, msgpack.UnpackException) as broken:
            decoded = f"unreadable: {broken}"
        return {
            "kind": self.name,
            "call": self.call,
            "flags": self.flags,
            "bytes": len(self.body),
            "decoded": decoded[:400],
            "hex": self.body[:200].hex(),
        }


class Reader:
    """Cuts what a host writes into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, received: bytes) -> list[Frame]:
        """The frames that are complete now."""
        self._waiting += received
        found: list[Frame] = []
        at = 0
        while len(self._waiting) - at >= HEADER_BYTES:
            size, call, kind, flags = HEADER.unpack_from(self._waiting, at)
            end = at + HEADER_BYTES + size
            if end > len(self._waiting):
                break
            found.append(Frame(kind, flags, call, bytes(self._waiting[at + HEADER_BYTES : end])))
            at = end
        del self._waiting[:at]
        return found
