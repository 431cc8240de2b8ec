"""A route with a restart policy: what callers see of it."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

from purra_bridge.ports.channel import Request
from purra_hosts.restarts import RestartPolicy
from tests.hosts.process.rig import (
    failing,
    from_folder,
    hosting,
    puppet,
    running,
    tool,
    until,
    workbench,
)

SOON = RestartPolicy(first_s=0.05, longest_s=0.05, jitter=0.0, quarantine_s=0.3)


def test_a_new_generation_serves_the_next_call_and_no_call_is_sent_twice(tmp_path: Path) -> None:
    """SUP-005, SUP-013, CAL-008: the call in flight fails, those that wait are served."""
    count = tmp_path / "count"

    async def main() -> None:
        async with hosting(restarts=SOON) as watched:
            route = watched.host.add(workbench())
            await route.start()
            first = route.status().instance
            dying = asyncio.create_task(failing(tool(route, "die", started=str(count))))
            await until(count.exists)
            count.unlink()
            assert (await dying).code == "crashed"
            assert await tool(route, "echo", value=2) == 2
            status = route.status()
            assert (status.generation, status.restarts, status.state) == (2, 1, "ready")
            assert status.instance != first and status.last_error is not None
            assert not count.exists()

    running(main)


def test_a_plugin_that_never_starts_is_put_away_and_tried_once_later() -> None:
    """PLG-14, H64, H65, SUP-010, SUP-011: waiters are told `quarantined`, calls fail fast, no
    spawning; then 32 callers make one start."""

    async def main() -> None:
        async with hosting(restarts=replace(SOON, most=2)) as watched:
            route = watched.host.add(from_folder("broken", "exits:plugin"))

            def starts() -> int:
                return watched.kinds().count("plugin.starting")

            request = Request("t", "call", {})
            error = await failing(route.call(request))
            assert (error.code, error.executed) == ("quarantined", "no")
            assert "failed to start 3 times" in error.message and error.after_ms == 300
            assert starts() == 3
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert (await failing(route.call(request))).code == "quarantined"
            assert loop.time() - began < 0.05
            await until(lambda: route.status().state == "down")
            assert route.status().reason == "quarantined"
            while starts() == 3:
                ends = [failing(route.call(request)) for _ in range(32)]
                told = await asyncio.gather(*ends)
            assert starts() == 4 and {error.code for error in told} == {"quarantined"}
            assert told[-1].after_ms == 600
            assert (await failing(route.call(request))).code == "quarantined"
            assert starts() == 4

    running(main)


def test_a_mismatch_is_not_tried_again(tmp_path: Path) -> None:
    """HSK-003, SUP-012: one spawn, whatever the policy."""

    async def main() -> None:
        async with hosting(restarts=SOON) as watched:
            route = watched.host.add(puppet(tmp_path, "hello(proto=[7, 9])\ntime.sleep(600)"))
            request = Request("t", "call", {})
            codes = {(await failing(route.call(request))).code for _ in range(3)}
            assert codes == {"version_mismatch"}
            assert watched.kinds().count("plugin.starting") == 1

    running(main)


def test_an_eager_plugin_comes_back_by_itself() -> None:
    """Protocol, instance states: restarts follow the desired state, not a call."""

    async def main() -> None:
        async with hosting(restarts=SOON) as watched:
            route = watched.host.add(workbench(activation="eager"))
            await route.start()
            pid = route.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: route.status().generation == 2)
            await until(lambda: route.status().state == "ready")
            await route.stop()
            assert route.status().state == "stopped"

    running(main)


def test_a_stop_while_a_start_waits_ends_the_waiting() -> None:
    """SHD-008: the timer is gone with it, waiters are told, and nothing starts afterwards."""

    async def main() -> None:
        slow = replace(SOON, first_s=0.2, longest_s=0.2)
        async with hosting(restarts=slow) as watched:
            route = watched.host.add(workbench())
            await failing(tool(route, "die"))
            await until(lambda: route.status().state == "backoff")
            waiting = asyncio.create_task(failing(tool(route, "echo", value=1)))
            await asyncio.sleep(0)
            assert route.status().queued == 1
            await route.stop()
            assert (await waiting).code == "not_active"
            await asyncio.sleep(0.3)
            assert watched.kinds().count("plugin.starting") == 1

    running(main)
