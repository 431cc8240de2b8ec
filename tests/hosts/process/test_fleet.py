"""Several instances of one plugin: pools, reload, idle stop, replacement."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import LaunchLimits
from purra_hosts.process import inflight
from purra_hosts.process.route import Route
from purra_hosts.restarts import RestartPolicy
from tests.hosts.process.rig import (
    QUICK,
    Watched,
    alive,
    failing,
    from_folder,
    hosting,
    puppet,
    running,
    tool,
    until,
    workbench,
)

SOON = RestartPolicy(first_s=0.02, longest_s=0.02, jitter=0.0)


class Slow:
    """A call of `slow` that runs until `end`."""

    def __init__(self, route: Route, folder: Path, name: str, **more: Any) -> None:
        self.release, self.started = folder / f"{name}.release", folder / f"{name}.started"
        paths = {"started": str(self.started), "release": str(self.release)}
        self.call = asyncio.create_task(tool(route, "slow", **paths, **more))

    async def begun(self) -> None:
        await until(self.started.exists)

    async def end(self) -> str:
        self.release.touch()
        return str(await self.call)


async def pid_of(route: Route) -> int:
    return int((await tool(route, "environ"))["pid"])


def generations(watched: Watched, kind: str) -> list[int]:
    return [data["generation"] for name, data in watched.events if name == kind]


def test_an_exclusive_call_gets_an_instance_of_its_own(tmp_path: Path) -> None:
    """Protocol, messages, 2: beside calls that do not end; only as many as there may be."""

    async def main() -> None:
        async with hosting() as watched:
            limits = LaunchLimits(threads=2, instances=2)
            route = watched.host.add(workbench(limits=limits))
            stays = Slow(route, tmp_path, "stays")
            await stays.begun()
            assert route.status().instances == 1
            write = Slow(route, tmp_path, "write", exclusive=True)
            await write.begun()
            assert route.status().instances == 2
            third = Slow(route, tmp_path, "third", exclusive=True)
            await until(lambda: route.status().queued == 1)
            assert route.status().instances == 2
            assert await write.end() == "released"
            await third.begun()
            assert await third.end() == "released" and await stays.end() == "released"

    running(main)


def test_without_a_second_instance_nobody_passes_an_exclusive_call(tmp_path: Path) -> None:
    """The first in the queue is the first to run, however steady the stream of others."""

    async def main() -> None:
        async with hosting() as watched:
            limits = LaunchLimits(threads=4, instances=2)
            route = watched.host.add(workbench(limits=limits))
            first, second = (Slow(route, tmp_path, name) for name in "ab")
            await first.begun()
            await second.begun()
            one = Slow(route, tmp_path, "one", exclusive=True)
            await one.begun()
            two = Slow(route, tmp_path, "two", exclusive=True)
            echo = asyncio.create_task(tool(route, "echo", value=1))
            await until(lambda: route.status().queued == 2)
            await asyncio.gather(first.end(), second.end())
            await two.begun()
            assert not echo.done()
            await asyncio.gather(one.end(), two.end())
            assert await echo == 1

    running(main)


def test_a_full_instance_gets_company_and_the_least_busy_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting() as watched:
            limits = LaunchLimits(inflight=2, threads=2, instances=3)
            route = watched.host.add(workbench(limits=limits))
            slow = [Slow(route, tmp_path, str(number)) for number in range(6)]
            for each in slow:
                await each.begun()
            assert route.status().instances == 3 and route.status().calls == 6
            await asyncio.gather(*(each.end() for each in slow))
            pids = await asyncio.gather(*(pid_of(route) for _ in range(3)))
            assert len(set(pids)) == 3

    running(main)


def test_a_reload_loses_no_call(tmp_path: Path) -> None:
    """PLG-08, H70, SHD-006: the old generation finishes what it has, the new one takes what
    comes."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=2)))
            stays = Slow(route, tmp_path, "stays")
            await stays.begun()
            old = await pid_of(route)
            await route.reload(replace(workbench(), config={"new": True}))
            assert route.status().generation == 2 and await pid_of(route) != old
            assert alive(old) and route.launch.config == {"new": True}
            assert await stays.end() == "released"
            await until(lambda: 1 in generations(watched, "plugin.stopped"))
            assert not alive(old) and route.status().last_error is None
            kinds = [kind for kind, data in watched.events if data["generation"] == 1]
            assert kinds[-3:] == ["plugin.draining", "plugin.stopping", "plugin.stopped"]

    running(main)


def test_a_reload_that_fails_changes_nothing(tmp_path: Path) -> None:
    """SHD-007: and is not held against what serves."""

    async def main() -> None:
        async with hosting(restarts=SOON) as watched:
            route = watched.host.add(workbench())
            pid = await pid_of(route)
            broken = from_folder("broken", "raises:plugin")
            wrong = replace(workbench(), entry=broken.entry, sys_path=broken.sys_path)
            for _ in range(5):
                error = await failing(route.reload(wrong))
                assert (error.code, error.executed) == ("internal", "no")
            assert await pid_of(route) == pid and route.launch == workbench()
            status = route.status()
            assert (status.state, status.reason, status.generation) == ("ready", "", 1)
            with pytest.raises(ValueError, match="cannot run broken"):
                await route.reload(broken)

    running(main)


def test_a_reload_that_is_given_up_leaves_the_old_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            pid = await pid_of(route)
            hangs = from_folder("broken", "hangs:plugin")
            slow = replace(workbench(), entry=hangs.entry, sys_path=hangs.sys_path)
            reload = asyncio.create_task(route.reload(slow))
            await until(lambda: 2 in generations(watched, "plugin.initializing"))
            reload.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reload
            await until(lambda: 2 in generations(watched, "plugin.stopped"))
            assert await pid_of(route) == pid

    running(main)


@pytest.mark.parametrize("by", ["stop", "crash"])
def test_a_reload_survives_or_ends_with_what_happens_meanwhile(by: str) -> None:
    """A stop wins over it; if what served dies, those who wait are served by the successor."""

    async def main() -> None:
        async with hosting(restarts=SOON) as watched:
            route = watched.host.add(workbench())
            await route.start()
            reload = asyncio.create_task(route.reload())
            await until(lambda: 2 in generations(watched, "plugin.handshaking"))
            if by == "stop":
                await route.stop()
                error = await failing(reload)
                assert error.code == "not_active" and route.status().state == "stopped"
                assert route.status().instances == 0
            else:
                await failing(tool(route, "die"))
                assert await tool(route, "echo", value=1) == 1
                await reload
                assert generations(watched, "plugin.ready") == [1, 2]

    running(main)


def test_an_idle_plugin_is_stopped_and_the_next_call_wakes_it() -> None:
    """Protocol, instance states: idle stop; a hold keeps it."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(idle_s=0.3))
            pid = await tool(route, "hold", on=True)
            await asyncio.sleep(0.5)
            assert route.status().pid == pid  # nobody called it, and it is still there
            await tool(route, "hold", on=False)
            await until(lambda: route.status().state == "stopped")
            assert [data.get("reason") for kind, data in watched.events][-1] == "idle"
            await until(lambda: not alive(pid) and route.status().instances == 0)
            assert await tool(route, "echo", value=1) == 1
            assert route.status().generation == 2

    running(main)


def test_a_call_keeps_a_plugin_and_an_eager_one_is_kept_anyway(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting() as watched:
            eager = watched.host.add(workbench(idle_s=0.1, activation="eager"))
            await eager.start()
            other = from_folder("workbench", "workbench:plugin", eager.launch.offers)
            manifest = (other.folder / "purra-plugin.toml").read_text()
            folder = tmp_path / "purra-plugin.toml"
            folder.write_text(manifest.replace('"workbench"', '"second"', 1))
            digest = hashlib.sha256(folder.read_bytes()).hexdigest()
            second = watched.host.add(
                replace(
                    other,
                    plugin="second",
                    idle_s=0.1,
                    manifest_path=folder,
                    manifest_sha256=digest,
                )
            )
            stays = Slow(second, tmp_path, "stays")
            await stays.begun()
            await asyncio.sleep(0.3)
            assert [route.status().state for route in (eager, second)] == ["ready", "ready"]
            assert await stays.end() == "released"
            await until(lambda: second.status().state == "stopped")
            assert (eager.status().state, eager.status().generation) == ("ready", 1)

    running(main)


def test_spare_instances_go_when_they_are_idle(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting() as watched:
            limits = LaunchLimits(instances=3)
            route = watched.host.add(workbench(limits=limits, idle_s=0.2, activation="eager"))
            writes = [Slow(route, tmp_path, str(number), exclusive=True) for number in range(3)]
            for each in writes:
                await each.begun()
            await asyncio.gather(*(each.end() for each in writes))
            await until(lambda: route.status().instances == 1)
            assert route.status().state == "ready"

    running(main)


def test_an_instance_whose_ids_are_used_up_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Protocol, frame: and no call is lost by it."""
    monkeypatch.setattr(inflight, "USED_UP_ID", 21)

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=2)))
            stays = Slow(route, tmp_path, "stays")
            await stays.begun()
            count = 0
            while len(generations(watched, "plugin.ready")) == 1:
                assert await tool(route, "echo", value=count) == count
                count += 1
            assert count > 8
            assert generations(watched, "plugin.ready") == [1, 2]
            assert await stays.end() == "released"
            await until(lambda: 1 in generations(watched, "plugin.stopped"))

    running(main)


def test_a_tainted_instance_is_replaced_before_it_is_gone(tmp_path: Path) -> None:
    """H38: what it still does keeps nobody waiting."""

    async def main() -> None:
        timings = replace(QUICK, drain_s=30.0)
        async with hosting(timings, restarts=SOON) as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=2)))
            stays = Slow(route, tmp_path, "stays")
            await stays.begun()
            error = await failing(tool(route, "deaf", timeout_s=0.1, seconds=60))
            assert error.code == "deadline_exceeded"
            await until(lambda: generations(watched, "plugin.tainted") == [1])
            assert await tool(route, "echo", value=1) == 1
            assert generations(watched, "plugin.ready") == [1, 2]
            assert not generations(watched, "plugin.stopped")
            assert await stays.end() == "released"

    running(main)


def test_a_stream_that_a_reload_cuts_may_be_asked_for_again() -> None:
    """`retired` says so: there is a successor."""

    async def main() -> None:
        timings = replace(QUICK, retire_s=0.2)
        async with hosting(timings) as watched:
            route = watched.host.add(workbench())
            items = route.stream(Request("bench", "read", {"count": 10**6}, window_bytes=1024))
            assert await anext(items) == 0
            await route.reload()
            await until(lambda: 1 in generations(watched, "plugin.stopped"))
            with pytest.raises(WireError) as caught:
                async for _ in items:
                    pass
            assert (caught.value.code, caught.value.retry) == ("retired", "same")

    running(main)


def test_what_is_required_stops_last(tmp_path: Path) -> None:
    """PLG-06, REG-007: and what nobody requires does not wait."""

    async def main() -> None:
        async with hosting() as watched:
            for name, requires in (("base", ()), ("middle", ("base",)), ("top", ("middle",))):
                folder = tmp_path / name
                folder.mkdir()
                launch = puppet(folder, "start()\nwhile True: events()", requires=requires)
                manifest = folder / "purra-plugin.toml"
                manifest.write_text(f'schema = "purra.plugin/1"\nid = "{name}"\n')
                digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
                await watched.host.add(replace(launch, plugin=name, manifest_sha256=digest)).start()
        ended = [data["plugin"] for kind, data in watched.events if kind == "plugin.stopped"]
        assert ended == ["top", "middle", "base"]

    running(main)
