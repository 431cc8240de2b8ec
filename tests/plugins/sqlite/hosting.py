"""The plugin as a host runs it: real processes, the real wire, the real port."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

import purra_plugin_sqlite
from purra.contracts.store import Store
from purra_bridge.ports.store import HostedStore
from purra_hosts.launch import Launch, LaunchLimits
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings
from tests.conformance.store_subject import Subject

__all__ = ["launch", "open_store", "open_subject", "start"]

TTL_MS = 300
"""Real time passes in these checks: long enough for a few calls on a busy machine."""


def launch(path: Path, **config: Any) -> Launch:
    """The plugin on `path`, as assembly would launch it."""
    folder = Path(purra_plugin_sqlite.__file__).parent
    manifest = folder / "purra-plugin.toml"
    return Launch(
        plugin="sqlite",
        version="0.1.0",
        folder=folder,
        manifest_path=manifest,
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(),
        offers=(("store", "journal"),),
        python=sys.executable,
        entry="purra_plugin_sqlite.plugin:plugin",
        config={"path": str(path), **config},
        grants={"fs.write": (str(path.parent),)},
        sys_path=(str(folder.parent), str(Path(__file__).parent)),
        limits=LaunchLimits(inflight=1024),
    )


@asynccontextmanager
async def start(path: Path, **config: Any) -> AsyncGenerator[Route, None]:
    """One process of the plugin, ready."""
    logs: list[Mapping[str, Any]] = []
    timings = Timings(drain_s=1.0, exit_s=2.0)
    async with ProcessHost(timings=timings, logs=logs.append) as host:
        route = host.add(launch(path, **config))
        await route.start()
        yield route
    # A worker that says anything on its way has a fault that no answer told of.
    assert [record for record in logs if record.get("stream") == "stderr"] == []


@asynccontextmanager
async def open_store(path: Path, **config: Any) -> AsyncGenerator[Store, None]:
    """The store of one process of the plugin."""
    async with start(path, **config) as route:
        yield HostedStore(route, "journal")


@asynccontextmanager
async def open_subject(path: Path, ns: str = "test") -> AsyncGenerator[Subject, None]:
    """A subject of the store suite, each of its openings in a process of its own."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(path))

        async def pass_time(ms: int) -> None:
            until_ms = await store.now() + ms
            while await store.now() < until_ms:
                await anyio.sleep(0.005)

        async def opened() -> Store:
            return await stack.enter_async_context(open_store(path))

        async def reopened() -> Store:
            await stack.aclose()
            return await opened()

        yield Subject(store, ns, TTL_MS, pass_time, opened, reopened)
