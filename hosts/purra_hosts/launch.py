"""What a host needs to know to run one plugin: resolved, absolute, trusted.

Assembly builds a `Launch` from a plugin manifest and a host manifest; hosts read it and look at no
manifest themselves. So a host can be driven by tests and by the kit without any file but the
plugin's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

__all__ = [
    "INFLIGHT",
    "MAX_FRAME_BYTES",
    "NOFILE",
    "OUTPUT_BYTES",
    "QUEUE",
    "Activation",
    "Isolation",
    "Kind",
    "Launch",
    "LaunchLimits",
]

INFLIGHT: Final = 64
"""Calls that one instance works on at once, unless its manifest or its HELLO says fewer."""
QUEUE: Final = 256
"""Calls that wait per plugin; one more is `overloaded`. Enough for a burst, small enough that
waiting callers notice (protocol, defaults)."""
MAX_FRAME_BYTES: Final = 1024 * 1024
"""Body of one frame that the host offers to take (protocol, frame)."""
NOFILE: Final = 256
"""Open descriptors of one worker (RLIMIT_NOFILE). asyncio needs 8."""

OUTPUT_BYTES: Final = 1024 * 1024 * 1024
"""Items of one call. A bound for what has gone wrong, not for what is large: windows bound memory,
and an endless stream that reaches it is opened again by whoever reads it."""

Activation = Literal["on-demand", "eager"]
Kind = Literal["process", "inproc"]


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """Bounds of one instance and of its route. Counts are bare, sizes in bytes.

    `memory_bytes`: private memory that is written to (RLIMIT_DATA); None = unlimited. A thread's
    stack counts whole, 8 MiB.
    `instances`: how many may run at once; more than one is started when a call finds no room.
    `output_bytes`: what one call may send as items. `cpu_s`: processor time of one instance's whole
    life (RLIMIT_CPU), None = unlimited.
    """

    inflight: int = INFLIGHT
    threads: int = 1
    queue: int = QUEUE
    max_frame_bytes: int = MAX_FRAME_BYTES
    nofile: int = NOFILE
    memory_bytes: int | None = None
    instances: int = 1
    output_bytes: int = OUTPUT_BYTES
    cpu_s: int | None = None


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the host manifest wants: a level (`none`, `standard`, `strict`), and whether a start
    without it is refused (`isolation_unavailable`) or only says what was achieved.
    """

    level: str = "standard"
    require: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One plugin, ready to be started as often as needed.

    `plugin`, `version`, `manifest_sha256` (64 hex digits): what HELLO must say. `entry`:
    `module:attribute`, run by `python` through the bootstrap; or `command`: an argument list, never
    a shell; exactly one of both. `folder`: where the manifest lies; relative paths in `command` are
    below it. `offers`: (kind, name) of every static `[[provides]]`, which READY must equal.
    `config`, `grants`, `secrets`: strict values that travel in WELCOME, never by argument or
    environment. `env`: variables granted by name, beside the host's allow-list. `sys_path`: what
    the worker may import from, after the staged SDK. `python`: the interpreter's absolute path.
    `idle_s`: 0 = never stopped for being idle. `services`: host services that the manifest declares
    (`secret:NAME`, ...); those that are granted stand in `grants["host"]`. `kind`: `process`, or
    `inproc` for a thread of this process. `requires`: plugins that start before it and stop after
    it.
    """

    plugin: str
    version: str
    folder: Path
    manifest_path: Path
    manifest_sha256: str
    offers: tuple[tuple[str, str], ...]
    python: str
    entry: str | None = None
    command: tuple[str, ...] | None = None
    config: Mapping[str, Any] = field(default_factory=_nothing)
    grants: Mapping[str, Any] = field(default_factory=_nothing)
    secrets: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    env: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    sys_path: tuple[str, ...] = ()
    limits: LaunchLimits = LaunchLimits()
    isolation: Isolation = Isolation()
    activation: Activation = "on-demand"
    idle_s: float = 0.0
    services: tuple[str, ...] = ()
    kind: Kind = "process"
    requires: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.entry is None) == (self.command is None):
            raise ValueError(f"{self.plugin}: a launch has either an entry or a command")
        if self.command is not None and not self.command:
            raise ValueError(f"{self.plugin}: an empty command")

    @property
    def label(self) -> str:
        """`id@version`, as in `PURRA_PLUGIN`."""
        return f"{self.plugin}@{self.version}"
