"""From a host manifest to a kernel with its plugins: the one place that knows both.

    async with open_kernel("manifests/quickstart.toml") as kernel:
        run = await kernel.submit("What does the protocol say about cancel?")

A plugin is started by the first call to it, unless its manifest says `eager`: eager ones are ready
before `open_kernel` gives the kernel, and one that cannot start is an error there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from purra.adapters import local_policy, local_tools
from purra.contracts.policy import Policy
from purra.contracts.tool import Tools
from purra.errors import PurraError
from purra.journal.events import Fact
from purra.kernel import Kernel
from purra.manifest.host import Caller
from purra.manifest.placeholders import Parameter
from purra.runs.result import Result
from purra_bridge.ports.faults import adapter_error
from purra_bridge.wire.errors import WireError
from purra_hosts.app.bulletin import Bulletin
from purra_hosts.app.plan import Plan, make_plan
from purra_hosts.app.ports import adapters_of, store_of
from purra_hosts.app.reloading import Reloaded, Reloader
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.restarts import RestartPolicy

__all__ = [
    "Application",
    "Own",
    "Watchers",
    "make_state",
    "open_application",
    "open_kernel",
    "run_sync",
]

Params = Mapping[str, Parameter | os.PathLike[str]] | None
"""Values for a manifest's parameters, by name; a path stands for its text."""
STATE_MODE = 0o700
"""Access to the state folder: journals hold what people wrote."""


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who looks on. Both are called on the event loop and must not block.

    `logs`: a record per line that a plugin prints or logs. `events`: kind and data of each step in
    a plugin's life (`plugin.starting`, `plugin.ready`, ...).
    """

    logs: Callable[[dict[str, Any]], None] | None = None
    events: Callable[[str, Mapping[str, Any]], None] | None = None


@dataclass(frozen=True, slots=True)
class Own:
    """Objects of the embedding program, beside the plugins of a manifest."""

    tools: tuple[Tools | Callable[..., Any], ...] = ()
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """An open kernel, the host that runs its plugins, and the plan that both follow."""

    kernel: Kernel
    plan: Plan
    routes: Mapping[str, Route] = field(repr=False)
    reloader: Reloader = field(repr=False)

    async def reload(self, plugin: str) -> Reloaded:
        """Replaces a running plugin by what its manifests say now. Runs lose no call.

        Raises `PurraError` of `make_plan`, `plugin_not_found`, `unsupported`, and `AdapterError` if
        the new one does not start; then the old one goes on serving (SHD-007).
        """
        return await self.reloader.reload(plugin)


@asynccontextmanager
async def open_kernel(
    manifest: str | os.PathLike[str],
    *,
    tools: Iterable[Tools | Callable[..., Any]] = (),
    policy: Policy | None = None,
    params: Params = None,
    state: str | os.PathLike[str] | None = None,
    watchers: Watchers | None = None,
) -> AsyncIterator[Kernel]:
    """A kernel as the host manifest describes it, for the length of an `async with` block.

    `tools`, `policy`: objects of the calling program beside the manifest's plugins, as `Kernel`
    takes them; a run that was started with them cannot be resumed without them. `params`: values
    for declared parameters; relative paths in them are relative to the current folder. `state`: the
    folder that `{state}` stands for. When the block ends, every plugin process is gone; runs that
    were going on are left as they are, to be resumed.

    Raises `PurraError` before anything started (see `make_plan`; `invalid_argument` for objects
    that are no adapters, and for a policy beside the manifest's own), or if an eager plugin or the
    store cannot start.
    """
    texts = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in (params or {}).items()
    }
    caller = Caller(params=texts, state=None if state is None else Path(state))
    plan = make_plan(Path(manifest), caller)
    async with open_application(plan, Own(tuple(tools), policy), watchers=watchers) as application:
        yield application.kernel


@asynccontextmanager
async def open_application(
    plan: Plan,
    own: Own | None = None,
    *,
    watchers: Watchers | None = None,
    start_all: bool = False,
) -> AsyncIterator[Application]:
    """Carries a plan out. The kernel of a plan for the store alone can look at runs and end them.

    `own`: what the embedding program brings. `start_all`: not only eager plugins are ready before
    the kernel is given, so that a set-up that does not work is known before there is a run.

    Raises `PurraError`: the host's code, or `plugin_broken`, if one of those cannot start;
    `invalid_argument` if the state folder cannot be made.
    """
    watchers = watchers or Watchers()
    own = own or Own()
    _check_own(own, plan)
    make_state(plan)
    async with AsyncExitStack() as stack:
        told = _Told(watchers.events)
        host = _process_host(watchers.logs, told.event)
        await stack.enter_async_context(host)
        routes = {name: host.add(launch) for name, launch in plan.launches.items()}
        await _start(routes, start_all)
        kernel = Kernel.of(
            adapters_of(plan.match, routes),
            store_of(plan.match, routes),
            plan.host.agent,
            tools=own.tools,
            policy=own.policy,
        )
        bulletin = Bulletin(host, kernel)
        reloader = Reloader(plan, host, kernel, bulletin)
        if plan.match.model is not None:
            kernel.about = bulletin.value()
            told.bulletin = bulletin
        told.kernel = await stack.enter_async_context(kernel)
        if plan.match.model is not None:
            await stack.enter_async_context(bulletin.kept())
            await stack.enter_async_context(reloader.listening())
        yield Application(kernel, plan, host.routes, reloader)


def run_sync(
    source: str | os.PathLike[str] | Kernel,
    prompt: str,
    *,
    session: str = "",
    params: Params = None,
    state: str | os.PathLike[str] | None = None,
) -> Result:
    """One run from beginning to end, for scripts: opens, submits, waits, closes.

    `source`: a host manifest, or a kernel that is not open yet; `params` and `state` are for a
    manifest.

    Raises what `open_kernel` and `Kernel.submit` raise, and `PurraError(invalid_argument)` where an
    event loop runs already; a run that fails is a `Result`.
    """
    if _in_a_loop():
        what = "an event loop runs in this thread already"
        hint = "in a notebook or a coroutine: `async with purra.open_kernel(…) as kernel:`"
        raise PurraError("invalid_argument", what, where="run_sync", hint=hint)
    if not isinstance(source, Kernel):
        opening: AbstractAsyncContextManager[Kernel] = open_kernel(
            source, params=params, state=state
        )
    elif params is None and state is None:
        opening = source
    else:
        what = "params and state are for a manifest"
        raise PurraError("invalid_argument", what, where="run_sync")

    async def main() -> Result:
        async with opening as kernel:
            run = await kernel.submit(prompt, session=session)
            return await run.wait()

    return anyio.run(main)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def make_state(plan: Plan) -> None:
    """The state folder, if the manifest names it: grants of what is not there grant nothing.

    Raises `PurraError(invalid_argument)` if it cannot be made.
    """
    if not plan.host.uses_state:
        return
    folder = plan.host.state
    try:
        folder.mkdir(mode=STATE_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise PurraError(
            "invalid_argument",
            f"the state folder {folder} cannot be made: {error.strerror}",
            hint="name another one with --state",
        ) from None


def _check_own(own: Own, plan: Plan) -> None:
    """Before anything starts. Raises `PurraError`: what `Kernel` raises for such objects, and
    `invalid_argument` for a second policy.
    """
    local_tools(own.tools)
    if own.policy is None:
        return
    local_policy(own.policy)
    if plan.host.adapters.policy is not None:
        what = f"{plan.host.path} names a policy too ({plan.host.adapters.policy})"
        hint = "leave one of them out: only one policy decides"
        raise PurraError("invalid_argument", what, where="policy", hint=hint)


class _Told:
    """Tells of each step in a plugin's life: the watcher, the bulletin, the journals of runs."""

    def __init__(self, watcher: Callable[[str, Mapping[str, Any]], None] | None) -> None:
        self.kernel: Kernel | None = None
        self.bulletin: Bulletin | None = None
        self._watcher = watcher

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        if self._watcher is not None:
            self._watcher(kind, data)
        if self.bulletin is not None:
            self.bulletin.told(kind)
        journaled = _JOURNALED.get(kind)
        if self.kernel is None or journaled is None:
            return
        kept = {name: data[name] for name in ("plugin", "generation")}
        if journaled == "plugin.denied":
            # Of the run whose call asked, and of no other.
            kept |= {name: data[name] for name in ("grant", "declared", "count")}
            self.kernel.note(Fact(journaled, kept), data["trace"].get("run", ""))
            return
        extra = {"pid": data["pid"]} if journaled == "plugin.started" else {"reason": kind}
        self.kernel.note(Fact(journaled, {**kept, **extra}))


_JOURNALED: Final = {
    "plugin.ready": "plugin.started",
    "plugin.crashed": "plugin.stopped",
    "plugin.tainted": "plugin.stopped",
    "plugin.unresponsive": "plugin.stopped",
    "plugin.denied": "plugin.denied",
}
"""Host event -> event in the journals: what may explain a run's own troubles later."""


def _process_host(
    logs: Callable[[dict[str, Any]], None] | None, events: Callable[[str, Mapping[str, Any]], None]
) -> ProcessHost:
    try:
        return ProcessHost(logs=logs, events=events, restarts=RestartPolicy())
    except WireError as error:
        raise adapter_error(error) from error


async def _start(routes: Mapping[str, Route], start_all: bool) -> None:
    """All at once, but each after those that it requires (REG-007); the first failure, in start
    order, is the error.
    """
    failures: dict[str, WireError] = {}
    wanted = {
        name: route
        for name, route in routes.items()
        if start_all or route.launch.activation == "eager"
    }
    over = {name: anyio.Event() for name in wanted}

    async def start(name: str, route: Route) -> None:
        for required in route.launch.requires:
            if required in over:
                await over[required].wait()
        missing = [failures[other] for other in route.launch.requires if other in failures]
        try:
            if missing:
                raise missing[0]
            await route.start()
        except WireError as error:
            failures[name] = error
        over[name].set()

    async with anyio.create_task_group() as tasks:
        for name, route in wanted.items():
            tasks.start_soon(partial(start, name, route))
    for name in routes:
        if name in failures:
            raise _cannot_start(name, failures[name])


def _cannot_start(name: str, error: WireError) -> PurraError:
    """What the host found wrong keeps its code; what the plugin did makes it a broken plugin."""
    code = error.code if error.origin == "host" else "plugin_broken"
    tail = str(error.detail.get("stderr", "")).strip().splitlines()[-1:]
    said = f"; it said: {tail[0]}" if tail and tail[0] not in error.message else ""
    return PurraError(
        code,
        f"it does not start: {error.message}{said}",
        where=f"plugin {name}",
        hint="`purra plugins doctor --manifest FILE` shows more",
        detail=error.detail,
    )
