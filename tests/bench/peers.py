"""What others do for the same: MCP over standard streams, and gRPC over a socket.

Their libraries are only in the environment that `tests.bench.peer_venv` makes. Both answer with
coroutines, as their interfaces ask for. They do less of some things (no checks of values in gRPC)
and more of others, so a ratio says what a caller pays and nothing else.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgpack

from tests.bench import calls, cold, payloads, streams
from tests.bench.measure import Contender, Goal, Section, kib_of, part, percentile
from tests.bench.peer_workers import GRPC_OPTIONS, GRPC_SERVICE
from tests.bench.wire_floor import ITEM

__all__ = ["GOALS", "with_peers"]

WORKER: Final = str(Path(__file__).with_name("peer_workers.py"))
MCP: Final = "MCP, standard streams"
GRPC: Final = "gRPC, unix socket"
KIB_IN_MIB: Final = 1024

MCP_SHARE: Final = 0.05
GRPC_SHARE: Final = 0.2
"""Of the usual counts: they are slower."""
MCP_SIZES: Final = {1: 2, 8: 1}
"""64 MiB would take minutes."""
LOOK_S: Final = 0.001

Run = Callable[[float], dict[str, float]]


@asynccontextmanager
async def _mcp() -> AsyncIterator[Any]:
    from mcp import Client, StdioServerParameters, stdio_client

    parameters = StdioServerParameters(command=sys.executable, args=[WORKER, "mcp"])
    async with Client(stdio_client(parameters)) as client:
        yield client


@asynccontextmanager
async def _grpc() -> AsyncIterator[tuple[Any, int]]:
    import grpc.aio

    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "s")
        worker = await asyncio.create_subprocess_exec(sys.executable, WORKER, "grpc", path)
        while not os.path.exists(path):  # a refused connection would be tried again much later
            await asyncio.sleep(LOOK_S)
        async with grpc.aio.insecure_channel(f"unix:{path}", options=GRPC_OPTIONS) as channel:
            yield channel, worker.pid
        worker.kill()
        await worker.wait()


def _on_loop(main: Callable[[float], Any]) -> Run:
    return lambda share: asyncio.run(main(share))


# --- calls ----------------------------------------------------------------------------------------


async def _mcp_calls(share: float) -> dict[str, float]:
    async with _mcp() as client:
        return await calls.drive(
            lambda body: client.call_tool("echo", {"value": body}), share * MCP_SHARE
        )


async def _grpc_calls(share: float) -> dict[str, float]:
    async with _grpc() as (channel, _):
        echo = channel.unary_unary(f"/{GRPC_SERVICE}/Echo")

        async def call(body: Any) -> Any:
            return msgpack.unpackb(await echo(msgpack.packb(body), wait_for_ready=True))

        return await calls.drive(call, share * GRPC_SHARE)


# --- streams --------------------------------------------------------------------------------------


async def _mcp_stream(client: Any, count: int, pause_s: float) -> tuple[float, list[float]]:
    """Seconds, and what each item says; notices may come after the call's own end."""
    found: list[str] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        found.append(f"{time.monotonic()} {message}")

    began = time.perf_counter()
    arguments = {"count": count, "pause_s": pause_s, "item": ITEM}
    await client.call_tool("items", arguments, progress_callback=told)
    while len(found) < count:
        await asyncio.sleep(LOOK_S)
    pairs = (line.split(" ", 1) for line in found) if pause_s else ()
    delays = [float(now) - float(left) for now, left in pairs]
    return time.perf_counter() - began, delays


async def _mcp_streams(share: float) -> dict[str, float]:
    count = part(streams.STREAM, share * MCP_SHARE / 2)
    async with _mcp() as client:
        await _mcp_stream(client, 5, 0.0)
        took_s, _ = await _mcp_stream(client, count, 0.0)
        _, delays = await _mcp_stream(client, part(streams.PACED, share), streams.PACE_S)
    return _stream_figures(count / took_s, delays)


async def _grpc_streams(share: float) -> dict[str, float]:
    count = part(streams.STREAM, share * GRPC_SHARE)
    async with _grpc() as (channel, _):
        items = channel.unary_stream(f"/{GRPC_SERVICE}/Items")

        def ask(number: int, pause_s: float) -> Any:
            return items(msgpack.packb((number, pause_s, ITEM)), wait_for_ready=True)

        async for _item in ask(5, 0.0):
            pass
        began = time.perf_counter()
        async for _item in ask(count, 0.0):
            pass
        took_s = time.perf_counter() - began
        slow = ask(part(streams.PACED, share), streams.PACE_S)
        delays = [time.monotonic() - float(item) async for item in slow]
    return _stream_figures(count / took_s, delays)


def _stream_figures(rate: float, delays: list[float]) -> dict[str, float]:
    return {
        "rate": rate,
        "delay_us": percentile(delays, 0.5) * 1e6,
        "delay99_us": percentile(delays, 0.99) * 1e6,
    }


# --- payloads -------------------------------------------------------------------------------------


async def _mcp_payloads(share: float) -> dict[str, float]:
    async with _mcp() as client:

        async def bulk(data: bytes) -> bytes:
            text = base64.b64encode(data).decode()
            found = await client.call_tool("blob", {"text": text})
            return base64.b64decode(found.content[0].text)

        return await payloads.figures(bulk, share, MCP_SIZES)


async def _grpc_payloads(share: float) -> dict[str, float]:
    async with _grpc() as (channel, _):
        blob = channel.unary_unary(f"/{GRPC_SERVICE}/Blob")
        echo = channel.unary_unary(f"/{GRPC_SERVICE}/Echo")
        body = msgpack.packb({"value": 1})

        async def bulk(data: bytes) -> bytes:
            return await blob(data, wait_for_ready=True)

        async def small() -> Any:
            return await echo(body)

        found = await payloads.figures(bulk, share)
        found["small_ms"] = await payloads.worst_small(bulk, small, share)
        return found


# --- cold start -----------------------------------------------------------------------------------


def _memory(began: float, pid: int) -> dict[str, float]:
    return {
        "ms": (time.perf_counter() - began) * 1e3,
        "rss": kib_of(pid) / KIB_IN_MIB,
        "pss": kib_of(pid, "Pss") / KIB_IN_MIB,
    }


async def _mcp_cold(share: float) -> dict[str, float]:
    began = time.perf_counter()
    async with _mcp() as client:
        await client.call_tool("echo", {"value": {"x": 1}})
        took = time.perf_counter() - began
        return {**_memory(began, _child("mcp")), "ms": took * 1e3}


def _child(kind: str) -> int:
    """The newest child of this process that is a worker of that kind."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [
        int(pid)
        for pid in found
        if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[2:3] == [kind]
    ][-1]


async def _grpc_cold(share: float) -> dict[str, float]:
    began = time.perf_counter()
    async with _grpc() as (channel, pid):
        echo = channel.unary_unary(f"/{GRPC_SERVICE}/Echo")
        await echo(msgpack.packb({"x": 1}), wait_for_ready=True)
        return _memory(began, pid)


PEERS: Final[dict[str, dict[str, Run]]] = {
    "calls": {MCP: _on_loop(_mcp_calls), GRPC: _on_loop(_grpc_calls)},
    "streams": {MCP: _on_loop(_mcp_streams), GRPC: _on_loop(_grpc_streams)},
    "payloads": {MCP: _on_loop(_mcp_payloads), GRPC: _on_loop(_grpc_payloads)},
    "cold": {MCP: _on_loop(_mcp_cold), GRPC: _on_loop(_grpc_cold)},
}
"""Section -> peer -> how it is measured."""


def with_peers(sections: Sequence[Section]) -> list[Section]:
    """Those sections in which the peers do the same, with them."""
    return [
        replace(
            section,
            contenders=(
                *section.contenders,
                *(Contender(name, run) for name, run in PEERS[section.key].items()),
            ),
        )
        for section in sections
        if section.key in PEERS
    ]


def _goals() -> list[Goal]:
    rows = [
        ("A", "a call", calls.SECTION, "p50_us", calls.ADAPTER, 8, 4),
        ("A64", "64 calls at once", calls.SECTION, "rate", calls.ADAPTER, 60, 15),
        ("B", "an item of a stream", streams.SECTION, "rate", streams.CHANNEL, 400, 100),
        ("Bd", "delay of an item", streams.SECTION, "delay_us", streams.CHANNEL, 1 / 0.15, 1 / 0.4),
        ("C8", "8 MiB", payloads.SECTION, "mib8", payloads.STORE, 150, 7),
        ("C64", "64 MiB", payloads.SECTION, "mib64", payloads.STORE, None, 2.5),
        ("D", "cold start, plain functions", cold.SECTION, "ms", cold.PLAIN, 25, None),
        ("Dc", "cold start, coroutines", cold.SECTION, "ms", cold.COROUTINES, 9, None),
        ("Dm", "memory, plain functions", cold.SECTION, "rss", cold.PLAIN, 5, None),
    ]
    return [
        Goal(
            f"{key}/{peer[:4].strip(',')}",
            f"{text} / {peer}",
            section.key,
            figure,
            of,
            peer,
            1 / by,
        )
        for key, text, section, figure, of, *faster in rows
        for peer, by in zip((MCP, GRPC), faster, strict=True)
        if by is not None
    ]


GOALS: Final = _goals()
"""Each says how many times less a caller shall pay than with the peer."""
