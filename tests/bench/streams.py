"""B: a stream of items of about 30 bytes, taken one by one; and how long one item is under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from purra.contracts.call import CallContext
from purra.contracts.messages import Message
from purra.contracts.model import Content, ModelRequest
from purra_bridge.ports.channel import Request
from purra_bridge.ports.model import HostedModel
from purra_hosts.process.route import Route
from tests.bench.hosted import bench_route
from tests.bench.measure import Column, Contender, Goal, Section, part, percentile
from tests.bench.sketch import sketch
from tests.bench.wire_floor import ITEM, floor

__all__ = ["GOALS", "PACED", "PACE_S", "SECTION", "STREAM", "figures"]

STREAM: Final = 60_000
PACED: Final = 250
PACE_S: Final = 0.001


async def figures(
    fast: AsyncIterator[Any], paced: AsyncIterator[float], count: int
) -> dict[str, float]:
    """The rate of one stream, and the delays of another, whose items are the times they left."""
    found, began, busy = 0, time.perf_counter(), time.process_time()
    async for _ in fast:
        found += 1
    took_s, busy_s = time.perf_counter() - began, time.process_time() - busy
    assert found >= count, found
    delays = [time.monotonic() - left async for left in paced]
    return {
        "rate": count / took_s,
        "host_us": busy_s / count * 1e6,
        "delay_us": percentile(delays, 0.5) * 1e6,
        "delay99_us": percentile(delays, 0.99) * 1e6,
    }


def _floor(share: float) -> dict[str, float]:
    stream, paced = part(STREAM, share), part(PACED, share)
    with floor("each", str(stream)) as end:
        end.items(1)
        began, busy = time.perf_counter(), time.process_time()
        end.items(stream - 1)
        took_s, busy_s = time.perf_counter() - began, time.process_time() - busy
    with floor("paced", str(paced), str(PACE_S)) as end:
        delays = end.paced(paced)
    return {
        "rate": stream / took_s,
        "host_us": busy_s / stream * 1e6,
        "delay_us": percentile(delays, 0.5) * 1e6,
        "delay99_us": percentile(delays, 0.99) * 1e6,
    }


def _sketch(strict: bool) -> Callable[[float], dict[str, float]]:
    async def main(share: float) -> dict[str, float]:
        async with sketch(strict=strict) as end:
            async for _ in end.stream(ITEM, 10):
                pass
            paced = (float(item) async for item in end.stream("", part(PACED, share), PACE_S))
            count = part(STREAM, share)
            return await figures(end.stream(ITEM, count), paced, count)

    return lambda share: asyncio.run(main(share))


def _channel(share: float) -> dict[str, float]:
    def items(route: Route, what: str) -> Any:
        request = {"messages": [{"role": "user", "content": what}], "tools": [], "max_tokens": 1}
        return route.stream(Request("script", "generate", request, timeout_s=60.0))

    async def main() -> dict[str, float]:
        async with bench_route() as route:
            async for _ in items(route, f"items 10 {ITEM}"):
                pass
            slow = items(route, f"paced {part(PACED, share)} {PACE_S}")
            paced = (float(item["text"]) async for item in slow if item["t"] == "content")
            count = part(STREAM, share)
            return await figures(items(route, f"items {count} {ITEM}"), paced, count)

    return asyncio.run(main())


def _model(share: float) -> dict[str, float]:
    async def main() -> dict[str, float]:
        async with bench_route() as route:
            model = HostedModel(route, "script")

            def chunks(what: str) -> AsyncIterator[Any]:
                request = ModelRequest((Message("user", what),))
                return model.generate(request, CallContext(timeout_s=60.0))

            async for _ in chunks(f"items 10 {ITEM}"):
                pass
            slow = chunks(f"paced {part(PACED, share)} {PACE_S}")
            paced = (float(chunk.text) async for chunk in slow if isinstance(chunk, Content))
            count = part(STREAM, share)
            return await figures(chunks(f"items {count} {ITEM}"), paced, count)

    return asyncio.run(main())


FLOOR: Final = "floor: pack and write each item"
SKETCH: Final = "sketch: lists of items, credit"
STRICT_SKETCH: Final = "sketch with the project's codec"
CHANNEL: Final = "purra: host and worker"
MODEL: Final = "purra: model, each chunk checked"

SECTION: Final = Section(
    "streams",
    "B. stream of small items",
    (
        Column("rate", "items/s", rate=True),
        Column("host_us", "host CPU us", 2, compared=False),
        Column("delay_us", "delay p50 us at 1 kHz"),
        Column("delay99_us", "p99 us", compared=False),
    ),
    (
        Contender(FLOOR, _floor),
        Contender(SKETCH, _sketch(False)),
        Contender(STRICT_SKETCH, _sketch(True)),
        Contender(CHANNEL, _channel),
        Contender(MODEL, _model),
    ),
    {FLOOR: "floor", SKETCH: "sketch", STRICT_SKETCH: "strict sketch"},
)

GOALS: Final = (
    Goal("B1", "a stream: cost of an item / floor", "streams", "rate", CHANNEL, FLOOR, 1 / 1.5),
    Goal("B2", "delay of a lone item / sketch", "streams", "delay_us", CHANNEL, SKETCH, 1.3),
)
