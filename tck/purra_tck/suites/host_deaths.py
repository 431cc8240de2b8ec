"""SUP-015 and SHD-005: the host itself ends, in every way that a program can end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio

from purra_tck import patience
from purra_tck.checks import Checks
from purra_tck.subjects.host import HostSubject, hosted
from purra_tck.subjects.machine import alive
from purra_tck.verdict import Case, SubjectFailed

__all__ = ["CHECKS"]

CHECKS = Checks("SUP-015", "SHD-005")

GONE_S: Final = 2.0
PLUGIN: Final = """
import os, signal, time
from purra_sdk import Plugin, tool

def child():
    try:
        pid = os.fork()
    except OSError:
        return 0  # it is jailed
    if pid:
        return pid
    os.setsid()
    time.sleep(60)
    os._exit(0)

@tool(effect="world_write")
def t(call, how):
    if how == "who":
        return {"pid": os.getpid(), "child": child()}
    call.progress("begun")
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while how == "deaf":
        time.sleep(0.05)
    return "idle"

plugin = Plugin(tools=[t])
"""
WAYS: Final = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "raise", "exit", "stop", "the end")
"""A signal from outside, an order to its own program, or the end of its input."""


class _Apart:
    """A host in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def send(self, *order: Any) -> None:
        """Has its program do something."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")

    async def ask(self, *order: Any) -> Any:
        """The answer of its program."""
        self.send(*order)
        line = b"" if self.process.stdout is None else await self.process.stdout.readline()
        if not line:
            raise SubjectFailed(f"a host that does {order}", "its process has ended")
        return json.loads(line)

    def end(self, way: str) -> None:
        """Ends it in one of `WAYS`."""
        if way.startswith("SIG"):
            self.process.send_signal(signal.Signals[way])
        elif way == "the end":
            if self.process.stdin is not None:
                self.process.stdin.close()
        else:
            self.send(way)


@asynccontextmanager
async def _apart(subject: HostSubject, **spec: Any) -> AsyncIterator[_Apart]:
    """It has a folder for temporary files of its own: another host may clear up after one that died
    where it finds something of it, and here nobody is to help.
    """
    stage = await subject.stage(entry="dies:plugin", files={"dies.py": PLUGIN}, **spec)
    alone = stage.spec.folder / "tmp"
    alone.mkdir()
    process = await asyncio.create_subprocess_exec(
        *subject.driver.apart(stage.spec),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(alone)},
        start_new_session=True,
    )
    try:
        yield _Apart(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _gone(case: Case, pid: int, after: str) -> None:
    """Demands that a process is gone soon, by the kit's own clock."""
    began_s = time.monotonic()
    with patience.limit(GONE_S):
        while alive(pid):
            await asyncio.sleep(0.002)
    took_s = time.monotonic() - began_s
    left = "it lives" if alive(pid) else f"it is gone after {took_s:.3f} s"
    case.require(not alive(pid), f"no instance {GONE_S:g} s after {after}", left)


@CHECKS.rule("SUP-015")
@hosted
async def who_loses_its_host_goes(case: Case, subject: HostSubject) -> None:
    """Idle, busy and deaf, or stopped: what does not read its channel goes too."""
    subject.needs("apart")

    async def killed(how: str, level: str) -> None:
        async with _apart(subject, isolation=level) as host:
            pid, child = await _who(subject, host)
            tree = (await subject.within(host.ask("status"), "status")).get("tree", "none")
            await subject.within(host.ask("call", {"how": how}), "a call")
            host.end("SIGKILL")
            await host.process.wait()
            await _gone(case, pid, f"SIGKILL of the host of a plugin that is {how}")
            if child and tree.startswith("enforced"):
                await _gone(case, child, f"SIGKILL, of a child in a session of its own ({tree})")
            case.saw(f"tree: {tree}; a child of the plugin: {'there was one' if child else 'none'}")

    await _in_pairs(
        partial(killed, how, level)
        for how, level in (
            ("idle", "none"),
            ("deaf", "none"),
            ("stopped", "none"),
            ("deaf", "standard"),
        )
    )


@CHECKS.rule("SHD-005")
@hosted
async def no_way_of_ending_leaves_a_child(case: Case, subject: HostSubject) -> None:
    """Its plugin stands still, so it goes only if somebody sees to it."""
    subject.needs("apart")

    async def ended(way: str) -> None:
        async with _apart(subject) as host:
            pid, _ = await _who(subject, host)
            await subject.within(host.ask("call", {"how": "stopped"}), "a call")
            host.end(way)
            await subject.within(host.process.wait(), f"the end of a host by {way}")
            await _gone(case, pid, f"the host has ended by {way}")

    await _in_pairs(partial(ended, way) for way in WAYS)


async def _who(subject: HostSubject, host: _Apart) -> tuple[int, int]:
    """The process of the plugin, and of a child that it has left in a session of its own, or 0."""
    answer = await subject.within(host.ask("call", {"how": "who"}), "a call")
    pid, child = answer["value"]["pid"], answer["value"]["child"]
    for each in filter(None, (pid, child)):
        subject.adopt(each)
    return pid, child


async def _in_pairs(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Does all of them, two at a time: most of it is waiting for programs to start."""
    limiter = anyio.CapacityLimiter(2)

    async def limited(work: Callable[[], Awaitable[None]]) -> None:
        async with limiter:
            await work()

    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(limited, work)
