"""What the kit needs of a host, whoever wrote it.

A driver opens hosts; a host opens plugins, which lie as a folder with a manifest; a plugin is held
by a handle. The driver only acts and reports: it never sees what a check expects.

Errors are `purra_bridge.wire.errors.WireError`, with the codes of the specification. States are the
words of chapter 1 (`READY`, `DRAINING`, ...) where there is an instance, else `STOPPED`, `DOWN`,
`BACKOFF` or `QUARANTINED`.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from purra_tck.drivers.registry import RegistryDriver

__all__ = [
    "CAPABILITIES",
    "Ask",
    "Asked",
    "Event",
    "Handle",
    "Held",
    "Host",
    "HostDriver",
    "PluginSpec",
    "Restarts",
    "Settings",
    "Status",
]

CAPABILITIES: Final = (
    "processes",  # a plugin is a process: it can crash and be killed, and its output is captured
    "hello",  # a plugin says HELLO itself
    "clock",  # the kit moves the host's clock (`Host.advance`)
    "inside",  # the host runs in the kit's process: its memory, descriptors and tasks can be read
    "heartbeat",
    "restarts",
    "reload",
    "callbacks",
    "idle",
    "approvals",  # a kernel goes with the host, in which a person may have to approve a call
    "stdio",
    "apart",  # it can be run by a program of its own (`HostDriver.apart`), which the kit may kill
)
"""What a driver may declare. A rule about something that is not declared is n/a, or untestable."""


@dataclass(frozen=True, slots=True)
class Event:
    """One announced step of an instance. `state`: a word of chapter 1; `code`: why it failed;
    `at_s`: when, by the host's clock.
    """

    plugin: str
    instance: str
    generation: int
    state: str
    code: str = ""
    message: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Restarts:
    """How failures are answered; the words of clause 7.4."""

    most: int = 3
    window_s: float = 60.0
    first_s: float = 0.2
    longest_s: float = 30.0
    jitter: float = 0.25
    healthy_s: float = 60.0
    quarantine_s: float = 30.0
    longest_quarantine_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How long the host waits for what, in seconds: short where a check waits for it to pass, long
    where it would only be a false alarm on a slow machine. The names are those of chapter 12 and 6.

    `restarts`: None = what has failed stays down. `starts`: how many instances start at once.
    `listener`: is told each event, in the middle of the step, and may raise; needs `inside`.
    """

    hello_s: float = 10.0
    ready_s: float = 10.0
    ready_longest_s: float = 20.0
    grace_s: float = 0.25
    drain_s: float = 0.25
    exit_s: float = 0.25
    term_s: float = 0.25
    kill_s: float = 5.0
    ping_s: float = 5.0
    unresponsive_s: float = 20.0
    frame_s: float = 20.0
    retire_s: float = 5.0
    restarts: Restarts | None = None
    starts: int = 4
    listener: Callable[[Event], None] | None = None


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A plugin as the kit wants it to be run. `folder` holds `purra-plugin.toml`, which says the
    same. `kind`: `process`, or `inproc` for a thread of the host's process.

    `command`: `{python}` stands for an interpreter; or `entry`, module:attribute. `offers`: (kind,
    name). `limits`: `inflight`, `queue`, `threads`, `instances`, `max_frame_bytes`, `output_bytes`,
    `nofile`, `memory_bytes`, `cpu_s`. `requires`: version specifiers of other plugins. `services`:
    host services that the manifest asks for; `grants["host"]` names the granted ones. `isolation`:
    the level wanted. `idle_s`: 0 = never stopped for being idle.
    """

    folder: Path
    kind: Literal["process", "inproc"] = "process"
    id: str = "puppet"
    version: str = "0.1.0"
    command: tuple[str, ...] = ()
    entry: str = ""
    offers: tuple[tuple[str, str], ...] = (("tool", "t"),)
    config: Mapping[str, Any] = field(default_factory=dict)
    grants: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    isolation: str = "none"
    services: tuple[str, ...] = ()
    requires: Mapping[str, str] = field(default_factory=dict)
    activation: str = "on-demand"
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a host service is told of a callback: the host's own knowledge, but for `args`."""

    plugin: str
    instance: str
    call: int
    method: str
    args: Any


@dataclass(frozen=True, slots=True)
class Ask:
    """One call. `exclusive`: it may write, so its hard time is the end of the instance."""

    args: Any = None
    adapter: str = "t"
    method: str = "call"
    timeout_s: float | None = None
    window_bytes: int = 0
    key: str = ""
    trace: Mapping[str, str] = field(default_factory=dict)
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """A plugin at one moment. `calls`: places that are taken; `queued`: calls that wait.

    `limits`: what the host says that it enforces, by name; "none" where it says that it does not.
    `ignored`: frames that were dropped and counted, by reason; None = the host does not tell.
    """

    state: str
    reason: str = ""
    pid: int | None = None
    instance: str | None = None
    generation: int = 0
    calls: int = 0
    queued: int = 0
    isolation: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    ignored: Mapping[str, int] | None = None


class Held(Protocol):
    """A run of a kernel whose model wants a hosted tool again and again, and each call of which a
    person has to approve.
    """

    async def settled(self) -> str:
        """Returns when the run waits for a person (`waiting`) or has ended: its status."""

    async def asked(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The calls that wait: their names, and the arguments that they would run with."""

    async def decide(self, call: str, decision: str, **told: Any) -> None:
        """`approve`, `reject`, or `edit` with other `arguments`. A second decision on a call may
        raise anything; it has no effect.
        """

    async def go_on(self) -> None:
        """Has the run go on as far as it can with what was decided."""


class Handle(Protocol):
    """One plugin on a host. Every method raises `WireError` for what the host refuses.

    Cancelling the task that awaits a call, or leaving its stream, is the caller's cancel.
    """

    async def start(self) -> None:
        """Returns when an instance is ready."""

    async def stop(self, drain_s: float | None = None) -> None:
        """Ends the instance in order; calls in flight get `drain_s`. Idempotent."""

    async def reload(self, spec: PluginSpec | None = None) -> None:
        """A new instance takes over from the one that is ready, with other settings if given."""

    async def status(self) -> Status:
        """How it is."""

    async def call(self, ask: Ask, on_item: Callable[[Any], None] | None = None) -> Any:
        """The value of the result."""

    def stream(self, ask: Ask) -> AsyncIterator[Any]:
        """The items; it has `aclose`, and `result` after the end."""

    async def upload(self, ask: Ask, chunks: AsyncIterable[bytes]) -> Any:
        """Sends bytes after the call, then gives the value of the result."""

    async def use(self, kind: str, name: str, request: Mapping[str, Any]) -> Any:
        """A call as a kernel makes it, so that what comes back fits the contract of `kind` (`tool`:
        `request` is the arguments; `policy`: it is ignored). The value of the answer.
        """

    def held(
        self, tool: str, wanted: Sequence[Mapping[str, Any]]
    ) -> AbstractAsyncContextManager[Held]:
        """A run that calls `tool` with each of `wanted`, one after the other. Needs `approvals`."""

    async def effects_under(self, policy: str) -> int:
        """How often a tool ran in a step that the policy of this plugin was asked about."""

    async def stopping(self, ask: Ask, sent: Callable[[Callable[[], None]], None]) -> Any:
        """A call whose answer stays welcome after a stop: `sent` gets what requests the stop."""


class Host(Protocol):
    """One host. Its lists grow while it lives."""

    @property
    def events(self) -> Sequence[Event]:
        """What was announced."""

    @property
    def audits(self) -> Sequence[Mapping[str, Any]]:
        """What was refused to plugins: `kind`, `plugin`, `instance`, `grant`."""

    @property
    def logs(self) -> Sequence[Mapping[str, Any]]:
        """Records: `plugin`, `instance`, `stream`, `level`, `text`."""

    @property
    def faults(self) -> Sequence[str]:
        """Errors that nobody caught inside the host."""

    async def open(self, spec: PluginSpec) -> Handle:
        """Makes a plugin known; starts nothing. Raises `WireError` for one that is refused."""

    def offer(self, name: str, service: Callable[[Asked], Awaitable[Any]]) -> None:
        """A host service that plugins may ask for if it is granted to them; needs `callbacks`."""

    async def close(self) -> None:
        """Stops everything. Idempotent."""

    async def advance(self, seconds: float) -> None:
        """Lets time pass for the host, at once where it declares `clock`."""

    async def set_wall(self, seconds: float) -> None:
        """Sets the time of day, as the host sees it, ahead by `seconds`; needs `clock`."""


class HostDriver(Protocol):
    """A kind of host, ready to be opened. `kind`: as in the rule table (`process`, `inproc`).

    `declares`: of `CAPABILITIES`. `pid`: the process that the host runs in.
    """

    @property
    def kind(self) -> str: ...

    @property
    def declares(self) -> frozenset[str]: ...

    @property
    def pid(self) -> int: ...

    def host(self, settings: Settings) -> AbstractAsyncContextManager[Host]:
        """A new host, closed at the end."""

    def registry(self, released: Callable[[str, Any], None]) -> RegistryDriver:
        """A new registry; `released` gets name and value of what nobody can reach any more. Needs
        `inside`.
        """

    def apart(self, spec: PluginSpec) -> Sequence[str]:
        """The command of a program that runs such a host with this plugin, and obeys what
        `purra_tck.drivers.apart` describes. Needs `apart`.
        """

    def start_order(self, folders: Sequence[Path]) -> Sequence[str]:
        """Ids in the order in which plugins are started. Raises `WireError` for a circle, or for a
        requirement that is missing or of another version.
        """
