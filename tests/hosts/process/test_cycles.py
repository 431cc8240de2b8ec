"""Many lives under a small limit of descriptors: nothing is left of any of them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from purra_bridge.ports.channel import Request
from purra_bridge.wire.codec import encode
from purra_hosts.launch import Launch
from purra_hosts.process.route import Route
from purra_hosts.restarts import RestartPolicy
from tests.hosts.process.rig import QUICK, failing, hosting, running, swept

NOFILE = 256
ROUTES = 4
STARTS = 500
CRASHES = 100
ANY_NUMBER = RestartPolicy(most=10_000, first_s=0.001, longest_s=0.001, healthy_s=0.0)
TINY = """
import os, struct
fd = int(os.environ["PURRA_FD"])
def send(kind, body):
    os.write(fd, struct.pack(">IIBB", len(body), 0, kind, 0) + body)
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(fd, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
send(1, bytes.fromhex(os.environ["TINY_HELLO"]))
while True:
    size, call, kind, flags = struct.unpack(">IIBB", take(10))
    take(size)
    if kind == 2:
        send(3, bytes.fromhex(os.environ["TINY_READY"]))
    elif kind == 16:
        os.kill(os.getpid(), 9)
"""


@dataclass(frozen=True)
class Residue:
    """What a process holds of the system."""

    descriptors: int
    threads: int
    tasks: int
    children: int

    @classmethod
    def now(cls) -> Residue:
        tasks = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        running_tasks = len(asyncio.all_tasks())
        return cls(swept(), threading.active_count(), running_tasks, len(tasks))


@pytest.fixture(autouse=True)
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def tiny(folder: Path, name: str) -> Launch:
    """A worker that starts in the time that an interpreter takes, and dies when it is called."""
    manifest, script = folder / "purra-plugin.toml", folder / "tiny.py"
    manifest.write_text('schema = "purra.plugin/1"\n')
    script.write_text(TINY)
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    hello = {"proto": [1, 1], "plugin": name, "version": "1", "manifest_sha256": digest}
    ready = {"offers": [{"kind": "tool", "name": "t"}]}
    return Launch(
        plugin=name,
        version="1",
        folder=folder,
        manifest_path=manifest,
        manifest_sha256=digest,
        offers=(("tool", "t"),),
        python=sys.executable,
        command=("{python}", "-I", "-S", "-E", "tiny.py"),
        env={"TINY_HELLO": encode(hello).hex(), "TINY_READY": encode(ready).hex()},
    )


def test_starts_and_stops_leave_nothing(tmp_path: Path) -> None:
    """H71: 500, four at a time."""

    async def cycles(route: Route, count: int) -> None:
        for _ in range(count):
            await route.start()
            await route.stop()

    async def main() -> None:
        async with hosting(QUICK) as watched:
            routes = [watched.host.add(tiny(tmp_path, f"p{number}")) for number in range(ROUTES)]
            await asyncio.gather(*(cycles(route, 2) for route in routes))
            before = Residue.now()
            await asyncio.gather(*(cycles(route, STARTS // ROUTES) for route in routes))
            assert Residue.now() == before and before.children == 0
            assert watched.kinds().count("plugin.ready") == STARTS + 2 * ROUTES
            assert watched.kinds().count("plugin.stopped") == STARTS + 2 * ROUTES

    running(main)


def test_crashes_and_restarts_leave_nothing(tmp_path: Path) -> None:
    """H50, SUP-014: 100, each noticed by a call, four at a time."""

    async def cycles(route: Route, count: int) -> None:
        for _ in range(count):
            assert (await failing(route.call(Request("t", "call", {})))).code == "crashed"

    async def main() -> None:
        async with hosting(QUICK, restarts=ANY_NUMBER) as watched:
            routes = [watched.host.add(tiny(tmp_path, f"p{number}")) for number in range(ROUTES)]
            await asyncio.gather(*(cycles(route, 2) for route in routes))
            await asyncio.gather(*(route.stop() for route in routes))
            before = Residue.now()
            for route in routes:
                await route.start()
            await asyncio.gather(*(cycles(route, CRASHES // ROUTES) for route in routes))
            await asyncio.gather(*(route.stop() for route in routes))
            assert Residue.now() == before and before.children == 0

    running(main)
