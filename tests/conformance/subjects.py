"""What the suites run on: the same behaviours, reached in every way that the kernel can reach them.

A suite asks a subject for an adapter by the name of its behaviour (`puppets`); each way of reaching
an adapter is one subject, and every test of a suite holds for all of them (PLG-19).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from purra.contracts.context import Context
from purra.contracts.model import Model
from purra.contracts.policy import Policy
from purra.contracts.tool import Tools
from tests.conformance import local

__all__ = ["SUBJECTS", "Subject"]


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


SUBJECTS: dict[str, Subject] = {"in-process": InProcess()}
