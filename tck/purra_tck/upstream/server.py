"""A small HTTP server on the loopback that keeps what it is asked and sees when it is left alone.

It speaks as much HTTP/1.1 as clients of model providers do: one request, one answer in chunks.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from purra_tck.upstream.scenario import Delivery, Rendered

__all__ = ["Seen", "Server"]

HEAD_BYTES: Final = 256 * 1024
BODY_BYTES: Final = 64 * 1024 * 1024
Plan = Callable[["Seen"], tuple[Rendered, Delivery]]


@dataclass(slots=True)
class Seen:
    """One request. `left_s`: when the client closed the connection, on `time.perf_counter`."""

    line: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float
    sent_chunks: int = 0
    left_s: float | None = None
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")


class Server:
    """Use it as an async context manager. `plan` decides what each request gets."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen: list[Seen] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:port`."""
        if self._server is None:
            return ""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            seen = await _request(reader)
            if seen is not None:
                self.seen.append(seen)
                await self._answer(seen, reader, writer)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # the client is gone, or is none: what was seen of it is kept
        finally:
            writer.close()

    async def _answer(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        rendered, delivery = self.plan(seen)
        watch = asyncio.ensure_future(_until_left(seen, reader))
        try:
            await asyncio.sleep(delivery.wait_s)
            if delivery.before_head:
                await watch
                return
            head = {"Transfer-Encoding": "chunked", "Connection": "close", **rendered.headers}
            lines = [f"HTTP/1.1 {rendered.status} tck", *(f"{k}: {v}" for k, v in head.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            for number, chunk in enumerate(rendered.chunks):
                if number == delivery.stop_after:
                    await _break_off(delivery, writer, watch)
                    return
                for part in _parts(chunk, delivery.slices):
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                seen.sent_chunks += 1
            if delivery.stop_after >= len(rendered.chunks):
                await _break_off(delivery, writer, watch)
                return
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            watch.cancel()


def _parts(chunk: bytes, slices: int) -> list[bytes]:
    if not slices:
        return [chunk] if chunk else []
    return [chunk[at : at + slices] for at in range(0, len(chunk), slices)]


async def _break_off(
    delivery: Delivery, writer: asyncio.StreamWriter, watch: asyncio.Future[Any]
) -> None:
    if delivery.then == "stall":
        await watch
    elif delivery.then == "garbage":
        writer.write(b"zz\r\nnot a chunk\r\n")
        await writer.drain()
    elif delivery.then == "reset":
        handle = writer.get_extra_info("socket")
        if handle is not None:  # closing with nothing to linger for sends RST
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def _until_left(seen: Seen, reader: asyncio.StreamReader) -> None:
    """Returns when the client has closed its side."""
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass  # reset: that is leaving too
    seen.left_s = time.perf_counter()
    seen.left.set()


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): text.strip()
        for name, _, text in (each.partition(":") for each in rest if each)
    }
    if "chunked" in headers.get("transfer-encoding", ""):
        body = await _chunked(reader)
    else:
        size = min(int(headers.get("content-length", "0")), BODY_BYTES)
        body = await reader.readexactly(size)
    return Seen(line, headers, body, time.perf_counter())


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
        if len(body) > BODY_BYTES:
            break
    return bytes(body)
