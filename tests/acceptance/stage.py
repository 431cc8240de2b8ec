"""What the acceptance tests share: a folder of its own for each, the command line, its processes.

Everything here is done from outside: by the command, by signals, by what stands in files.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from purra.journal.state import RunState
from purra.manifest.host import Caller
from purra_hosts.app.assembly import open_application
from purra_hosts.app.plan import make_plan

__all__ = [
    "PLUGINS",
    "QUICKSTART",
    "ROOT",
    "Stage",
    "adopted",
    "alive_after",
    "objects",
    "parse",
    "within_patience",
]

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = Path(__file__).parent / "plugins"
QUICKSTART = ROOT / "manifests" / "quickstart.toml"
WITNESS = Path(__file__).with_name("witness.py")
PURRA = Path(sys.executable).with_name("purra")
PATIENCE_S = 60.0
"""No command here takes a second; this is for a machine that does ten other things."""
PR_SET_CHILD_SUBREAPER = 36

PUPPETS = """
schema = "purra.host/1"
name = "puppets"
[agent]
id = "puppet"
revision = "1"
model = "puppet/strings"
tools = [{tools}]
context = ["puppet/note"]
store = "{store}/journal"
{more}
[agent.limits]
deadline_s = 120
[plugins.puppet]
{puppet}
[plugins.hand]
config = {{ file = "{{state}}/lines"{fuse} }}
[plugins.{store}]
config = {{ path = "{{state}}/runs.db"{store_fuse} }}
{grants}
[discovery]
folders = ["{plugins}"]
[isolation]
level = "none"
"""


@dataclass(frozen=True)
class Stage:
    """A folder with a host manifest, a state folder and a HOME, and the command line in it."""

    folder: Path

    @property
    def manifest(self) -> Path:
        return self.folder / "purra.toml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def lines(self) -> list[str]:
        """What the tool `hand.write` has written."""
        path = self.state / "lines"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    @property
    def fuse(self) -> Path:
        return self.folder / "fuse"

    @property
    def environment(self) -> dict[str, str]:
        """An empty HOME, and temporary files that go with the test."""
        places = {"HOME": self.folder / "home", "TMPDIR": self.folder / "tmp"}
        for place in places.values():
            place.mkdir(exist_ok=True)
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            **{name: str(place) for name, place in places.items()},
        }

    def puppets(
        self,
        tools: Sequence[str] = ("hand.write", "hand.look"),
        *,
        fused: bool = False,
        more: str = "",
    ) -> Stage:
        """Writes the manifest of a puppet: what it does is said in the prompt.

        `fused`: its plugins kill the kernel where the file `fuse` says. `more`: of the agent.
        """
        fuse = f', fuse = "{self.fuse}"' if fused else ""
        text = PUPPETS.format(
            tools=", ".join(f'"hand/{tool}"' for tool in tools),
            store="fused" if fused else "sqlite",
            more=more,
            puppet=f'config = {{ fuse = "{self.fuse}" }}' if fused else "",
            fuse=fuse,
            store_fuse=fuse,
            grants="" if fused else 'grants = { fs.write = ["{state}"] }',
            plugins=PLUGINS,
        )
        self.manifest.write_text(text)
        return self

    def with_memory(self, text: str) -> Stage:
        """The context is a memory file, in a process of its own."""
        memory = self.folder / "AGENTS.md"
        memory.write_text(text)
        told = self.manifest.read_text().replace("puppet/note", "agentsmd/memory")
        told += f'[plugins.agentsmd]\nconfig = {{ files = [{{ path = "{memory}" }}] }}\n'
        told += f'grants = {{ fs.read = ["{self.folder}"] }}\n'
        self.manifest.write_text(told)
        return self

    def argv(self, *arguments: str) -> list[str]:
        """The whole command: commands that take a manifest and a state folder get this one's."""
        if arguments[0] == "run":
            return [str(PURRA), "run", str(self.manifest), *arguments[1:], *self._state]
        manifest = ["--manifest", str(self.manifest)]
        return [str(PURRA), *arguments, *manifest, *self._state]

    def purra(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, with more in its environment."""
        return subprocess.run(
            self.argv(*arguments),
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; what is left of it at the end is killed."""
        with subprocess.Popen(
            self.argv(*arguments),
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as process:
            late = threading.Timer(PATIENCE_S, process.kill)
            late.start()
            try:
                yield process
            finally:
                late.cancel()
                process.kill()

    def witnessed(
        self, *arguments: str, **environment: str
    ) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Runs a command, given as it is, in a process that reports on itself (`witness`)."""
        report = self.folder / "report.json"
        ran = subprocess.run(
            [sys.executable, str(WITNESS), str(report), *arguments],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
        )
        return ran, json.loads(report.read_text())

    async def looked_at(self) -> list[RunState]:
        """All runs as the store has them now. Starts the store's plugin and nothing else."""
        plan = make_plan(self.manifest, Caller(state=self.state), only_store=True)
        async with within_patience(), open_application(plan) as application:
            runs = application.kernel.runs
            return [await runs.state(info.run) for info in await runs.list()]

    @property
    def _state(self) -> tuple[str, ...]:
        return ("--state", str(self.state))


@asynccontextmanager
async def within_patience() -> AsyncIterator[None]:
    """What hangs is an error, not a test that never ends."""
    with anyio.fail_after(PATIENCE_S):
        yield


def parse(line: str) -> dict[str, Any]:
    """A line of strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    value = json.loads(line, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


def objects(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [parse(line) for line in text.splitlines()]


@contextmanager
def adopted() -> Iterator[frozenset[int]]:
    """While this holds, orphans of our children become ours, so that none can hide.

    Gives the children that were there before.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = frozenset(_children())
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield before
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def alive_after(before: frozenset[int], seconds: float) -> list[str]:
    """Command lines of the adopted processes that still run `seconds` from now. They are killed."""
    deadline_s = time.monotonic() + seconds
    alive: list[str] = []
    while new := [pid for pid in _children() if pid not in before]:
        for pid in new:
            if not _ends_by(pid, deadline_s):
                alive.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return alive


def _children() -> list[int]:
    ours = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                ours.append(int(entry.name))
    return ours


def _ends_by(pid: int, deadline_s: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000))
    finally:
        os.close(descriptor)
