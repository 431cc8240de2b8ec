"""Faults from the field that are about the machine around a host."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.ports.channel import Request
from purra_hosts.process.route import Route
from purra_hosts.restarts import RestartPolicy
from tests.hosts.process.rig import (
    BOUND_S,
    QUICK,
    alive,
    failing,
    hosting,
    puppet,
    running,
    tool,
    workbench,
)

JUMP_S = 300.0
SOON = RestartPolicy(first_s=0.01, longest_s=0.01, jitter=0.0)
SHORT = replace(QUICK, ping_s=0.05, unresponsive_s=0.2, lag_s=0.1)
REAL_BOUND_S = 60.0


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time is the machine's plus every `jump`: of a machine that slept, or a loop that stood
    still."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s

    def jump(self) -> None:
        self.ahead_s += JUMP_S


def jumping(main: Callable[[JumpingLoop], Any]) -> None:
    """Runs an async test on such a loop, bounded by the machine's own time."""
    loop = JumpingLoop()
    task = loop.create_task(main(loop))
    bound = threading.Timer(REAL_BOUND_S, loop.call_soon_threadsafe, [task.cancel])
    bound.start()
    try:
        loop.run_until_complete(task)
    finally:
        bound.cancel()
        loop.close()


def test_a_long_temporary_folder_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H05: no socket has a path, so no path can be too long for one."""
    long = tmp_path / ("t" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr("tempfile.tempdir", None)

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            assert await tool(route, "echo", value=1) == 1

    running(main)


def test_a_plugin_cannot_change_how_the_hosts_own_output_behaves(tmp_path: Path) -> None:
    """H59: the pipes are the plugin's; the host's descriptors share no description with them."""
    launch = workbench()
    folder = tmp_path / "plugin"
    folder.mkdir()
    code = (launch.folder / "workbench.py").read_text()
    unblock = "for fd in (0, 1, 2): os.set_blocking(fd, False)\n"
    (folder / "workbench.py").write_text(code.replace("\n\n\n@tool", f"\n\n{unblock}\n\n@tool", 1))

    async def main() -> list[bool]:
        async with hosting() as watched:
            route = watched.host.add(workbench(sys_path=(str(folder),)))
            assert await tool(route, "echo", value=1) == 1
            return [os.get_blocking(stream.fileno()) for stream in (sys.__stdout__, sys.__stderr__)]

    before = [os.get_blocking(stream.fileno()) for stream in (sys.__stdout__, sys.__stderr__)]
    assert running(main) == before


def test_a_worker_outlives_the_thread_that_happened_to_start_it() -> None:
    """H56: whoever asks for it, a worker belongs to the thread that the loop runs on."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            loop = asyncio.get_running_loop()
            pool = ThreadPoolExecutor(2)
            loop.set_default_executor(pool)

            def ask() -> int | None:
                asyncio.run_coroutine_threadsafe(route.start(), loop).result()
                return route.status().pid

            pid = await loop.run_in_executor(pool, ask)
            pool.shutdown()  # its threads have ended now
            assert pid is not None and await tool(route, "echo", value=1) == 1
            status = route.status()
            assert (status.pid, status.generation, alive(pid)) == (pid, 1, True)

    running(main)


@pytest.mark.parametrize("moment", ["ready", "starting", "handshaking", "initializing"])
def test_a_clock_that_jumps_ends_nobody(moment: str) -> None:
    """H67, H68: by five minutes, in any state of the first instance and of one that is fresh: the
    loop's own lateness is nobody's fault, and no life inherits the times of another."""

    async def main(loop: JumpingLoop) -> None:
        def told(kind: str, data: Any) -> None:
            if kind == f"plugin.{moment}" and data["generation"] <= 2:
                jumps.append(data["generation"])
                loop.call_soon(loop.jump)

        jumps: list[int] = []
        async with hosting(SHORT, restarts=SOON, watch=told) as watched:
            route = watched.host.add(workbench())
            for generation in (1, 2):
                assert await tool(route, "echo", value=generation) == generation
                for _ in range(5):
                    loop.jump()
                    await asyncio.sleep(0.02)
                assert await tool(route, "echo", value=1) == 1
                status = route.status()
                assert (status.state, status.generation) == ("ready", generation)
                if generation == 1:
                    assert (await failing(tool(route, "die"))).code == "crashed"
            assert jumps == [1, 2]
            assert watched.kinds().count("plugin.killed") == 0

    jumping(main)


async def _idle(route: Route) -> None:
    while route.status().calls:
        await asyncio.sleep(0.001)


def test_a_late_answer_to_a_cancel_is_not_the_plugins_fault_if_we_were_late(tmp_path: Path) -> None:
    """H68: the terminal is in our socket behind much else when the loop goes on."""
    code = """
start()
call = called()
session.items(call.id, ["begun"]); flush()
while True:
    for event in events():
        if type(event).__name__ == "Cancelled":
            for _ in range(5):
                session.log("info", "x" * 60_000); flush()
            session.result(call.id, None); flush()
            open(os.environ["HOME"] + "/../answered", "w").close()
"""

    async def main(loop: JumpingLoop) -> None:
        async with hosting(SHORT) as watched:
            route = watched.host.add(puppet(tmp_path, code))
            items = route.stream(Request("t", "call", {}))
            assert await anext(items) == "begun"
            await items.aclose()
            for _ in range(4):
                await asyncio.sleep(0)  # the CANCEL is written
            answered = watched.host._folders.root / "answered"
            began_s = time.monotonic()
            while not answered.exists():  # the loop stands still
                assert time.monotonic() - began_s < BOUND_S
            loop.jump()
            await asyncio.wait_for(_idle(route), 2 * JUMP_S)
            assert (route.status().state, watched.kinds().count("plugin.tainted")) == ("ready", 0)

    jumping(main)
