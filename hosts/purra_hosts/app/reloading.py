"""Replacing a plugin while runs go on: by this process, or asked for from another one.

What is installed is read anew, as at the start, and only the named plugin's part of it is used. If
it offers what it offered, its route changes generations and nobody above notices. If its offers
have changed, the kernel gets a new epoch: what begins from then on is bound to a route of its own,
and the old route serves the runs that were started with the old offers until the last of them has
let go (retire, drain, release; invariant 5). A store cannot change in this way, because everything
hangs on it.

Other processes ask through `kernel/<id>/inbox` and read the answer in the kernel's document
(tables, store keys).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from purra.errors import PurraError
from purra.kernel import Kernel
from purra.limits import STORE_RETRY_S
from purra_bridge.ports.faults import adapter_error
from purra_bridge.wire.errors import WireError
from purra_hosts.app.bulletin import Bulletin
from purra_hosts.app.matching import Match, Resolved
from purra_hosts.app.plan import Plan, make_plan
from purra_hosts.app.ports import adapters_of
from purra_hosts.launch import Launch
from purra_hosts.process.supervisor import ProcessHost

__all__ = ["Reloaded", "Reloader"]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What serves now. `changed`: the agent's adapters whose offers differ from before; with some,
    `epoch` is a new one.
    """

    plugin: str
    version: str
    generation: int
    epoch: int
    changed: tuple[str, ...]


class Reloader:
    """Reloads plugins of one open application, one after the other."""

    def __init__(self, plan: Plan, host: ProcessHost, kernel: Kernel, bulletin: Bulletin) -> None:
        self._plan = plan
        self._match = plan.match
        self._host = host
        self._kernel = kernel
        self._bulletin = bulletin
        self._turn = asyncio.Lock()

    async def reload(self, plugin: str) -> Reloaded:
        """See `purra_hosts.app.assembly.Application.reload`."""
        async with self._turn:
            if plugin not in self._host.routes:
                raise PurraError("plugin_not_found", f"no plugin {plugin!r} is running here")
            host = self._plan.host
            plan = await anyio.to_thread.run_sync(make_plan, Path(host.path), self._plan.caller)
            launch = plan.launches.get(plugin)
            if launch is None:
                raise host.refuse(["plugins"], f"does not name {plugin!r} any more")
            match = _renewed(self._match, plan.match, plugin)
            changed = _changed(self._match, match)
            try:
                if changed:
                    await self._replace(launch, match, changed)
                else:
                    self._check_inproc(launch)
                    await self._host.routes[plugin].reload(launch)
            except WireError as error:
                raise adapter_error(error) from error
            self._match = match
            generation = self._host.routes[plugin].status().generation
            return Reloaded(plugin, launch.version, generation, self._kernel.epoch, changed)

    async def _replace(self, launch: Launch, match: Match, changed: tuple[str, ...]) -> None:
        """A route of its own for what is bound from now on."""
        if match.store is not None and match.store.address.plugin == launch.plugin:
            raise _unsupported(launch, "it has the store, and its offers have changed")
        self._check_inproc(launch)
        route = self._host.beside(launch)
        try:
            await route.start()
            old = self._host.routes[launch.plugin]
            ports = adapters_of(match, {**self._host.routes, launch.plugin: route})
            await self._kernel.rebind(ports, lambda: self._host.retire(old))
        except BaseException:  # cancelled, too: nothing has changed, and nothing may stay
            self._host.retire(route)
            raise
        self._host.switch(route)

    def _check_inproc(self, launch: Launch) -> None:
        before = self._host.routes[launch.plugin].launch
        if launch.kind == "inproc" and launch.manifest_sha256 != before.manifest_sha256:
            raise _unsupported(launch, "its code is loaded into this process")

    # For other processes.

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Does what others ask for, for the length of a block."""
        task = asyncio.get_running_loop().create_task(self._listen(), name="purra:reloads")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    async def _listen(self) -> None:
        taken = 0
        while True:
            try:
                async for body in self._kernel.asked(taken):
                    taken += 1
                    if body.get("kind") == "reload":
                        await self._answer(body)
            except PurraError:
                await anyio.sleep(STORE_RETRY_S)

    async def _answer(self, body: Mapping[str, Any]) -> None:
        try:
            done = await self.reload(str(body.get("plugin")))
            answer: dict[str, Any] = {"ok": True, **asdict(done), "changed": list(done.changed)}
        except PurraError as error:
            answer = {"ok": False, "code": error.code, "message": error.message}
        await self._bulletin.answer(str(body.get("token")), answer)


def _renewed(old: Match, new: Match, plugin: str) -> Match:
    """`old`, with what the plugin offers now. Raises `PurraError(adapter_not_found)`."""
    manifest = new.plugins[plugin].manifest

    def now(item: Resolved) -> Resolved:
        if item.address.plugin != plugin:
            return item
        offer = manifest.offer(item.address.name)
        if offer is None or offer.kind != item.offer.kind or offer.dynamic:
            what = f"{plugin} {manifest.version} does not offer the {item.offer.kind} any more"
            raise PurraError("adapter_not_found", what, where=str(item.address))
        return Resolved(item.address, offer)

    return replace(
        old,
        model=now(old.model) if old.model else None,
        tools=tuple(map(now, old.tools)),
        context=tuple(map(now, old.context)),
        store=now(old.store) if old.store else None,
        policy=now(old.policy) if old.policy else None,
        plugins={**old.plugins, plugin: new.plugins[plugin]},
        found={**old.found, plugin: new.found[plugin]},
    )


def _changed(old: Match, new: Match) -> tuple[str, ...]:
    pairs = zip(_bound(old), _bound(new), strict=True)
    return tuple(str(after.address) for before, after in pairs if before.pinned != after.pinned)


def _bound(match: Match) -> list[Resolved]:
    one = (match.model, match.store, match.policy)
    return [*(item for item in one if item), *match.tools, *match.context]


def _unsupported(launch: Launch, why: str) -> PurraError:
    return PurraError(
        "unsupported",
        f"{launch.plugin} cannot be reloaded: {why}",
        hint="restart what runs it",
    )
