"""What the tests of the process host share: launches, hosts with records, bounded waits."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Isolation, Launch
from purra_hosts.process.logs import Record
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings

PLUGINS: Final = Path(__file__).parent / "plugins"
BOUND_S: Final = 20.0
"""No wait of a test is longer; reached only when something is broken."""
TOOLS: Final = (
    "echo",
    "slow",
    "deaf",
    "die",
    "environ",
    "noise",
    "flood",
    "child",
    "shell",
    "garble",
    "progress",
    "fail",
    "unencodable",
    "stop_itself",
    "big",
    "spin",
    "hold",
    "ask",
)
QUICK: Final = Timings(
    hello_s=5.0, ready_s=5.0, grace_s=0.3, drain_s=0.5, exit_s=0.5, term_s=0.5, kill_s=5.0
)
"""Short where a test waits for a limit to pass, long where it would only be a false alarm."""


def workbench(**changes: Any) -> Launch:
    """The plugin that does what a test asks for."""
    offers = (*(("tool", name) for name in TOOLS), ("store", "bench"))
    return replace(from_folder("workbench", "workbench:plugin", offers), **changes)


def from_folder(name: str, entry: str, offers: tuple[tuple[str, str], ...] = ()) -> Launch:
    """A launch of a folder below `plugins/`. Not isolated: it starts programs and writes wherever
    its test says. What isolation does has tests of its own.
    """
    folder = PLUGINS / name
    manifest = folder / "purra-plugin.toml"
    return Launch(
        plugin=name,
        version="0.1.0",
        folder=folder,
        manifest_path=manifest,
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(),
        offers=offers,
        python=sys.executable,
        entry=entry,
        sys_path=(str(folder),),
        isolation=Isolation("none"),
    )


def puppet(folder: Path, code: str, **changes: Any) -> Launch:
    """A worker of a few lines that speaks frames itself, through a real session.

    `code` has `channel` (a blocking socket), `session`, `hello()`, `ready()`, `events()` (one
    read), `flush()`, `os`, `time`, `sys`.
    """
    manifest = folder / "purra-plugin.toml"
    manifest.write_text('schema = "purra.plugin/1"\nid = "puppet"\n')
    script = folder / "puppet.py"
    script.write_text((Path(__file__).parent / "puppet_head.py").read_text() + "\n" + code)
    paths = [_home_of("purra_bridge"), _home_of("msgpack")]
    launch = Launch(
        plugin="puppet",
        version="0.1.0",
        folder=folder,
        manifest_path=manifest,
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(),
        offers=(("tool", "t"),),
        python=sys.executable,
        command=("{python}", "-I", "-S", "puppet.py"),
        env={"PUPPET_PATH": os.pathsep.join(map(str, paths))},
    )
    return replace(launch, **changes)


def _home_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))).parent


class Watched:
    """A host, and what it told."""

    def __init__(self, host: ProcessHost, logs: list[Record], events: list[Any]) -> None:
        self.host = host
        self.logs = logs
        self.events = events

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def texts(self, stream: str) -> list[str]:
        return [record["text"] for record in self.logs if record["stream"] == stream]


@asynccontextmanager
async def hosting(
    timings: Timings = QUICK,
    *,
    watch: Callable[[str, Mapping[str, Any]], None] | None = None,
    **options: Any,
) -> AsyncIterator[Watched]:
    """A process host that keeps what it logs and announces. `watch`: is told at once, too."""
    logs: list[Record] = []
    events: list[tuple[str, Mapping[str, Any]]] = []

    def tell(kind: str, data: Mapping[str, Any]) -> None:
        events.append((kind, data))
        if watch is not None:
            watch(kind, data)

    host = ProcessHost(timings=timings, logs=logs.append, events=tell, **options)
    async with host:
        yield Watched(host, logs, events)


def running(main: Callable[[], Any]) -> Any:
    """Runs an async test, bounded."""

    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(bounded())


async def tool(route: Route, name: str, timeout_s: float | None = None, **args: Any) -> Any:
    """Calls a tool of the workbench; the value of its result."""
    options: dict[str, Any] = {"exclusive": args.pop("exclusive", False)}
    options["stop"] = args.pop("stop", None)
    request = Request(name, "call", {"arguments": args}, timeout_s=timeout_s, **options)
    answer = await route.call(request)
    return answer["value"]


async def failing(awaitable: Any) -> WireError:
    """The error that a call ends with."""
    try:
        value = await awaitable
    except WireError as error:
        return error
    raise AssertionError(f"it returned {value!r}")


async def until(condition: Callable[[], Any], what: str = "a condition") -> Any:
    """Waits for a condition of another process, which has no event to wait for."""
    async with asyncio.timeout(BOUND_S):
        while not (value := condition()):
            await asyncio.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    """There is a process of that number, and it is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def swept() -> int:
    """The same, after what was left to the collector has been closed: it would be missed later."""
    gc.collect()
    return descriptors()
