"""What a plugin asks of its host in the middle of a call: judged before anything runs (CAP-001,
CAP-002).

A callback names a service (`secret`, ...) and belongs to a call that the host has made: the wire
refuses one without a living parent, so a plugin can name neither another plugin nor somebody else's
call (CAP-005). What may be asked is decided by what the operator has granted to this plugin, as it
was when the instance started (CAP-004); what it says of itself in the callback decides nothing.

A callback runs in a task of its own, with the deadline of its parent at most, and ends with it. It
uses no thread and none of the plugin's slots, so a plugin whose handlers all wait for the host can
still be answered (H29). A denial costs the callback and nothing else. It is told to the event sink,
at once the first time and then at most once a second, with a count: a plugin that asks in a loop
must not flood the audit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from purra_bridge.wire import events as said
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.session import Session
from purra_hosts.launch import Launch
from purra_hosts.process.alarm import NEVER
from purra_hosts.process.calls import DEPTH, Call
from purra_hosts.process.pump import Pump

__all__ = ["DEPTH_MAX", "SECRET", "Asked", "Callbacks", "Service"]

SECRET: Final = "secret"
"""The service that every host has: `get {name}` gives `{value}`, for granted `secret:NAME`."""
DEPTH_MAX: Final = 8
"""Callbacks inside each other: a plugin asks, and what it asked for calls a plugin that asks."""
AUDIT_S: Final = 1.0
"""Denials of one kind are told at most this often."""
AUDITED: Final = 32
"""Kinds of denials told apart for one instance; the plugin chooses their names."""
NAME_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Asked:
    """One callback that is granted. `plugin`, `instance` and `call` (the parent's id) are the
    host's own knowledge; `args` is what the plugin says. `trace` is the parent's.
    """

    plugin: str
    instance: str
    call: int
    method: str
    args: Any
    trace: Mapping[str, str]


Service = Callable[[Asked], Awaitable[Any]]
"""Answers with a strict value, or raises `WireError`. Cancelled when the parent ends."""


class CallbacksOwner(Protocol):
    """The instance."""

    @property
    def launch(self) -> Launch: ...

    @property
    def id(self) -> str: ...

    def open_call(self, call_id: int) -> Call | None:
        """The call of ours that has this id."""

    def on_denied(self, data: Mapping[str, Any], text: str) -> None:
        """A plugin asked for what it may not have. `data` is for audits, `text` for its author."""


class _Denials:
    __slots__ = ("count", "told_s")

    def __init__(self) -> None:
        self.count = 0
        self.told_s = -NEVER


class Callbacks:
    """The callbacks of one instance."""

    def __init__(
        self, owner: CallbacksOwner, session: Session, pump: Pump, services: Mapping[str, Service]
    ) -> None:
        self._owner = owner
        self._session = session
        self._pump = pump
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._denials: dict[str, _Denials] = {}

    def called(self, event: said.Called) -> None:
        """A CALL of the plugin."""
        grant = _grant_of(event)
        if grant not in self._owner.launch.grants.get("host", ()):
            self._deny(event, grant)
            return
        if event.adapter == SECRET and event.method == "get":
            self._give_secret(event)
            return
        parent = self._owner.open_call(event.parent or 0)
        if parent is not None and parent.depth >= DEPTH_MAX:
            what = f"{DEPTH_MAX} callbacks stand inside each other already"
            detail = {"limit": "callback_depth"}
            self._session.error(
                event.id, WireError("resource_exhausted", what, origin="host", detail=detail)
            )
            return
        service = self._services.get(event.adapter)
        if service is None:
            what = f"this host has no {event.adapter}.{event.method}"
            self._session.error(event.id, WireError("unimplemented", what, origin="host"))
            return
        task = self._loop.create_task(self._serve(event, service, parent))
        self._tasks[event.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(event.id, None))

    def cancelled(self, event: said.Cancelled) -> None:
        """The plugin gave a callback up, or its parent has ended. Also comes at the very end."""
        task = self._tasks.get(event.id)
        if task is not None:
            task.cancel(event.reason)

    def stop(self) -> None:
        """The channel is over: nobody waits for an answer."""
        for task in self._tasks.values():
            task.cancel("parent_gone")

    async def close(self) -> None:
        """As `stop`; none is left when this returns."""
        self.stop()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    def _give_secret(self, event: said.Called) -> None:
        name = event.args["name"]
        value = self._owner.launch.secrets.get(name)
        if value is None:
            what = f"the secret {name} is granted and has no value"
            self._session.error(event.id, WireError("not_found", what, origin="host"))
        else:
            self._session.result(event.id, {"value": value})

    async def _serve(self, event: said.Called, service: Service, parent: Call | None) -> None:
        DEPTH.set(1 if parent is None else parent.depth + 1)
        deadline_s = NEVER if parent is None else parent.deadline_s
        if event.deadline_ms is not None:
            deadline_s = min(deadline_s, self._loop.time() + event.deadline_ms / 1000)
        asked = Asked(
            self._owner.launch.plugin,
            self._owner.id,
            event.parent or 0,
            event.method,
            event.args,
            {} if parent is None else parent.request.trace,
        )
        try:
            async with asyncio.timeout_at(None if deadline_s == NEVER else deadline_s):
                value = await service(asked)
            self._session.result(event.id, value)
        except TimeoutError:
            late = "the host's answer took longer than the call has"
            self._fail(event, WireError("deadline_exceeded", late))
        except WireError as error:
            self._fail(event, error)
        except asyncio.CancelledError as stopped:
            code = "parent_gone" if "parent_gone" in stopped.args else "cancelled"
            self._fail(event, WireError(code, "the call that asked has ended", executed="maybe"))
        except Exception as fault:  # a service's fault costs its callback only
            what = f"{event.adapter}.{event.method} failed: {type(fault).__name__}"
            self._fail(event, WireError("internal", what, origin="host"))
            self._loop.call_exception_handler({"message": what, "exception": fault})
        self._pump.kick()

    def _fail(self, event: said.Called, error: WireError) -> None:
        self._session.error(event.id, error)

    def _deny(self, event: said.Called, grant: str) -> None:
        launch = self._owner.launch
        shown = grant[:NAME_CHARS]
        if grant in launch.services:
            kind, _, name = shown.partition(":")
            where = f"secrets.{name}" if kind == SECRET else "grants.host"
            what = f"{shown} is not granted; the operator grants it in plugins.{launch.plugin}."
            what += where
        else:
            what = f"{shown} is not among the plugin's [capabilities] host"
        detail = {"grant": shown, "declared": grant in launch.services}
        self._session.error(event.id, WireError("capability_denied", what, detail=detail))
        parent = self._owner.open_call(event.parent or 0)
        trace = {} if parent is None else dict(parent.request.trace)
        self._audit(shown, {**detail, "call": event.parent, "trace": trace}, what)

    def _audit(self, grant: str, data: Mapping[str, Any], text: str) -> None:
        if grant not in self._denials and len(self._denials) >= AUDITED:
            grant = "..."
        kept = self._denials.setdefault(grant, _Denials())
        kept.count += 1
        now_s = self._loop.time()
        if now_s >= kept.told_s + AUDIT_S:
            count, kept.count, kept.told_s = kept.count, 0, now_s
            self._owner.on_denied({**data, "grant": grant, "count": count}, text)


def _grant_of(event: said.Called) -> str:
    """What must be granted for this: `secret:NAME`, else the service's own name."""
    if event.adapter != SECRET:
        return event.adapter
    name = event.args.get("name") if type(event.args) is dict else None
    return f"{SECRET}:{name}" if type(name) is str else f"{SECRET}:"
