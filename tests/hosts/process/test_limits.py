"""Limits of this host that say what they are, and hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import LaunchLimits
from purra_hosts.process.limits import advertised
from tests.hosts.process.rig import QUICK, failing, hosting, puppet, running, tool, until, workbench


def test_a_stream_over_its_whole_size_ends_and_nothing_else_does() -> None:
    """LIM-004: the sum of all items, not only each of them; the instance goes on."""

    async def main() -> None:
        async with hosting() as watched:
            limits = LaunchLimits(output_bytes=200_000, threads=2)
            route = watched.host.add(workbench(limits=limits))
            read = {"count": 10**6, "size": 1000}
            items, count = route.stream(Request("bench", "read", read)), 0
            with pytest.raises(WireError) as caught:
                async for _ in items:
                    count += 1
            error = caught.value
            assert (error.code, error.origin, error.executed) == (
                "resource_exhausted",
                "host",
                "maybe",
            )
            assert error.detail == {"limit": "output", "bytes": 200_000}
            assert 150 < count <= 200
            small = route.stream(Request("bench", "read", {"count": 100}))
            assert [item async for item in small] == list(range(100))
            assert (route.status().state, route.status().generation) == ("ready", 1)

    running(main)


def test_too_large_costs_its_call_in_both_directions() -> None:
    """PLG-18, LIM-004, H14: and says how large and how much is allowed."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            for executed, call in (
                ("no", tool(route, "echo", value="x" * (17 * 1024 * 1024))),
                ("yes", tool(route, "big", size=17 * 1024 * 1024)),
            ):
                error = await failing(call)
                assert (error.code, error.executed) == ("too_large", executed)
                assert error.detail["bytes"] > error.detail["limit"] == 16 * 1024 * 1024
                assert await tool(route, "echo", value=1) == 1
            value = "x" * (10 * 1024 * 1024)
            assert await tool(route, "echo", value=value) == value
            assert route.status().generation == 1

    running(main)


def test_processor_time_is_bounded_and_the_error_says_so() -> None:
    """PLG-18, LIM-002."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(cpu_s=1)))
            error = await failing(tool(route, "spin"))
            assert (error.code, error.detail["limit"], error.detail["signal"]) == (
                "crashed",
                "cpu",
                24,
            )

    running(main)


def test_a_frame_that_drips_is_given_up(tmp_path: Path) -> None:
    """PLG-28, FRM-014: bytes are no sign of life unless they become frames."""
    code = """
import threading
start()
call = called()
body = bytes([0xda, 0xff, 0xff]) + b"x" * 65535
frame = len(body).to_bytes(4, "big") + call.id.to_bytes(4, "big") + bytes([19, 0]) + body
for at in range(len(frame)):
    channel.sendall(frame[at:at + 1]); time.sleep(0.02)
"""

    async def main() -> None:
        timings = replace(QUICK, frame_s=0.5, ping_s=0.2, unresponsive_s=30.0)
        async with hosting(timings) as watched:
            route = watched.host.add(puppet(tmp_path, code))
            error = await failing(route.call(Request("t", "call", {})))
            assert (error.code, error.executed) == ("unresponsive", "maybe")
            assert "a frame did not become whole" in error.message

    running(main)


def test_a_plugin_that_is_behind_says_by_how_much() -> None:
    """H43: the answer comes in time, with the lag of its handlers and its memory."""

    async def main() -> None:
        timings = replace(QUICK, ping_s=0.1)
        async with hosting(timings) as watched:
            route = watched.host.add(workbench())
            busy = asyncio.create_task(tool(route, "deaf", seconds=1))
            await until(lambda: (route.status().lag_ms or 0) > 300)
            assert (route.status().rss_bytes or 0) > 1024**2
            assert route.status().state == "ready"
            await busy

    running(main)


def test_what_is_not_enforced_is_advertised_as_none() -> None:
    """LIM-008."""
    limits: Mapping[str, int | str] = advertised(workbench())
    assert (limits["nofile"], limits["cpu_s"], limits["memory_bytes"]) == (256, "none", "none")
    bound = replace(workbench(), limits=LaunchLimits(cpu_s=5, memory_bytes=2**28))
    assert (advertised(bound)["cpu_s"], advertised(bound)["memory_bytes"]) == (5, 2**28)
    thread = advertised(replace(bound, kind="inproc"))
    assert {thread[name] for name in ("nofile", "cpu_s", "memory_bytes", "late_write")} == {"none"}
