"""The project's own contenders: real hosts, real workers, real ports; supervision on.

Every call has a deadline and can be cancelled, every value is checked on both ends.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import purra_plugin_sqlite
from purra.contracts.tool import ToolSchema, declare
from purra_hosts.launch import Isolation, Launch, LaunchLimits
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost

__all__ = ["ADD", "ECHO", "bench_launch", "bench_route", "hosting", "sqlite_launch"]

FOLDER: Final = Path(__file__).with_name("plugin")
OFFERS: Final = (("model", "script"), ("tool", "echo"), ("tool", "add"), ("store", "bulk"))
INFLIGHT: Final = 1024

ECHO: Final[ToolSchema] = declare(
    "echo",
    "Gives its argument back",
    {"type": "object", "properties": {"value": {}}, "required": ["value"]},
    "pure",
)
ADD: Final[ToolSchema] = declare(
    "add",
    "Adds two numbers",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "pure",
)


def _launch(folder: Path, **more: Any) -> Launch:
    manifest = folder / "purra-plugin.toml"
    return Launch(
        version="0.1.0",
        folder=folder,
        manifest_path=manifest,
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(),
        python=sys.executable,
        limits=LaunchLimits(inflight=INFLIGHT),
        **more,
    )


def bench_launch(
    plugin: str = "bench", isolation: str = "none", coroutines: bool = False
) -> Launch:
    """The plugin beside this file, or the one whose handlers are coroutines.

    `plugin`: its id, so that one host can have two of it.
    """
    return _launch(
        FOLDER,
        plugin=plugin,
        offers=(("tool", "echo"),) if coroutines else OFFERS,
        entry="bench_coroutines:plugin" if coroutines else "bench_plugin:plugin",
        sys_path=(str(FOLDER),),
        isolation=Isolation(isolation),
    )


def sqlite_launch(path: Path) -> Launch:
    """The SQLite store on `path`."""
    folder = Path(purra_plugin_sqlite.__file__).parent
    return _launch(
        folder,
        plugin="sqlite",
        offers=(("store", "journal"),),
        entry="purra_plugin_sqlite.plugin:plugin",
        config={"path": str(path)},
        grants={"fs.write": (str(path.parent),)},
        sys_path=(str(folder.parent),),
        isolation=Isolation("none"),
    )


@asynccontextmanager
async def hosting(*launches: Launch) -> AsyncIterator[list[Route]]:
    """A process host with these plugins, started. What a worker prints goes to standard error."""
    async with ProcessHost(logs=_tell) as host:
        routes = [host.add(launch) for launch in launches]
        for route in routes:
            await route.start()
        yield routes


@asynccontextmanager
async def bench_route() -> AsyncIterator[Route]:
    """The plugin beside this file, alone."""
    async with hosting(bench_launch()) as (route,):
        yield route


def _tell(record: Any) -> None:
    print(record.get("text", record), file=sys.stderr)
