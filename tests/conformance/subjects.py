"""What the suites run on: the same behaviours, reached in every way that the kernel can reach them.

A suite asks a subject for an adapter by the name of its behaviour (`puppets`); each way of reaching
an adapter is one subject, and every test of a suite holds for all of them (PLG-19).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from purra.contracts.context import Context
from purra.contracts.model import Model
from purra.contracts.policy import Policy
from purra.contracts.tool import Tools
from purra_bridge.ports.channel import Channel
from purra_bridge.ports.context import HostedContext
from purra_bridge.ports.model import HostedModel
from purra_bridge.ports.policy import HostedPolicy
from purra_bridge.ports.tool import HostedTools
from purra_hosts.launch import Launch
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings
from tests.conformance import local, puppets

__all__ = ["SUBJECTS", "Subject"]

HERE = Path(__file__).parent


class Subject(Protocol):
    """A way to reach adapters."""

    hosted: bool
    """Whether a wire is in between."""

    def model(self, name: str) -> AbstractAsyncContextManager[Model]: ...

    def tools(self) -> AbstractAsyncContextManager[Tools]: ...

    def context(self, name: str) -> AbstractAsyncContextManager[Context]: ...

    def policy(self, name: str) -> AbstractAsyncContextManager[Policy]: ...


class InProcess:
    """Objects passed to the kernel."""

    hosted = False

    @asynccontextmanager
    async def model(self, name: str) -> AsyncIterator[Model]:
        yield local.make_model(name)

    @asynccontextmanager
    async def tools(self) -> AsyncIterator[Tools]:
        yield local.make_tools()

    @asynccontextmanager
    async def context(self, name: str) -> AsyncIterator[Context]:
        yield local.make_context(name)

    @asynccontextmanager
    async def policy(self, name: str) -> AsyncIterator[Policy]:
        yield local.make_policy(name)


class InProcesses:
    """Plugins in subprocesses, behind the process host and the ports."""

    hosted = True

    @asynccontextmanager
    async def model(self, name: str) -> AsyncIterator[Model]:
        async with _route("model") as route:
            yield HostedModel(route, name)

    @asynccontextmanager
    async def tools(self) -> AsyncIterator[Tools]:
        async with _route("tool") as route:
            yield HostedTools(route, await local.make_tools().catalog())

    @asynccontextmanager
    async def context(self, name: str) -> AsyncIterator[Context]:
        async with _route("context") as route:
            yield HostedContext(route, name)

    @asynccontextmanager
    async def policy(self, name: str) -> AsyncIterator[Policy]:
        async with _route("policy") as route:
            yield HostedPolicy(route, name)


@asynccontextmanager
async def _route(kind: str) -> AsyncIterator[Channel]:
    """The plugin of `puppets` that offers adapters of `kind`, on its own host."""
    offers = getattr(puppets, f"{kind}_plugin").offers()
    launch = Launch(
        plugin="puppets",
        version="0",
        folder=HERE,
        manifest_path=HERE / "puppets.py",
        manifest_sha256=hashlib.sha256((HERE / "puppets.py").read_bytes()).hexdigest(),
        offers=tuple((offer["kind"], offer["name"]) for offer in offers),
        python=sys.executable,
        entry=f"puppets:{kind}_plugin",
        sys_path=(str(HERE),),
    )
    async with ProcessHost(timings=Timings(drain_s=0.2, exit_s=0.5)) as host:
        yield host.add(launch)


SUBJECTS: dict[str, Subject] = {"in-process": InProcess(), "process": InProcesses()}
