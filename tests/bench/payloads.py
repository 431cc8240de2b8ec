"""C: large bytes, there and back. A rate counts the payload once, for two transfers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from purra_bridge.ports.channel import Request
from purra_bridge.ports.store import HostedStore
from tests.bench.hosted import bench_route
from tests.bench.measure import Column, Contender, Goal, Section, part
from tests.bench.sketch import sketch
from tests.bench.wire_floor import floor

__all__ = ["GOALS", "MIB", "SECTION", "SIZES", "figures", "worst_small"]

MIB: Final = 1 << 20
SIZES: Final[Mapping[int, int]] = {1: 8, 8: 3, 64: 1}
"""MiB, and how often."""
PIECE_BYTES: Final = 256 * 1024
DIGEST: Final = "sha256:" + "0" * 64


async def figures(
    bulk: Callable[[bytes], Awaitable[Any]], share: float, sizes: Mapping[int, int] = SIZES
) -> dict[str, float]:
    """MiB/s of each size; the first transfer of a size is not counted. With less than the whole
    share only the smallest size is moved.
    """
    found = {}
    for mib, times in list(sizes.items())[: len(sizes) if share == 1 else 1]:
        data = bytes(mib * MIB)
        await bulk(data)
        began = time.perf_counter()
        for _ in range(times):
            answer = await bulk(data)
            assert len(answer) == len(data)
        found[f"mib{mib}"] = mib * times / (time.perf_counter() - began)
    return found


async def worst_small(
    bulk: Callable[[bytes], Awaitable[Any]], small: Callable[[], Awaitable[Any]], share: float
) -> float:
    """The longest that a small call takes while 64 MiB go there and back, in ms."""
    data, worst = bytes(part(64, share) * MIB), 0.0
    transfer = asyncio.ensure_future(bulk(data))
    while not transfer.done():
        began = time.perf_counter()
        await small()
        worst = max(worst, time.perf_counter() - began)
    await transfer
    return worst * 1e3


def _floor(fresh: bool) -> Callable[[float], dict[str, float]]:
    async def main(share: float) -> dict[str, float]:
        kept = None if fresh else bytearray(max(SIZES) * MIB)

        with floor("bulk") as end:

            async def bulk(data: bytes) -> Any:
                answer = end.bulk(data, kept)
                return memoryview(answer)[: len(data)]

            return await figures(bulk, share)

    return lambda share: asyncio.run(main(share))


def _sketch(share: float) -> dict[str, float]:
    async def main() -> dict[str, float]:
        async with sketch() as end:
            return await figures(end.bulk, share)

    return asyncio.run(main())


def _store(share: float) -> dict[str, float]:
    async def main() -> dict[str, float]:
        async with bench_route() as route:
            store = HostedStore(route, "bulk")

            async def bulk(data: bytes) -> bytes:
                digest = await store.blob_put(_pieces(data))
                return await store.blob_get(digest, 0, len(data))

            def small() -> Awaitable[Any]:
                args = {"arguments": {"value": 1}}
                return route.call(Request("echo", "call", args, timeout_s=30.0))

            found = await figures(bulk, share)
            found["small_ms"] = await worst_small(bulk, small, share)
            return found

    return asyncio.run(main())


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]  # type: ignore[misc]  # bytes-like is enough


FLOOR: Final = "floor: blocking, one buffer"
FRESH: Final = "floor, a fresh buffer per answer"
SKETCH: Final = "sketch: one raw frame, sliced writes"
STORE: Final = "purra: blob of a store, put and got"

SECTION: Final = Section(
    "payloads",
    "C. bytes there and back",
    (
        Column("mib1", "1 MiB, MiB/s", rate=True),
        Column("mib8", "8 MiB, MiB/s", rate=True),
        Column("mib64", "64 MiB, MiB/s", rate=True),
        Column("small_ms", "worst small call ms", 1, compared=False),
    ),
    (
        Contender(FLOOR, _floor(False)),
        Contender(FRESH, _floor(True)),
        Contender(SKETCH, _sketch),
        Contender(STORE, _store),
    ),
    {FLOOR: "floor", FRESH: "fresh", SKETCH: "sketch"},
)

GOALS: Final = (
    Goal("C1", "8 MiB / floor", "payloads", "mib8", STORE, FLOOR, 1.5),
    Goal("C2", "64 MiB / floor with fresh buffers", "payloads", "mib64", STORE, FRESH, 1.6),
)
