"""The process host: owns the routes, what they share, and the end of all of them.

    async with ProcessHost() as host:
        route = host.add(launch)
        await route.call(Request("fs.grep", "call", {...}))

Nothing outlives `aclose`: no process, no descriptor, no folder, no task. The instances are tasks of
this host and of no caller, so a caller that is cancelled, at whatever moment, loses its answer and
nothing else. If the host itself is killed, its workers see the end of their channel and the death
of their parent; the folders are removed by the next host.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Final, Self

from purra.contracts.clock import Clock, SystemClock
from purra_bridge.wire.errors import WireError
from purra_hosts.isolation.machine import Prober
from purra_hosts.launch import Launch
from purra_hosts.process.callbacks import SECRET, Service
from purra_hosts.process.fleet import EventSink, Place
from purra_hosts.process.gate import StartGate, outlast
from purra_hosts.process.instance import Shared
from purra_hosts.process.logs import LogSink
from purra_hosts.process.route import Route
from purra_hosts.process.staging import Folders
from purra_hosts.process.timings import Timings
from purra_hosts.restarts import RestartPolicy

__all__ = ["ProcessHost"]

TOKEN_BYTES: Final = 8
CHANCE_BYTES: Final = 4


class ProcessHost:
    """Runs plugins in processes of their own. Belongs to one event loop."""

    def __init__(
        self,
        *,
        timings: Timings | None = None,
        clock: Clock | None = None,
        logs: LogSink | None = None,
        events: EventSink | None = None,
        starts: int | None = None,
        restarts: RestartPolicy | None = None,
    ) -> None:
        """`logs` takes each line that a worker prints or logs, `events` each step of an instance;
        both are called on the loop and must not block. `starts`: how many instances start at once,
        None = as many as there are processors. `restarts`: None = what has failed stays down.

        Raises `WireError(spawn_failed)` on a system without the process primitives it needs.
        """
        if sys.platform == "win32":
            raise WireError("spawn_failed", "the process host does not run on Windows")
        clock = clock or SystemClock()
        self._folders = Folders()
        self._services: dict[str, Service] = {}
        timings = timings or Timings()
        self._retire_s = timings.retire_s
        self._place = Place(
            shared=Shared(
                folders=self._folders,
                timings=timings,
                log_sink=logs,
                token=lambda: clock.token(TOKEN_BYTES),
                prober=Prober(),
                services=self._services,
            ),
            starts=StartGate(starts or _processors()),
            events=events,
            wall_ms=clock.wall_ms,
            restarts=restarts,
            chance=lambda: int(clock.token(CHANCE_BYTES), 16) / 256**CHANCE_BYTES,
        )
        self._routes: dict[str, Route] = {}
        self._others: set[Route] = set()
        self._numbers: dict[str, Iterator[int]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def routes(self) -> Mapping[str, Route]:
        """By plugin id."""
        return MappingProxyType(self._routes)

    def add(self, launch: Launch) -> Route:
        """The route to a plugin; nothing is started. Call it on the loop.

        Raises `ValueError` for a second plugin of one id, and `WireError(not_active)` after close.
        """
        if launch.plugin in self._routes:
            raise ValueError(f"the plugin {launch.plugin} is there already")
        route = self._route(launch)
        self._routes[launch.plugin] = route
        return route

    def beside(self, launch: Launch) -> Route:
        """A second route to a plugin, from another launch; it is not among `routes` until `switch`.

        For a plugin that offers something else than before: whoever is bound to what it offered
        needs the old route for as long as that lasts. Raises as `add` does.
        """
        if launch.plugin not in self._routes:
            raise ValueError(f"there is no plugin {launch.plugin}")
        route = self._route(launch)
        self._others.add(route)
        return route

    def switch(self, route: Route) -> Route:
        """Puts a route from `beside` into the place of the old one, which is returned and goes on
        until it is retired.
        """
        old = self._routes[route.launch.plugin]
        self._routes[route.launch.plugin] = route
        self._others.remove(route)
        self._others.add(old)
        return old

    def retire(self, route: Route) -> None:
        """Ends a route that is not among `routes`, and waits for nothing. Its calls in flight get
        `retire_s`.
        """
        task = asyncio.get_running_loop().create_task(route.close(self._retire_s))
        self._retiring.add(task)
        task.add_done_callback(lambda _: self._retired(route, task))

    def _route(self, launch: Launch) -> Route:
        if self._closing is not None:
            raise WireError("not_active", "the host is closed")
        numbers = self._numbers.setdefault(launch.plugin, count(1))
        return Route(launch, self._place, numbers)

    def _retired(self, route: Route, task: asyncio.Task[None]) -> None:
        self._others.discard(route)
        self._retiring.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "retiring a route failed", "exception": fault}
            )

    def offer(self, name: str, service: Service) -> None:
        """Lets plugins to which the host service `name` is granted ask for it, from now on. The
        service `secret` is always there. Raises `ValueError` for one that is.
        """
        if name == SECRET or name in self._services:
            raise ValueError(f"the service {name} is there already")
        self._services[name] = service

    async def aclose(self, drain_s: float | None = None) -> None:
        """Stops all plugins at once, those that others require after them, and removes what they
        left. Calls in flight get `drain_s`.

        Idempotent. If it is cancelled, it finishes first. Raises an `ExceptionGroup` of faults of
        this host, after everything was closed all the same.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(drain_s))
        await outlast(self._closing)
        self._closing.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _close(self, drain_s: float | None) -> None:
        ends = await asyncio.gather(
            *self._ends(drain_s),
            *(route.close(drain_s) for route in self._others),
            *self._retiring,
            return_exceptions=True,
        )
        for _ in self._folders.removing():
            await asyncio.sleep(0)
        faults = [end for end in ends if isinstance(end, Exception)]
        if faults:
            raise ExceptionGroup("closing the process host", faults)

    def _ends(self, drain_s: float | None) -> list[asyncio.Task[None]]:
        """All at the same time, but what is required ends after those that require it (REG-007).

        Only those that were added later count, so that a circle cannot keep everybody waiting.
        """
        ends: dict[str, asyncio.Task[None]] = {}

        async def end(route: Route, before: list[asyncio.Task[None]]) -> None:
            if before:
                await asyncio.wait(before)
            await route.close(drain_s)

        loop = asyncio.get_running_loop()
        for name, route in reversed(self._routes.items()):
            before = [ends[other] for other in ends if name in self._routes[other].launch.requires]
            ends[name] = loop.create_task(end(route, before))
        return list(ends.values())


def _processors() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
