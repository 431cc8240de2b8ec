"""A plugin that was given more room than the protocol's default gets it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from purra_hosts.launch import LaunchLimits
from tests.hosts.process.rig import hosting, running, tool, until, workbench

INFLIGHT = 200
CALLS = 220


@pytest.mark.parametrize("kind", ["process", "inproc"])
def test_as_many_calls_as_the_manifest_says_are_open_at_once(kind: str, tmp_path: Path) -> None:
    """HSK-011, CAL-003: the smaller proposal holds, so the plugin's end must not stop at 64."""

    async def main() -> None:
        async with hosting() as watched:
            launch = workbench(kind=kind, limits=LaunchLimits(inflight=INFLIGHT, queue=CALLS))
            route = watched.host.add(launch)
            await route.start()
            release = tmp_path / "release"
            calls = [
                asyncio.create_task(tool(route, "slow", release=str(release), timeout_s=30.0))
                for _ in range(CALLS)
            ]
            await until(lambda: route.status().queued == CALLS - INFLIGHT)
            assert route.status().calls == INFLIGHT
            release.touch()
            assert await asyncio.gather(*calls) == ["released"] * CALLS

    running(main)
