"""D: from nothing to the first answered call, and what the child's memory is then.

The host is warm. Every worker runs on the same interpreter; the project's are started as always:
folders staged, limits set, the handshake done.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from purra_bridge.ports.channel import Request
from purra_hosts.process.supervisor import ProcessHost
from tests.bench.hosted import bench_launch
from tests.bench.lean import CALL, HEADER
from tests.bench.measure import Column, Contender, Goal, Section, kib_of, part
from tests.bench.sketch import ROOT, WORKERS

__all__ = ["GOALS", "SECTION", "STARTS", "first_answer"]

STARTS: Final = 3
KIB_IN_MIB: Final = 1024
ANSWER_BYTES: Final = 4096
ECHO: Final = Request("echo", "call", {"arguments": {"value": 1}}, timeout_s=30.0)

BARE: Final = "import os\nwhile data := os.read(0, 65536): os.write(0, data)"
PACKED: Final = """import os, msgpack
unpacker = msgpack.Unpacker()
while data := os.read(0, 65536):
    unpacker.feed(data)
    for value in unpacker: os.write(0, msgpack.packb(value))
"""


def first_answer(arguments: list[str], request: bytes) -> dict[str, float]:
    """A worker on descriptor 0, asked once."""
    ours, theirs = socket.socketpair()
    began = time.perf_counter()
    worker = subprocess.Popen(arguments, stdin=theirs.fileno(), cwd=ROOT)
    theirs.close()
    with ours:
        ours.sendall(request)
        assert ours.recv(ANSWER_BYTES)
        found = _figures(time.perf_counter() - began, worker.pid)
    worker.wait()
    return found


def _figures(took_s: float, pid: int) -> dict[str, float]:
    return {
        "ms": took_s * 1e3,
        "rss": kib_of(pid) / KIB_IN_MIB,
        "pss": kib_of(pid, "Pss") / KIB_IN_MIB,
    }


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {figure: median(one[figure] for one in found) for figure in found[0]}


def _plain(arguments: list[str], framed: bool = False) -> Callable[[float], dict[str, float]]:
    body = msgpack.packb(("echo", {"x": 1}))
    request = HEADER.pack(len(body), 1, CALL) + body if framed else body
    return lambda share: _medians(
        [first_answer(arguments, request) for _ in range(part(STARTS, share))]
    )


def _hosted(isolation: str, coroutines: bool) -> Callable[[float], dict[str, float]]:
    """One host starts all of them; what it does once for all is done with the first, unmeasured."""

    async def main(share: float) -> dict[str, float]:
        pids: dict[str, int] = {}

        def told(kind: str, data: Mapping[str, Any]) -> None:
            if kind == "plugin.ready":
                pids[data["plugin"]] = data["pid"]

        found = []
        async with ProcessHost(events=told) as host:
            for number in range(part(STARTS, share) + 1):
                launch = bench_launch(f"bench{number}", isolation, coroutines)
                began = time.perf_counter()
                route = host.add(launch)
                await route.call(ECHO)
                found.append(_figures(time.perf_counter() - began, pids[launch.plugin]))
        return _medians(found[1:])

    return lambda share: asyncio.run(main(share))


FLOOR: Final = "floor: python -c"
BARER: Final = "floor: python -I -S -c"
PACKED_FLOOR: Final = "floor: python -c, msgpack"
LEAN: Final = "sketch: blocking worker"
LOOP: Final = "sketch: worker on an event loop"
PLAIN: Final = "purra: plain functions"
STANDARD: Final = "purra: the same, isolation standard"
COROUTINES: Final = "purra: coroutines"

SECTION: Final = Section(
    "cold",
    "D. cold start to the first answer",
    (
        Column("ms", "ms", 1),
        Column("rss", "RSS MiB", 1),
        Column("pss", "PSS MiB", 1, compared=False),
    ),
    (
        Contender(FLOOR, _plain([sys.executable, "-c", BARE])),
        Contender(BARER, _plain([sys.executable, "-I", "-S", "-c", BARE])),
        Contender(PACKED_FLOOR, _plain([sys.executable, "-c", PACKED])),
        Contender(LEAN, _plain(WORKERS["block"], framed=True)),
        Contender(LOOP, _plain(WORKERS["loop"], framed=True)),
        Contender(PLAIN, _hosted("none", False)),
        Contender(STANDARD, _hosted("standard", False)),
        Contender(COROUTINES, _hosted("none", True)),
    ),
    {FLOOR: "floor", LEAN: "sketch"},
)

GOALS: Final = (
    Goal("D1", "cold start of plain functions / python", "cold", "ms", PLAIN, FLOOR, 2.0),
    Goal("D2", "its memory / python's", "cold", "rss", PLAIN, FLOOR, 1.35),
    Goal("D3", "cold start of coroutines / python", "cold", "ms", COROUTINES, FLOOR, 6.5),
)
