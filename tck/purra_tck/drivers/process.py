"""The driver of the process host, which runs in the kit's own process.

It hands the host what a kernel would: strict, frozen arguments (`purra.values`), a launch that was
resolved. The clock of the loop is the host's clock, so it is moved here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from purra.contracts.call import CallContext, Stop
from purra.contracts.clock import SystemClock
from purra.contracts.policy import PolicyRequest
from purra.contracts.tool import declare
from purra.errors import AdapterError, PurraError
from purra.values import MAX_DEPTH, freeze
from purra_bridge.ports.channel import Request
from purra_bridge.ports.policy import HostedPolicy
from purra_bridge.ports.tool import HostedTools
from purra_bridge.wire.errors import WireError
from purra_hosts.process import callbacks
from purra_hosts.process.route import Route
from purra_hosts.process.states import ANNOUNCED
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings
from purra_hosts.restarts import RestartPolicy
from purra_tck.drivers.governed import HeldRun, effects_under, held
from purra_tck.drivers.host import Ask, Asked, Event, PluginSpec, Settings, Status
from purra_tck.drivers.launches import launch_of
from purra_tck.drivers.registry import KernelRegistry, start_order
from purra_tck.drivers.specs import to_text

__all__ = ["ProcessDriver"]

STEP_S: Final = 0.25
"""The clock is moved in steps: a host may excuse a plugin for time that its own loop lost."""
CLOSE_S: Final = 1.0
CLOSE_STEP_S: Final = 0.005
CLOSE_JUMP_S: Final = 20.0
PASSES: Final = 4
"""Passes of the loop after each step, so that one timer can set the next."""
_ASKED: Final = PolicyRequest("run", "session", "agent", "tool", "pure", "tool", {})
_STATES: Final = {kind: state.name for state, kind in ANNOUNCED.items()}


class _Clock:
    """The time of one loop. It is moved on, never back: what waits for it must not wait long."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


def _clock_of(loop: asyncio.AbstractEventLoop) -> _Clock:
    clock: _Clock = vars(loop).setdefault("time", _Clock())
    return clock


class ProcessDriver:
    """Implements `purra_tck.drivers.host.HostDriver`."""

    kind = "process"
    declares = frozenset(
        {
            "apart",
            "processes",
            "hello",
            "clock",
            "inside",
            "heartbeat",
            "restarts",
            "reload",
            "callbacks",
            "approvals",
            "idle",
        }
    )

    def __init__(self) -> None:
        self.pid = os.getpid()

    def registry(self, released: Callable[[str, Any], None]) -> KernelRegistry:
        """The kernel's, with nothing in it."""
        return KernelRegistry(released)

    def apart(self, spec: PluginSpec) -> tuple[str, ...]:
        """A program that embeds the host."""
        return (sys.executable, "-m", "purra_tck.drivers.apart", to_text(spec))

    def start_order(self, folders: Sequence[Path]) -> tuple[str, ...]:
        """As assembly decides it."""
        return start_order(folders)

    @asynccontextmanager
    async def host(self, settings: Settings) -> AsyncIterator[_Host]:
        """A new host; what it did not catch is kept in its `faults`."""
        host = _Host(settings)
        try:
            yield host
        finally:
            await host.finish()


class _Host:
    """Implements `purra_tck.drivers.host.Host`."""

    def __init__(self, settings: Settings) -> None:
        self.events: list[Event] = []
        self.audits: list[Mapping[str, Any]] = []
        self.logs: list[Mapping[str, Any]] = []
        self.faults: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._handler = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._on_fault)
        self._listener = settings.listener
        self._clock = _clock_of(self._loop)
        self._wall_s = 0.0
        self._real = (time.time, time.time_ns)
        names = {field.name for field in fields(Timings)} & {f.name for f in fields(Settings)}
        policy = settings.restarts
        self._host = ProcessHost(
            timings=Timings(**{name: getattr(settings, name) for name in names}),
            clock=SystemClock(),
            logs=self.logs.append,
            events=self._on_event,
            starts=settings.starts,
            restarts=None
            if policy is None
            else RestartPolicy(**{f.name: getattr(policy, f.name) for f in fields(policy)}),
        )

    async def open(self, spec: PluginSpec) -> _Handle:
        try:
            return _Handle(self._host.add(launch_of(spec)))
        except ValueError as error:
            raise WireError("invalid_argument", str(error)) from error

    def offer(self, name: str, service: Callable[[Asked], Awaitable[Any]]) -> None:
        async def serve(asked: callbacks.Asked) -> Any:
            told = Asked(asked.plugin, asked.instance, asked.call, asked.method, asked.args)
            return await service(told)

        self._host.offer(name, serve)

    async def close(self) -> None:
        await self._host.aclose()

    async def advance(self, seconds: float) -> None:
        left_s = seconds
        while left_s > 0:
            self._clock.ahead_s += min(STEP_S, left_s)
            left_s -= STEP_S
            for _ in range(PASSES):
                await asyncio.sleep(0)

    async def set_wall(self, seconds: float) -> None:
        """Sets the machine's clock, as this process sees it, ahead by `seconds`."""
        now, now_ns = self._real
        vars(time)["time"] = lambda: now() + seconds
        vars(time)["time_ns"] = lambda: now_ns() + int(seconds * 1e9)

    async def finish(self) -> None:
        """Closes the host, and gives the loop and the time of day back. What takes long is not
        waited for: then the clock runs.
        """
        closing = asyncio.ensure_future(self._host.aclose())
        try:
            await asyncio.wait((closing,), timeout=CLOSE_S)
            while not closing.done():
                self._clock.ahead_s += CLOSE_JUMP_S
                await asyncio.sleep(CLOSE_STEP_S)
            closing.result()
        finally:
            vars(time)["time"], vars(time)["time_ns"] = self._real
            self._loop.set_exception_handler(self._handler)

    def _on_event(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind not in _STATES:
            self.audits.append({"kind": kind, **data})
            return
        event = Event(
            data["plugin"],
            data["instance"],
            data["generation"],
            _STATES[kind],
            data.get("code", ""),
            data.get("message", ""),
            self._loop.time(),
        )
        self.events.append(event)
        if self._listener is not None:
            self._listener(event)

    def _on_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.faults.append(f"{context.get('message', '')}: {error!r}"[:400])


class _Handle:
    """Implements `purra_tck.drivers.host.Handle`."""

    def __init__(self, route: Route) -> None:
        self.route = route

    async def start(self) -> None:
        await self.route.start()

    async def stop(self, drain_s: float | None = None) -> None:
        await self.route.stop(drain_s)

    async def reload(self, spec: PluginSpec | None = None) -> None:
        await self.route.reload(None if spec is None else launch_of(spec))

    async def status(self) -> Status:
        found = self.route.status()
        return Status(
            state=found.state.upper(),
            reason=found.reason,
            pid=found.pid,
            instance=found.instance,
            generation=found.generation,
            calls=found.calls,
            queued=found.queued,
            isolation=found.isolation,
            limits=found.limits,
            ignored=getattr(found, "ignored", None),
        )

    async def call(self, ask: Ask, on_item: Callable[[Any], None] | None = None) -> Any:
        return await self.route.call(_request(ask), on_item)

    def stream(self, ask: Ask) -> AsyncIterator[Any]:
        return self.route.stream(_request(ask))

    async def upload(self, ask: Ask, chunks: AsyncIterable[bytes]) -> Any:
        return await self.route.upload(_request(ask), chunks)

    async def use(self, kind: str, name: str, request: Mapping[str, Any]) -> Any:
        try:
            if kind == "policy":
                decided = await HostedPolicy(self.route, name).decide(_ASKED, CallContext())
                return {"verdict": decided.verdict, "reason": decided.reason}
            tools = HostedTools(self.route, [declare(name, "", {}, "pure")])
            found = await tools.call(name, request, CallContext())
        except AdapterError as error:
            raise WireError(
                error.code, error.message, origin=error.origin, executed=error.executed
            ) from error
        return found.value

    def held(
        self, tool: str, wanted: Sequence[Mapping[str, Any]]
    ) -> AbstractAsyncContextManager[HeldRun]:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        held_tool = declare(tool, "Acts.", schema, "world_write", approval="required")
        return held(HostedTools(self.route, [held_tool]), tool, wanted)

    async def effects_under(self, policy: str) -> int:
        return await effects_under(HostedPolicy(self.route, policy))

    async def stopping(self, ask: Ask, sent: Callable[[Callable[[], None]], None]) -> Any:
        stop = Stop()
        call = asyncio.ensure_future(self.route.call(_request(ask, stop)))
        sent(stop.request)
        return await call


def _request(ask: Ask, stop: Stop | None = None) -> Request:
    return Request(
        ask.adapter,
        ask.method,
        _strict(ask.args),
        timeout_s=ask.timeout_s,
        window_bytes=ask.window_bytes,
        key=ask.key,
        trace=ask.trace,
        exclusive=ask.exclusive,
        stop=stop,
    )


def _strict(value: Any) -> Any:
    """What a kernel does with every value before a host sees it. Bytes are the bridge's own: they
    pass, and what is around them is looked at all the same.
    """
    try:
        try:
            return freeze(value)
        except PurraError:
            freeze(_bytes_as_text(value, 0))
            return value
    except PurraError as error:
        raise WireError("invalid_argument", error.message, executed="no") from error


def _bytes_as_text(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return value
    if type(value) is dict:
        return {key: _bytes_as_text(item, depth + 1) for key, item in value.items()}
    if type(value) is list:
        return [_bytes_as_text(item, depth + 1) for item in value]
    return "" if type(value) is bytes else value
