"""Faults from the field that are about calls: who waits for whom, sizes, and who may end what."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra.contracts.call import Stop
from purra_bridge.ports.channel import Request
from purra_hosts.launch import Kind, LaunchLimits
from purra_hosts.process.callbacks import Asked
from purra_hosts.process.calls import Call
from purra_hosts.process.supervisor import ProcessHost
from tests.hosts.process.rig import (
    QUICK,
    alive,
    failing,
    hosting,
    puppet,
    running,
    tool,
    until,
    workbench,
)
from tests.hosts.process.test_death import rss_kib

ASKERS = 40
FLAT_KIB = 8 * 1024


@pytest.mark.parametrize("kind", ["process", "inproc"])
def test_handlers_that_all_wait_for_the_host_are_answered(kind: Kind) -> None:
    """H29: every thread of the plugin stands in a callback, every thread of the embedding program's
    own pool is busy, and still each of them gets its answer."""
    asked: list[int] = []
    all_asked = asyncio.Event()

    async def memory(what: Asked) -> Any:
        asked.append(what.call)
        if len(asked) == ASKERS:
            all_asked.set()
        await all_asked.wait()
        return what.args

    async def main() -> None:
        async with hosting() as watched:
            watched.host.offer("memory", memory)
            limits = LaunchLimits(threads=ASKERS, inflight=ASKERS)
            grants = {"host": ["memory"]}
            launch = workbench(kind=kind, limits=limits, grants=grants, services=("memory",))
            route = watched.host.add(launch)
            loop = asyncio.get_running_loop()
            read, write = os.pipe()
            busy = [loop.run_in_executor(None, os.read, read, 1) for _ in range(64)]
            try:
                ask = {"adapter": "memory", "method": "get"}
                calls = [tool(route, "ask", args=n, timeout_s=15.0, **ask) for n in range(ASKERS)]
                answers = await asyncio.gather(*calls)
            finally:
                os.write(write, b"x" * len(busy))
                await asyncio.gather(*busy)
                os.close(read)
                os.close(write)
            assert answers == [[n] for n in range(ASKERS)]
            assert len(set(asked)) == ASKERS

    running(main)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 132_000, 15_000_000])
def test_a_message_of_any_size_up_to_the_cap_goes_both_ways(size: int) -> None:
    """K70: no limit of a line or of a pipe stands before the declared one."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            value = "x" * (size - 1) + "\n"
            assert await tool(route, "echo", value=value) == value
            assert len(await tool(route, "big", size=size)) == size

    running(main)


def test_a_frame_that_claims_a_gigabyte_costs_its_instance_only(tmp_path: Path) -> None:
    """K71: refused by its header, before a byte of it is kept."""
    code = """
start()
call = called()
channel.sendall((1 << 30).to_bytes(4, "big") + call.id.to_bytes(4, "big") + bytes([19, 0]))
block = b"x" * 65536
while True:
    channel.sendall(block)
"""

    async def main() -> None:
        async with hosting() as watched:
            other = watched.host.add(workbench())
            await other.start()
            before = rss_kib()
            route = watched.host.add(puppet(tmp_path, code))
            error = await failing(route.call(Request("t", "call", {})))
            assert (error.code, error.executed) == ("protocol_violation", "maybe")
            assert error.detail["reason"] == "bad_frame"
            assert rss_kib() - before < FLAT_KIB
            await until(lambda: route.status().state == "down")
            assert await tool(other, "echo", value=1) == 1

    running(main)


def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    """K71: 64 MiB on both log pipes without one line end; cut, and the call goes on."""
    code = """
start()
call = called()
block = b"x" * 65536
for _ in range(1024):
    os.write(1, block); os.write(2, block)
session.result(call.id, "done"); flush()
while True: events()
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            await route.start()
            before = rss_kib()
            assert await route.call(Request("t", "call", {})) == "done"
            assert rss_kib() - before < FLAT_KIB
        texts = [*watched.texts("stdout"), *watched.texts("stderr")]
        assert len(texts) == 2 and all(0 < len(text) < 20_000 for text in texts)
        assert all(text.endswith("[line cut]") for text in texts)

    running(main)


def test_a_cancel_may_come_at_any_moment_of_an_answer() -> None:
    """K74: what is first settles the call; what comes late is dropped, and nobody else notices."""
    ends: set[str] = set()

    async def once(route: Any, passes: int, number: int) -> None:
        call = asyncio.create_task(tool(route, "echo", value=number))
        for _ in range(passes):
            await asyncio.sleep(0)
        call.cancel()
        try:
            assert await call == number
            ends.add("answered")
        except asyncio.CancelledError:
            ends.add("cancelled")

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=4)))
            await route.start()
            for number in range(600):
                beside = asyncio.create_task(tool(route, "echo", value=-number))
                await once(route, number % 60 if number % 2 else number, number)
                assert await beside == -number
            status = route.status()
            assert (status.state, status.generation, status.calls) == ("ready", 1, 0)
        assert ends == {"answered", "cancelled"}

    running(main)


async def _elsewhere(work: Any) -> Any:
    """In a task of its own, which ends with it."""

    async def run() -> Any:
        return await work

    return await asyncio.create_task(run())


def test_whoever_opened_it_anybody_may_close_it() -> None:
    """K76: each life has an owner task of its own, so no task's end takes one along and no other
    task is refused."""

    async def main() -> None:
        host = ProcessHost(timings=QUICK)
        await _elsewhere(host.__aenter__())
        route = host.add(workbench())
        await _elsewhere(route.start())
        items = route.stream(Request("bench", "read", {"count": 10**6}, window_bytes=1024))
        assert await _elsewhere(anext(items)) == 0  # type: ignore[arg-type]
        await _elsewhere(items.aclose())

        async def held() -> AsyncIterator[int]:
            inner = route.stream(Request("bench", "read", {"count": 10**6}, window_bytes=1024))
            async with aclosing(inner):
                async for item in inner:
                    yield item

        generator = held()
        assert await _elsewhere(anext(generator)) == 0  # type: ignore[arg-type]
        await _elsewhere(generator.aclose())  # type: ignore[attr-defined]
        await until(lambda: route.status().calls == 0)
        dropped = held()
        assert await _elsewhere(anext(dropped)) == 0  # type: ignore[arg-type]
        pid = route.status().pid
        assert pid is not None and await tool(route, "echo", value=1) == 1
        await asyncio.gather(*(_elsewhere(host.aclose(0.0)) for _ in range(3)))
        assert not alive(pid)

    faults: list[Any] = []

    async def watched_main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: faults.append(about))
        await main()

    running(watched_main)  # the loop ends with a generator still open in its middle
    assert faults == []


def test_a_cancelled_call_leaves_no_program_of_its_own(tmp_path: Path) -> None:
    """K79: the tool waits for a program and hears no cancel: after its grace both are gone."""

    async def main() -> None:
        started = tmp_path / "started"
        async with hosting(replace(QUICK, drain_s=0.0, exit_s=0.1)) as watched:
            route = watched.host.add(workbench())
            call = asyncio.create_task(tool(route, "shell", started=str(started)))
            text = await until(lambda: started.exists() and started.read_text())
            pid = int(text.rstrip("."))
            assert alive(pid)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: not alive(pid), "the end of the tool's program")
            await until(lambda: "plugin.stopped" in watched.kinds())
            assert watched.kinds().count("plugin.tainted") == 1

    running(main)


def test_an_answer_is_gone_with_its_call() -> None:
    """K70: not when the collector comes: 16 MiB in a circle would stay for as long as that."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            gc.collect()
            gc.disable()
            try:
                for stopping in (None, Stop(), Stop()):
                    assert await tool(route, "echo", value="x", stop=stopping) == "x"
                    error = await failing(tool(route, "fail", stop=stopping))
                    assert error.code == "rate_limited"
                    del error
                left = [each for each in gc.get_objects() if type(each) is Call]
            finally:
                gc.enable()
            assert left == []

    running(main)
