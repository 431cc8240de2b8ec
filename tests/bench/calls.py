"""A: an adapter call out of the process: the echo of 1 KiB, one at a time and 64 at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from purra.contracts.call import CallContext
from purra_bridge.ports.channel import Request
from purra_bridge.ports.tool import HostedTools
from tests.bench.hosted import ECHO, bench_route
from tests.bench.measure import Column, Contender, Goal, Section, part, percentile
from tests.bench.sketch import sketch
from tests.bench.wire_floor import floor

__all__ = ["ADAPTER", "AT_ONCE", "BODY", "GOALS", "SECTION", "drive"]

WARM: Final = 200
ALONE: Final = 1500
AT_ONCE: Final = 64
TOGETHER: Final = 6400
DEADLINE_S: Final = 30.0

BODY: Final[dict[str, Any]] = {
    "run": "01a22ed0df45-0d09a42e",
    "sequence": 4711,
    "role": "assistant",
    "content": "Every adapter call crosses a process boundary, and pays for it. " * 10 + "." * 134,
    "tags": ["alpha", "beta", "gamma"],
    "usage": {"input": 1200, "output": 345, "cached": 0},
    "scores": [0.25, 0.5, 0.125, 1.0],
    "done": False,
    "parent": None,
    "arguments": {"path": "/srv/data/file.txt", "limit": 50, "recursive": True},
}
"""1 KiB of msgpack: what a tool is given, or gives."""


async def drive(call: Callable[[Any], Awaitable[Any]], share: float) -> dict[str, float]:
    """Times of calls one after the other, and the rate of many at once."""
    clock, each = time.perf_counter, part(TOGETHER // AT_ONCE, share)
    for _ in range(part(WARM, share)):
        await call(BODY)
    times = []
    for _ in range(part(ALONE, share)):
        began = clock()
        await call(BODY)
        times.append(clock() - began)

    async def caller() -> None:
        for _ in range(each):
            await call(BODY)

    began, busy = clock(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    return _figures(times, each * AT_ONCE, clock() - began, time.process_time() - busy)


def _figures(times: list[float], together: int, took_s: float, busy_s: float) -> dict[str, float]:
    return {
        "p50_us": percentile(times, 0.5) * 1e6,
        "p99_us": percentile(times, 0.99) * 1e6,
        "rate": together / took_s,
        "host_us": busy_s / together * 1e6,
    }


def _floor(strict: bool) -> Callable[[float], dict[str, float]]:
    def run(share: float) -> dict[str, float]:
        clock, times = time.perf_counter, []
        together = part(TOGETHER // AT_ONCE, share) * AT_ONCE
        with floor("strict" if strict else "echo") as end:
            call = end.strict_call if strict else end.call
            for _ in range(part(WARM, share)):
                call(BODY)
            for _ in range(part(ALONE, share)):
                began = clock()
                call(BODY)
                times.append(clock() - began)
            began, busy = clock(), time.process_time()
            (end.strict_many if strict else end.many)(BODY, together, AT_ONCE)
            return _figures(times, together, clock() - began, time.process_time() - busy)

    return run


def _sketch(kind: str, strict: bool) -> Callable[[float], dict[str, float]]:
    async def main(share: float) -> dict[str, float]:
        async with sketch(kind, strict=strict) as end:
            return await drive(lambda body: end.call("echo", body), share)

    return lambda share: asyncio.run(main(share))


def _channel(share: float) -> dict[str, float]:
    """A call of a worker, as a port makes it."""

    async def main() -> dict[str, float]:
        async with bench_route() as route:
            return await drive(
                lambda body: route.call(
                    Request("echo", "call", {"arguments": {"value": body}}, timeout_s=DEADLINE_S)
                ),
                share,
            )

    return asyncio.run(main())


def _adapter(share: float) -> dict[str, float]:
    """A call of a tool, as the kernel makes it."""

    async def main() -> dict[str, float]:
        async with bench_route() as route:
            tools = HostedTools(route, [ECHO])
            return await drive(
                lambda body: tools.call("echo", {"value": body}, CallContext(timeout_s=DEADLINE_S)),
                share,
            )

    return asyncio.run(main())


FLOOR: Final = "floor: blocking, msgpack"
STRICT_FLOOR: Final = "floor with the project's codec"
SKETCH: Final = "sketch: event loops at both ends"
STRICT_SKETCH: Final = "sketch with the project's codec"
BLOCKING: Final = "sketch, blocking worker"
STRICT_BLOCKING: Final = "sketch, blocking worker, project's codec"
CHANNEL: Final = "purra: host and worker"
ADAPTER: Final = "purra: tool, its answer checked"

SECTION: Final = Section(
    "calls",
    "A. call of an adapter, 1 KiB",
    (
        Column("p50_us", "p50 us"),
        Column("p99_us", "p99 us", compared=False),
        Column("rate", "calls/s, 64 at once", rate=True),
        Column("host_us", "host CPU us", 1, compared=False),
    ),
    (
        Contender(FLOOR, _floor(False)),
        Contender(STRICT_FLOOR, _floor(True)),
        Contender(SKETCH, _sketch("loop", False)),
        Contender(STRICT_SKETCH, _sketch("loop", True)),
        Contender(BLOCKING, _sketch("block", False)),
        Contender(STRICT_BLOCKING, _sketch("block", True)),
        Contender(CHANNEL, _channel),
        Contender(ADAPTER, _adapter),
    ),
    {FLOOR: "floor", STRICT_FLOOR: "strict", SKETCH: "sketch", STRICT_SKETCH: "strict sketch"},
)

GOALS: Final = (
    Goal("A1", "a call: p50 / sketch", "calls", "p50_us", ADAPTER, SKETCH, 1.25),
    Goal(
        "A1s", "a call: p50 / sketch, strict codec", "calls", "p50_us", ADAPTER, STRICT_SKETCH, 1.25
    ),
    Goal("A2", "64 at once: cost / floor", "calls", "rate", ADAPTER, FLOOR, 1.5),
    Goal("A2s", "64 at once: cost / strict floor", "calls", "rate", ADAPTER, STRICT_FLOOR, 1.5),
)
