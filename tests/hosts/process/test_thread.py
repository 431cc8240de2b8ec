"""A plugin in a thread: the same life and the same checks, and honest about the rest."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.ports.channel import Request
from purra_hosts.isolation.policy import AXES
from purra_hosts.launch import Isolation, Launch, LaunchLimits
from purra_hosts.restarts import RestartPolicy
from tests.hosts.process.rig import (
    QUICK,
    descriptors,
    failing,
    from_folder,
    hosting,
    running,
    swept,
    tool,
    until,
    workbench,
)


async def counted() -> int:
    """The descriptors of this process, with those of a loop."""
    return swept()


def inproc(**changes: Any) -> Launch:
    return replace(workbench(), kind="inproc", **changes)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_it_serves_calls_streams_and_uploads_and_leaves_nothing() -> None:
    """One path: what a process answers, a thread answers."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(inproc())
            value = {"text": "é", "list": [1, None, 2.5], "bytes": b"\x00"}
            answer = await route.call(Request("echo", "call", {"arguments": {"value": value}}))
            assert answer == {"value": value}
            counted = route.stream(Request("bench", "read", {"count": 5000}))
            assert [item async for item in counted] == list(range(5000))

            async def chunks() -> Any:
                for _ in range(40):
                    yield b"x" * 65536

            size = await route.upload(Request("bench", "blob_put", {}), chunks())
            assert size == {"size": 40 * 65536}
            assert watched.kinds()[:4] == [
                "plugin.starting",
                "plugin.handshaking",
                "plugin.initializing",
                "plugin.ready",
            ]
        assert watched.kinds()[-3:] == ["plugin.draining", "plugin.stopping", "plugin.stopped"]
        assert not {name for name in threads() if name.startswith("purra:")}

    running(main)
    before = running(counted)
    running(main)
    # A thread closes its end of the channel after it was heard of.
    running(lambda: until(lambda: descriptors() <= before, "no descriptor more than before"))


def test_nothing_is_shared_and_values_are_checked() -> None:
    """FRM-018: no object of one side is seen by the other; what is no strict value costs its
    call."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(inproc())
            value = [1, [2]]
            answer = await tool(route, "echo", value=value)
            value[1].append(3)  # type: ignore[attr-defined]
            assert answer == [1, [2]]
            assert (await failing(tool(route, "unencodable"))).code == "contract_violation"
            assert (await failing(tool(route, "echo", value=object()))).code == "invalid_argument"
            assert await tool(route, "echo", value=0) == 0

    running(main)


def test_it_says_that_it_confines_nothing() -> None:
    """CAP-008, LIM-008: every axis is `none`, and a demanded level refuses the start."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(inproc(isolation=Isolation("standard", False)))
            await route.start()
            status = route.status()
            assert set(status.isolation) == set(AXES)
            assert all(text.startswith("none") for text in status.isolation.values())
            assert status.pid is None
            limits = status.limits
            assert (limits["nofile"], limits["cpu_s"], limits["late_write"]) == ("none",) * 3
            await route.stop()
            await watched.host.aclose()
        async with hosting() as watched:
            route = watched.host.add(inproc(isolation=Isolation("standard", True)))
            error = await failing(route.start())
            assert error.code == "isolation_unavailable"

    running(main)


def test_a_handler_that_does_not_return_ends_its_call_and_its_instance(tmp_path: Path) -> None:
    """No hard timeout: the thread goes on, its call does not, and the next one is served."""
    started = tmp_path / "started"

    async def main() -> None:
        timings = replace(QUICK, kill_s=0.2)
        async with hosting(timings, restarts=RestartPolicy(first_s=0.01)) as watched:
            route = watched.host.add(inproc())
            write = tool(
                route, "deaf", timeout_s=0.3, exclusive=True, started=str(started), seconds=1.5
            )
            error = await failing(write)
            assert (error.code, error.executed) == ("deadline_exceeded", "maybe")
            assert await tool(route, "echo", value=1) == 1
            assert "plugin.abandoned" in watched.kinds()
            assert route.status().generation == 2
            # And this is why a plugin that writes has to be wanted in here.
            await until(Path(f"{started}.landed").exists)

    running(main)


def test_a_handler_that_listens_ends_with_its_channel(tmp_path: Path) -> None:
    """A thread cannot be killed, but it need not be given up if it looks whether it is wanted."""

    async def main() -> None:
        async with hosting(replace(QUICK, kill_s=30.0)) as watched:
            route = watched.host.add(inproc())
            started = str(tmp_path / "started")
            write = tool(route, "slow", timeout_s=0.1, exclusive=True, started=started)
            assert (await failing(write)).code == "deadline_exceeded"
            await until(lambda: "plugin.stopped" in watched.kinds())
            assert "plugin.abandoned" not in watched.kinds()

    running(main)


def test_a_plugin_that_does_not_start_says_why() -> None:
    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(replace(from_folder("broken", "raises:plugin"), kind="inproc"))
            error = await failing(route.start())
            assert error.code == "internal" and "missing_dependency" in error.message
            wrong = replace(inproc(), manifest_sha256="0" * 64)
            route = watched.host.add(wrong)
            assert (await failing(route.start())).code == "manifest_mismatch"

    running(main)


def test_a_reload_and_a_pool_work_as_ever() -> None:
    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(inproc(limits=LaunchLimits(instances=2)))
            await route.start()
            await route.reload()
            assert await tool(route, "echo", value=1) == 1
            assert route.status().generation == 2
            await until(lambda: route.status().instances == 1)

    running(main)


@pytest.mark.parametrize("delay_ms", [0, 1, 5, 20])
def test_a_start_that_is_given_up_leaves_no_thread(delay_ms: int) -> None:
    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(inproc())
            start = asyncio.create_task(route.start())
            await asyncio.sleep(delay_ms / 1000)
            start.cancel()
            await asyncio.wait((start,))

    running(main)
    assert not {name for name in threads() if name.startswith("purra:")}
