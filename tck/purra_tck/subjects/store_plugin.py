"""A store that a plugin provides: each opening in a process of its own, over the real wire."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio

from purra.errors import PurraError
from purra.manifest.config import resolve_config
from purra.manifest.names import RefusedError
from purra.manifest.plugin import FILE_NAME, PluginManifest
from purra.registry.discovery import Discovered, discover
from purra_bridge.ports.store import HostedStore
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Isolation, Launch, LaunchLimits
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings
from purra_tck.subjects.store import Born, Opening
from purra_tck.verdict import SubjectFailed

__all__ = ["FoundStore", "PluginStorage", "find_store", "store_launch"]

PLACE: Final = "{storage}"
"""Stands for the storage's folder in a configuration that is given by hand."""
TIMINGS: Final = Timings(drain_s=2.0, exit_s=2.0)


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A plugin and the name of the store that it provides."""

    plugin: Discovered
    manifest: PluginManifest
    adapter: str
    config: Mapping[str, Any]


def find_store(where: str, config: Mapping[str, Any]) -> FoundStore:
    """The plugin with the id `where`, or the one in the folder `where`, and its first store.

    `config`: values for its keys; a key for a path that is not given gets one in the storage.
    Raises `PurraError(invalid_argument)` if there is no such store: nothing can be judged then.
    """
    folder = Path(where)
    if "/" in where or folder.is_dir():
        found = [each for each in discover(folders=[folder]).plugins if _inside(each, folder)]
    else:
        found = [each for each in discover().plugins if each.id == where]
    if len(found) != 1:
        raise PurraError(
            "invalid_argument",
            f"no plugin {where!r}" if not found else f"{where} holds several plugins",
            where="tck store",
            hint=f"an id that `purra plugins list` shows, or a folder with a {FILE_NAME}",
        )
    (plugin,) = found
    if plugin.manifest is None:
        raise PurraError("invalid_argument", plugin.reason, where=where, hint=plugin.hint)
    stores = [offer.name for offer in plugin.manifest.offers if offer.kind == "store"]
    if not stores:
        raise PurraError("invalid_argument", "the plugin provides no store", where=where)
    return FoundStore(plugin, plugin.manifest, stores[0], config)


def _inside(plugin: Discovered, folder: Path) -> bool:
    return plugin.path is not None and plugin.path.is_relative_to(folder.resolve())


def store_launch(found: FoundStore, storage: Path) -> Launch:
    """How to start the store on `storage`. It is granted what its manifest asks for.

    Raises `PurraError(invalid_argument)` for a configuration that does not fit.
    """
    manifest = found.manifest
    given = {name: _placed(value, storage) for name, value in found.config.items()}
    for name, key in manifest.config.items():
        if key.required and name not in given and key.schema.get("format") == "path":
            given[name] = str(storage / name)
    try:
        config = resolve_config(manifest.config, given, lambda path, _: str(storage / path))
    except RefusedError as error:
        raise PurraError(
            "invalid_argument",
            f"config.{'.'.join(map(str, error.place))} {error.reason}",
            where=f"tck store {manifest.id}",
            hint="give it with --config KEY=VALUE; {storage} stands for a folder of the kit's",
        ) from None
    wanted = manifest.capabilities
    return Launch(
        plugin=manifest.id,
        version=manifest.version,
        folder=manifest.path.parent,
        manifest_path=manifest.path,
        manifest_sha256=manifest.sha256,
        offers=tuple((offer.kind, offer.name) for offer in manifest.offers if not offer.dynamic),
        python=sys.executable,
        entry=manifest.runs.entry,
        command=manifest.runs.command,
        config=config.values,
        grants=replace(
            wanted,
            fs_read=tuple(_granted(wanted.fs_read, storage)),
            fs_write=tuple(_granted(wanted.fs_write, storage)),
        ).value(),
        sys_path=found.plugin.sys_path,
        limits=LaunchLimits(manifest.limits.inflight, manifest.limits.threads),
        isolation=Isolation(require=False),
    )


def _granted(wanted: tuple[str, ...], storage: Path) -> Iterator[str]:
    if any(not path.startswith("/") for path in wanted):
        yield str(storage)
    yield from (path for path in wanted if path.startswith("/"))


def _placed(value: Any, storage: Path) -> Any:
    return value.replace(PLACE, str(storage)) if isinstance(value, str) else value


async def _start(route: Route, born: Born | None) -> None:
    if born is None:
        await route.start()
        return

    async def tell() -> None:
        while (pid := route.status().pid) is None:
            await anyio.sleep(0.0005)
        born(pid)

    failure: WireError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        try:
            await route.start()
        except WireError as error:
            failure = error  # raised outside, where no group wraps it
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


class PluginStorage:
    """The storage of a plugin's store. `folder` is the kit's; a store elsewhere may ignore it."""

    processes = True

    def __init__(
        self, found: FoundStore, folder: Path, change: Callable[[Launch], Launch] = lambda it: it
    ) -> None:
        """`change`: what to start instead; for broken stores behind a good manifest."""
        self.folder: Path | None = folder
        self._found = found
        self._root = folder
        self._change = change
        self._launch = change(store_launch(found, folder))
        self._parts = 0

    @asynccontextmanager
    async def open(self, born: Born | None = None) -> AsyncGenerator[Opening, None]:
        said: list[Mapping[str, Any]] = []
        async with ProcessHost(timings=TIMINGS, logs=said.append) as host:
            route = host.add(self._launch)
            try:
                await _start(route, born)
            except WireError as error:
                tail = [str(line.get("text", "")) for line in said][-5:]
                raise SubjectFailed(
                    "a store that starts", f"{error.code}: {error.message}", "\n".join(tail)
                ) from error
            pid = route.status().pid
            store = HostedStore(route, self._found.adapter)
            yield Opening(store, pid, lambda: route.status().pid == pid)

    def advance(self, ms: int) -> bool:
        return False

    def apart(self) -> PluginStorage:
        self._parts += 1
        folder = self._root / f"part-{self._parts}"
        folder.mkdir(mode=0o700)
        return PluginStorage(self._found, folder, self._change)
