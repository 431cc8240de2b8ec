"""The sketch's blocking worker: no event loop, and hardly an import. It is as cheap to start as a
worker with msgpack can be.

`python lean.py [strict]` is the worker on descriptor 0; `strict` puts the project's codec into it.
"""

from __future__ import annotations

import _socket
import sys
from struct import Struct

import msgpack  # type: ignore[import-untyped]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Codec = tuple[Callable[[Any], bytes], Callable[[Any], Any]]

__all__ = ["ANSWER", "BUFFER_BYTES", "CALL", "HANDLERS", "HEADER", "codec"]

HEADER = Struct("<IIB")
"""Length of the body, number of the call, kind."""
CALL, ANSWER = 0, 1
BUFFER_BYTES = 256 * 1024


def codec(strict: bool) -> Codec:
    """How values become bytes, and back."""
    if strict:
        from purra_bridge.wire.codec import decode, encode

        return encode, decode
    return msgpack.Packer().pack, msgpack.unpackb


def _add(value: Any) -> Any:
    return str(value["a"] + value["b"])


def _model(value: Any) -> Any:
    """A round of a model that calls the tool until it was called often enough."""
    messages, rounds = value
    done = len(messages) // 2
    if done >= rounds:
        return {"role": "assistant", "text": "done", "calls": []}
    call = {"id": f"c{done}", "name": "add", "arguments": f'{{"a": 1, "b": {done}}}'}
    return {"role": "assistant", "text": "", "calls": [call]}


HANDLERS: dict[str, Callable[[Any], Any]] = {
    "echo": lambda value: value,
    "add": _add,
    "model": _model,
}


def _serve(pair: Codec) -> None:
    """Reads what is there, and answers all of it with one write."""
    pack, unpack = pair
    channel = _socket.socket(fileno=0)
    channel.setblocking(True)
    buffer, filled = bytearray(BUFFER_BYTES), 0
    view = memoryview(buffer)
    while count := channel.recv_into(view[filled:]):
        filled += count
        at = 0
        answers: list[bytes] = []
        while filled - at >= HEADER.size:
            size, number, _ = HEADER.unpack_from(buffer, at)
            end = at + HEADER.size + size
            if end > filled:
                break
            method, value = unpack(view[at + HEADER.size : end])
            body = pack(HANDLERS[method](value))
            answers += (HEADER.pack(len(body), number, ANSWER), body)
            at = end
        left = filled - at
        view[:left] = view[at:filled]
        filled = left
        if answers:
            channel.sendall(b"".join(answers))


if __name__ == "__main__":
    try:
        _serve(codec("strict" in sys.argv[1:]))
    except ConnectionError:
        pass
