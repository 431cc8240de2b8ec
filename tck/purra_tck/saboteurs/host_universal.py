"""Hosts that are broken in a way that has nothing to do with any one rule: they do nothing, refuse
everything, give back what they got, or are gone at once.

They hold no line of the reference host. What such a host passes is a rule that asks nothing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from purra_bridge.wire.errors import WireError
from purra_tck.drivers.host import Ask, Status
from purra_tck.drivers.process import ProcessDriver
from purra_tck.saboteurs import Saboteur
from purra_tck.subjects.host import HostSubject, subject_of

__all__ = ["SABOTEURS"]

PATIENCE_S: Final = 0.3
"""None of them will ever do anything, so nobody needs to wait for long."""
TIMEOUT_S: Final = 5.0

Act = Callable[[str, Any], Any]
"""What it does instead of a method: its name and its first argument -> the answer."""


def _nothing(_name: str, _what: Any) -> Any:
    return None


def _refuse(_name: str, _what: Any) -> Any:
    raise WireError("failed_precondition", "no")


def _echo(_name: str, what: Any) -> Any:
    return what.args if isinstance(what, Ask) else what


class _Items:
    """A stream that tells what it was asked for, once."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self._over = False
        self.result: Any = None

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        if self._over:
            raise StopAsyncIteration
        self._over = True
        return self._answer()

    async def aclose(self) -> None:
        self._over = True


class _Handle:
    """A plugin that nobody has started, and that is said to be ready."""

    def __init__(self, act: Act) -> None:
        self._act = act

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def method(*args: Any, **_: Any) -> Any:
            return self._act(name, args[0] if args else None)

        return method

    async def status(self) -> Status:
        self._act("status", None)
        return Status("READY", instance="puppet#1", generation=1)

    def stream(self, ask: Ask) -> _Items:
        return _Items(lambda: self._act("stream", ask))


class _Host:
    """Announces nothing, logs nothing, refuses nothing."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.events: list[Any] = []
        self.audits: list[Any] = []
        self.logs: list[Any] = []
        self.faults: list[str] = []

    async def open(self, spec: Any) -> _Handle:
        self._act("open", spec)
        return _Handle(self._act)

    def offer(self, name: str, service: Any) -> None:
        """Nobody will ask for it."""

    async def close(self) -> None:
        """There is nothing to stop."""

    async def advance(self, seconds: float) -> None:
        """Nothing waits for a time."""

    async def set_wall(self, seconds: float) -> None:
        """Nothing looks at the time."""


class _Driver:
    """Declares what the process host does, so that every rule of its is asked. `act` None: it is
    gone before anybody can ask.
    """

    kind = "process"
    declares = ProcessDriver.declares - {"apart"}

    def __init__(self, act: Act | None) -> None:
        self._act = act
        self.pid = os.getpid()

    @asynccontextmanager
    async def host(self, _settings: Any) -> AsyncGenerator[_Host, None]:
        if self._act is None:
            raise WireError("crashed", "the host has ended with status 3")
        yield _Host(self._act)

    def registry(self, _released: Any) -> Any:
        raise WireError("unsupported", "no registry")

    def apart(self, _spec: Any) -> Any:
        raise WireError("unsupported", "no program")

    def start_order(self, _folders: Any) -> Any:
        raise WireError("unsupported", "no order")


def _universal(name: str, act: Act | None) -> Saboteur:
    @asynccontextmanager
    async def make() -> AsyncGenerator[HostSubject, None]:
        driver: Any = _Driver(act)
        async with subject_of(driver, PATIENCE_S) as subject:
            yield subject

    return Saboteur(name, ("*",), "", make, dies="asked", timeout_s=TIMEOUT_S)


SABOTEURS: tuple[Saboteur, ...] = (
    _universal("null", _nothing),
    _universal("refuse-all", _refuse),
    _universal("echo-expected", _echo),
    _universal("crash-at-start", None),
)
