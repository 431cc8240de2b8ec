"""What a kernel says of its plugins in its own document, for other processes to read (tables, store
keys): how each one is, and the answers to what was asked.

It is written anew when a plugin has become ready or has failed, a moment later, so that one commit
tells of all that happens at once; everything else, as the calls that go on, is looked at each
`LEASE_TOUCH_S` and written only if it has changed. Nobody is woken for it: an idle store is touched
by the kernel's heartbeat all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from purra.errors import PurraError
from purra.kernel import Kernel
from purra.limits import ERROR_TEXT_CHARS, LEASE_TOUCH_S
from purra_hosts.process.route import RouteStatus
from purra_hosts.process.supervisor import ProcessHost

__all__ = ["Bulletin"]

ANSWERS: Final = 8
"""Answers to other processes that the kernel's document keeps."""
GATHER_S: Final = 0.5
"""How long the first of several changes waits for the others; a plugin that falls again and again
costs no more commits than that."""
_AT_ONCE: Final = frozenset(
    {"plugin.ready", "plugin.crashed", "plugin.tainted", "plugin.unresponsive"}
)


class Bulletin:
    """Of one open application. `told` is called for each step in a plugin's life."""

    def __init__(self, host: ProcessHost, kernel: Kernel) -> None:
        self._host = host
        self._kernel = kernel
        self._since_ms = kernel.clock.wall_ms()
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._changed = anyio.Event()

    def told(self, kind: str) -> None:
        """Something happened to a plugin."""
        if kind in _AT_ONCE:
            self._changed.set()

    async def answer(self, token: str, answer: Mapping[str, Any]) -> None:
        """Publishes an answer, with how things are now. Raises what the store says."""
        self._answers[token] = answer
        while len(self._answers) > ANSWERS:
            del self._answers[next(iter(self._answers))]
        await self._kernel.describe(self.value())

    def value(self) -> dict[str, Any]:
        """What stands in the document."""
        routes = self._host.routes.items()
        return {
            "agent": self._kernel.agent.id,
            "since_ms": self._since_ms,
            "plugins": {name: _status(route.status()) for name, route in routes},
            "answers": dict(self._answers),
        }

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keeps the document true for the length of a block."""
        task = asyncio.get_running_loop().create_task(self._keep(), name="purra:bulletin")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    async def _keep(self) -> None:
        written = self._kernel.about
        while True:
            with anyio.move_on_after(LEASE_TOUCH_S):
                await self._changed.wait()
                await anyio.sleep(GATHER_S)
            self._changed = anyio.Event()
            value = self.value()
            if value == written:
                continue
            # The store may be the plugin that fell; then the next look tells of it.
            with contextlib.suppress(PurraError):
                await self._kernel.describe(value)
                written = value


def _status(status: RouteStatus) -> dict[str, Any]:
    error = status.last_error
    return {
        "version": status.version,
        "state": status.state,
        "reason": status.reason,
        "pid": status.pid,
        "generation": status.generation,
        "instances": status.instances,
        "isolation": dict(status.isolation) if status.instance is not None else {},
        "calls": status.calls,
        "queued": status.queued,
        "restarts": status.restarts,
        "ended": status.ended,
        "failed": status.failed,
        "mean_ms": status.mean_ms,
        "longest_ms": status.longest_ms,
        "started_at_ms": status.started_at_ms,
        "last_error": error and {"code": error.code, "message": error.message[:ERROR_TEXT_CHARS]},
    }
