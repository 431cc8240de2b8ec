"""Calls, streams and uploads through a real worker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from purra.contracts.call import Stop
from purra_bridge.ports.channel import Request
from purra_hosts.launch import LaunchLimits
from tests.hosts.process.rig import failing, hosting, puppet, running, tool, until, workbench


def stream(route: Any, **args: Any) -> Any:
    return route.stream(Request("bench", "read", args))


def test_values_arrive_as_they_were_sent() -> None:
    """H22, CAL-002: empty values are values, and each of 256 callers gets its own answer."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            values: list[Any] = [None, 0, "", b"", [], {}, False, [0, {"a": [1.5]}], "x" * 300_000]
            for value in values:
                assert await tool(route, "echo", value=value) == value
            answers = await asyncio.gather(*(tool(route, "echo", value=n) for n in range(256)))
            assert answers == list(range(256))
            assert route.status().calls == 0

    running(main)


def test_ends_are_counted_and_nothing_of_what_was_said() -> None:
    """PLG-24: calls, failures and their times, by numbers alone; what a caller gave up is neither,
    and a call that waited in the queue took that long."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(inflight=1)))
            status = route.status()
            assert (status.ended, status.failed, status.mean_ms) == (0, 0, 0.0)
            for number in range(3):
                await tool(route, "echo", value=number)
            await failing(tool(route, "fail"))
            assert [item async for item in stream(route, count=5)] == [0, 1, 2, 3, 4]
            status = route.status()
            assert (status.ended, status.failed) == (5, 1)
            assert 0 < status.mean_ms <= status.longest_ms
            slow = asyncio.create_task(failing(tool(route, "slow", timeout_s=0.2)))
            await until(lambda: route.status().calls == 1)
            waiting = asyncio.create_task(tool(route, "echo", value="s3cret"))
            given_up = asyncio.create_task(tool(route, "echo", value=1))
            await until(lambda: route.status().queued == 2)
            given_up.cancel()
            assert (await slow).code == "deadline_exceeded"
            assert await waiting == "s3cret"
            status = route.status()
            assert (status.ended, status.failed) == (7, 2)
            assert 200 <= status.longest_ms < 20_000
            assert "s3cret" not in repr(status)

    running(main)


def test_frozen_arguments_are_sent() -> None:
    """Channel: the maps of a request may be the kernel's frozen ones."""
    from purra.values import freeze

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            frozen = freeze({"arguments": {"value": {"a": [1, 2]}}})
            assert (await route.call(Request("echo", "call", frozen)))["value"] == {"a": [1, 2]}

    running(main)


def test_errors_of_a_handler_keep_what_they_say() -> None:
    """CAL-004, CAL-005, H20: a typed code, and the instance stays."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            error = await failing(tool(route, "fail"))
            assert (error.code, error.after_ms, error.executed) == ("rate_limited", 250, "yes")
            error = await failing(tool(route, "nothing"))
            assert (error.code, error.executed) == ("unimplemented", "no")
            error = await failing(tool(route, "unencodable"))
            assert error.origin == "plugin" and error.executed == "yes"
            error = await failing(route.call(Request("echo", "call", {"arguments": object()})))
            assert (error.code, error.executed) == ("invalid_argument", "no")
            assert await tool(route, "echo", value=1) == 1
            assert route.status().generation == 1

    running(main)


def test_progress_comes_in_order_and_before_the_result() -> None:
    """H26: progress is ordered with the result; a listener's own fault ends its call only."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            seen: list[Any] = []
            request = Request("progress", "call", {"arguments": {"count": 1000}})
            answer = await route.call(request, seen.append)
            assert answer["value"] == 1000
            assert seen == list(range(1000))

            def broken(item: Any) -> None:
                raise RuntimeError("the listener is broken")

            with pytest.raises(RuntimeError, match="the listener is broken"):
                await route.call(request, broken)
            assert await tool(route, "echo", value=2) == 2

    running(main)


def test_a_stream_keeps_order_over_its_window() -> None:
    """STR-001: 20,000 items, many windows long, then the result."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            items = stream(route, count=20_000)
            assert [item async for item in items] == list(range(20_000))
            assert items.result == {"count": 20_000}
            assert [item async for item in items] == []
            empty = stream(route, count=0)
            assert [item async for item in empty] == [] and empty.result == {"count": 0}

    running(main)


def test_an_unread_stream_stalls_nobody_else() -> None:
    """H23, STR-009: 100 calls finish beside a stream that nobody reads."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            items = stream(route, count=1_000_000, size=100)
            assert (await anext(items))[0] == 0
            for number in range(100):
                assert await tool(route, "echo", value=number) == number
            assert sum(len(batch) for batch, _ in items._inbox.batches) < 10_000
            await items.aclose()
            assert await tool(route, "echo", value="after") == "after"
            await until(lambda: route.status().calls == 0)

    running(main)


@pytest.mark.parametrize("way", ["aclose", "break", "task"])
def test_an_abandoned_stream_is_cancelled(way: str, tmp_path: Path) -> None:
    """H37, STR-006: closed, dropped, or its reading task cancelled: the slot is free again."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            items = stream(route, count=10**9)
            if way == "aclose":
                await anext(items)
                await items.aclose()
                await items.aclose()
                with pytest.raises(StopAsyncIteration):
                    await anext(items)
            elif way == "break":
                async for _ in items:
                    break
                del items
                gc.collect()
            else:
                raw = Request("bench", "blob_get", {"size": 1, "wait": str(tmp_path / "never")})
                reader = asyncio.create_task(anext(route.stream(raw)))
                await until(lambda: route.status().calls == 1)
                reader.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reader
            await until(lambda: route.status().calls == 0)
            assert await tool(route, "echo", value=1) == 1
            assert route.status().generation == 1

    running(main)


def test_raw_bytes_go_both_ways() -> None:
    """Uploads and raw streams, larger than every window, byte for byte."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"\x01" * 200_000
        yield b""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            answer = await route.upload(Request("bench", "blob_put", {}), chunks())
            assert answer == {"size": 64 * 200_000}
            request = Request("bench", "blob_get", {"size": 9_000_000, "step": 300_000})
            got = [len(chunk) async for chunk in route.stream(request)]
            assert sum(got) == 9_000_000

    running(main)


def test_an_upload_ends_with_its_answer() -> None:
    """The answer may come before the last chunk; then nothing more is asked of the source."""
    closed: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"\x01" * 100_000
        finally:
            closed.append("closed")

    async def broken() -> AsyncIterator[bytes]:
        yield b"\x01"
        raise OSError("the source is broken")

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            request = Request("bench", "blob_put", {"stop_after": 500_000})
            answer = await route.upload(request, endless())
            assert answer["size"] >= 500_000
            with pytest.raises(OSError, match="the source is broken"):
                await route.upload(Request("bench", "blob_put", {}), broken())
            await until(lambda: route.status().calls == 0)

    running(main)
    assert closed == ["closed"]


def test_a_cancelled_caller_ends_at_once_and_the_plugin_hears_of_it(tmp_path: Path) -> None:
    """CAN-002, CAN-006, CAN-007: CancelledError at once; the sibling goes on."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=4)))
            both = [tmp_path / "one", tmp_path / "two"]
            release = tmp_path / "release"
            calls = [
                asyncio.create_task(tool(route, "slow", started=str(path), release=str(release)))
                for path in both
            ]
            await until(lambda: all(path.exists() for path in both))
            calls[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await calls[0]
            await until(lambda: route.status().calls == 1)
            release.touch()
            assert await calls[1] == "released"
            assert watched.kinds()[-1] == "plugin.ready"

    running(main)


def test_a_call_cancelled_before_it_is_sent_never_reaches_the_plugin(tmp_path: Path) -> None:
    """CAN-001: in our own buffer it is taken back, in the queue it is forgotten."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(inflight=1)))
            await route.start()
            started = tmp_path / "started"
            stop = Stop()
            direct = asyncio.create_task(tool(route, "slow", stop=stop, started=str(started)))
            queued = asyncio.create_task(tool(route, "slow", started=str(started)))
            await asyncio.sleep(0)
            queued.cancel()
            stop.request()
            error = await failing(direct)
            assert (error.code, error.executed) == ("cancelled", "no")
            with pytest.raises(asyncio.CancelledError):
                await queued
            assert route.status().calls == 0
            assert await tool(route, "echo", value=1) == 1
            assert not started.exists()
            error = await failing(tool(route, "echo", timeout_s=0))
            assert (error.code, error.executed) == ("deadline_exceeded", "no")

    running(main)


def test_a_deadline_ends_the_await_in_time_and_cancels(tmp_path: Path) -> None:
    """PLG-15, CAN-008, H41: at its time, not at the plugin's; the plugin notices and stays
    healthy."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            loop = asyncio.get_running_loop()
            began = loop.time()
            error = await failing(tool(route, "slow", timeout_s=0.1))
            took = loop.time() - began
            assert (error.code, error.origin, error.executed) == (
                "deadline_exceeded",
                "caller",
                "maybe",
            )
            assert 0.1 <= took < 1.0
            await until(lambda: route.status().calls == 0)
            assert route.status().state == "ready"

    running(main)


def test_the_plugin_is_told_the_remaining_time(tmp_path: Path) -> None:
    """CAN-008: remaining milliseconds, never a clock time; the wait in the queue counts."""
    code = """
start()
for _ in range(2):
    call = called()
    session.result(call.id, {"left": call.deadline_ms, "key": call.key, "trace": call.trace})
    flush()
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            await route.start()
            told = await route.call(
                Request("t", "call", {}, timeout_s=5, key="k", trace={"a": "b"})
            )
            assert 4000 < told["left"] <= 5000
            assert (told["key"], told["trace"]) == ("k", {"a": "b"})
            told = await route.call(Request("t", "call", {}))
            assert told == {"left": None, "key": "", "trace": {}}

    running(main)


def test_many_deadlines_need_one_timer() -> None:
    """CAN-011: 5,000 calls with deadlines leave no call and no timer of their own."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            for _ in range(50):
                await asyncio.gather(
                    *(tool(route, "echo", timeout_s=30 + n, value=n) for n in range(100))
                )
            assert route.status().calls == route.status().queued == 0
            loop: Any = asyncio.get_running_loop()
            timers = [handle for handle in loop._scheduled if not handle.cancelled()]
            assert len(timers) <= 4  # the route's, the instance's, this test's own bound

    running(main)


def test_a_stop_keeps_the_answer(tmp_path: Path) -> None:
    """Tables, effect states: CANCEL goes out, and what the plugin says then still arrives."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(inflight=1)))
            started = tmp_path / "started"
            stop, late = Stop(), Stop()
            call = asyncio.create_task(tool(route, "slow", stop=stop, started=str(started)))
            waiting = asyncio.create_task(tool(route, "echo", stop=late))
            await until(started.exists)
            late.request()
            error = await failing(waiting)
            assert (error.code, error.executed) == ("cancelled", "no")
            stop.request()
            assert await call == "cancelled"
            error = await failing(tool(route, "echo", stop=stop))
            assert (error.code, error.executed) == ("cancelled", "no")

    running(main)


def test_a_deaf_call_taints_its_instance(tmp_path: Path) -> None:
    """PLG-15, H35, H38, CAN-005: the caller is free at once; after the grace time no call goes
    there."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            pid = route.status().pid
            error = await failing(tool(route, "deaf", timeout_s=0.05))
            assert error.code == "deadline_exceeded"
            await until(lambda: route.status().state == "down")
            assert route.status().reason == "tainted"
            assert "plugin.tainted" in watched.kinds()
            error = await failing(tool(route, "echo", value=1))
            assert (error.code, error.executed) == ("tainted", "no")
            assert pid != route.status().pid

    running(main)


def test_a_write_that_passes_its_time_is_killed_at_once(tmp_path: Path) -> None:
    """PLG-15, CAN-005: nothing of it lands later; whoever waits is told why."""
    started = tmp_path / "started"

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            call = asyncio.create_task(
                failing(
                    tool(
                        route,
                        "deaf",
                        timeout_s=0.2,
                        exclusive=True,
                        started=str(started),
                        seconds=0.5,
                    )
                )
            )
            waiting = asyncio.create_task(failing(tool(route, "echo", value=1)))
            error = await call
            assert (error.code, error.executed) == ("deadline_exceeded", "maybe")
            error = await waiting
            assert (error.code, error.executed) == ("tainted", "no")
            await until(lambda: route.status().state == "down")
            assert "plugin.killed" in watched.kinds()
            assert "plugin.terminated" not in watched.kinds()

    running(main)
    assert started.exists() and not Path(f"{started}.landed").exists()


def test_an_exclusive_call_runs_alone(tmp_path: Path) -> None:
    """Protocol, messages, 2: it waits for the others, and the others for it, in their order."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=4)))
            release, first, alone = (tmp_path / name for name in ("release", "first", "alone"))
            order: list[str] = []

            async def run(name: str, *args: Any, **more: Any) -> None:
                await tool(route, *args, **more)
                order.append(name)

            slow = asyncio.create_task(
                run("slow", "slow", started=str(first), release=str(release))
            )
            await until(first.exists)
            write = asyncio.create_task(
                run("write", "slow", exclusive=True, started=str(alone), release=str(release))
            )
            read = asyncio.create_task(run("read", "echo", value=1))
            await until(lambda: route.status().queued == 2)
            assert not alone.exists()
            release.touch()
            await asyncio.gather(slow, write, read)
            assert order == ["slow", "write", "read"]

    running(main)


def test_calls_beyond_the_queue_are_refused(tmp_path: Path) -> None:
    """PLG-18, CAL-003: at most `inflight` at the plugin, at most `queue` waiting, the rest
    `overloaded`."""

    async def main() -> None:
        limits = LaunchLimits(inflight=2, queue=3)
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=limits))
            await route.start()
            release = tmp_path / "release"
            calls = [
                asyncio.create_task(tool(route, "slow", release=str(release))) for _ in range(5)
            ]
            await until(lambda: route.status().queued == 3)
            assert route.status().calls == 2
            error = await failing(tool(route, "echo", value=1))
            assert (error.code, error.executed) == ("overloaded", "no")
            release.touch()
            assert await asyncio.gather(*calls) == ["released"] * 5

    running(main)


def test_a_call_in_the_queue_keeps_its_deadline(tmp_path: Path) -> None:
    """CAN-001: it expires there, unsent."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(inflight=1)))
            release, started = tmp_path / "release", tmp_path / "started"
            first = asyncio.create_task(
                tool(route, "slow", started=str(started), release=str(release))
            )
            await until(started.exists)
            error = await failing(tool(route, "echo", timeout_s=0.1, value=1))
            assert (error.code, error.executed) == ("deadline_exceeded", "no")
            release.touch()
            assert await first == "released"

    running(main)


def test_calls_taken_together_are_each_answered() -> None:
    """A batched handler takes what is queued at once (group commit)."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            request = Request("bench", "commit", {"ops": []})
            sizes = await asyncio.gather(*(route.call(request) for _ in range(40)))
            assert len(sizes) == 40 and max(sizes) > 1

    running(main)
