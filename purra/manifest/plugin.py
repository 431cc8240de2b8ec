"""Plugin manifests: `purra-plugin.toml` read once into types that nobody validates again.

The loader fills in every default, so that a reader of `PluginManifest` sees what holds, not what
was written: each tool is a complete `ToolSchema` with the defaults of its effect class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from purra.contracts.tool import ToolSchema, declare
from purra.errors import PurraError
from purra.gateway.schema import admit
from purra.manifest.config import ConfigKey, config_key
from purra.manifest.names import RefusedError, folded, suggest
from purra.manifest.permissions import Permissions, permissions
from purra.manifest.plugin_tables import Kind, PluginFile, ProvidesTable, memory_bytes
from purra.manifest.source import Source, read_source
from purra.values import digest, freeze

__all__ = [
    "FILE_NAME",
    "SCHEMA",
    "Command",
    "Lifecycle",
    "Limits",
    "Offer",
    "PluginManifest",
    "load_plugin",
]

FILE_NAME: Final = "purra-plugin.toml"
SCHEMA: Final = "purra.plugin/1"

_CONFIG_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z", re.ASCII)
_WANTED_PATH: Final = re.compile(r"(?:\{config\.([A-Za-z][A-Za-z0-9_]*)\}|/)([^{}]*)\Z")
_POLICY_KEYS: Final = (
    "permission",
    "idempotency",
    "concurrency",
    "approval",
    "timeout_s",
    "shared",
)
_TOOL_KEYS: Final = ("effect", "description", "input", *_POLICY_KEYS)
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Command:
    """What runs: `entry` (MODULE:ATTRIBUTE) in our worker, or `command` (arguments) by itself."""

    host: Literal["process", "inproc"]
    entry: str | None
    command: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one instance, and how many there may be. `memory_bytes` None = the host's default,
    `cpu_s` None = no bound.
    """

    inflight: int
    threads: int
    memory_bytes: int | None
    instances: int
    cpu_s: int | None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """`idle_s`: an on-demand instance stops after this time without calls."""

    activation: Literal["on-demand", "eager"]
    idle_s: float


@dataclass(frozen=True, slots=True)
class Offer:
    """One adapter that the plugin provides.

    `tool` is set for static tools. A dynamic catalog has a name prefix in `name` and the highest
    effect its tools may have in `ceiling`. `digest`: of everything declared here that a run may
    depend on (kind, name, contract, tool), for the fingerprints of runs (design, invariant 5).
    """

    kind: Kind
    name: str
    summary: str
    contract: str
    needs: tuple[str, ...]
    dynamic: bool
    ceiling: str | None
    tool: ToolSchema | None
    digest: str


@dataclass(frozen=True, slots=True)
class PluginManifest:
    """One accepted manifest. `sha256`: 64 hex digits over the bytes of the file at `path`.

    `requires`: version specifiers by plugin id. `extensions`: the `x-` tables, unread.
    """

    id: str
    version: str
    summary: str
    runs: Command
    requires: Mapping[str, str]
    config: Mapping[str, ConfigKey]
    capabilities: Permissions
    limits: Limits
    lifecycle: Lifecycle
    offers: tuple[Offer, ...]
    extensions: Mapping[str, Any]
    path: Path
    sha256: str

    def offer(self, name: str) -> Offer | None:
        """The offer of exactly that name."""
        return next((offer for offer in self.offers if offer.name == name), None)


def load_plugin(path: Path) -> PluginManifest:
    """Reads and checks the plugin manifest at `path`; runs and imports nothing (LIF-008).

    Raises `PurraError(invalid_manifest)` with file, key path and reason (PLG-01, MAN-001 to 003,
    005, 006, 008).
    """
    source = read_source(path, SCHEMA)
    file = source.parse(PluginFile)
    config = _config(source, file)
    memory = file.limits.memory
    return PluginManifest(
        id=file.id,
        version=file.version,
        summary=file.summary,
        runs=_command(source, file),
        requires=freeze(file.requires),
        config=config,
        capabilities=_capabilities(source, file, config),
        limits=Limits(
            inflight=file.limits.inflight,
            threads=file.limits.threads,
            memory_bytes=memory_bytes(memory) if memory else None,
            instances=file.limits.instances,
            cpu_s=file.limits.cpu_s,
        ),
        lifecycle=Lifecycle(file.lifecycle.activation, file.lifecycle.idle_s),
        offers=tuple(_offers(source, file)),
        extensions=source.extensions,
        path=source.path,
        sha256=source.sha256,
    )


def _command(source: Source, file: PluginFile) -> Command:
    host = file.host
    if (host.entry is None) == (host.command is None):
        raise source.refuse(["host"], "must have exactly one of 'entry' and 'command'")
    if host.kind == "inproc" and host.entry is None:
        raise source.refuse(["host", "command"], "a program cannot run in the kernel's process")
    return Command(host.kind, host.entry, tuple(host.command) if host.command else None)


def _config(source: Source, file: PluginFile) -> Mapping[str, ConfigKey]:
    keys = {}
    for name, declared in file.config.items():
        if not _CONFIG_KEY.match(name):
            raise source.refuse(["config", name], "is not a key: letters, digits and '_' only")
        try:
            keys[name] = config_key(declared)
        except RefusedError as error:
            raise source.refuse(["config", name, *error.place], error.reason, error.hint) from None
    return MappingProxyType(keys)


def _capabilities(source: Source, file: PluginFile, config: Mapping[str, ConfigKey]) -> Permissions:
    for kind, paths in (("read", file.capabilities.fs.read), ("write", file.capabilities.fs.write)):
        for index, path in enumerate(paths):
            place: list[str | int] = ["capabilities", "fs", kind, index]
            match = _WANTED_PATH.match(path)
            if match is None:
                what = f"{path!r} is neither {{config.KEY}} nor absolute"
                raise source.refuse(place, what, "name a config key of the format path")
            key = match[1]
            if key is not None and key not in config:
                raise source.refuse(
                    place, f"there is no config key {key!r}", suggest(key, config, what="keys")
                )
            if key is not None and not config[key].has_paths:
                raise source.refuse(place, f"no part of config.{key} has format = 'path'")
            if ".." in match[2].split("/"):
                raise source.refuse(place, f"{path!r} has '..'", "name the folder itself")
    return permissions(file.capabilities)


def _offers(source: Source, file: PluginFile) -> Iterator[Offer]:
    wanted = permissions(file.capabilities).names
    seen: dict[str, str] = {}
    for index, table in enumerate(file.provides):
        place: list[str | int] = ["provides", index]
        if (other := seen.setdefault(folded(table.name), table.name)) is not table.name:
            raise source.refuse(
                [*place, "name"],
                f"{table.name!r} and {other!r} are one name twice",
                "names must differ in more than case",
            )
        contract = f"purra.{table.kind}/1"
        if table.contract not in (None, contract):
            raise source.refuse(
                [*place, "contract"], f"{table.contract!r} is not supported", f"write {contract!r}"
            )
        for need, name in enumerate(table.needs):
            if name not in wanted:
                raise source.refuse(
                    [*place, "needs", need],
                    f"{name!r} is not among [capabilities]",
                    suggest(name, wanted, what="declared"),
                )
        yield _offer(source, place, table, contract)


def _offer(
    source: Source, place: Sequence[str | int], table: ProvidesTable, contract: str
) -> Offer:
    dynamic = table.catalog == "dynamic"
    tool = _tool(source, place, table)
    identity = {
        "kind": table.kind,
        "name": table.name,
        "contract": contract,
        "ceiling": table.effect if dynamic else None,
        "tool": {item.name: getattr(tool, item.name) for item in fields(tool)} if tool else None,
    }
    return Offer(
        kind=table.kind,
        name=table.name,
        summary=table.summary,
        contract=contract,
        needs=tuple(table.needs),
        dynamic=dynamic,
        ceiling=table.effect if dynamic else None,
        tool=tool,
        digest=digest(identity),
    )


def _tool(source: Source, place: Sequence[str | int], table: ProvidesTable) -> ToolSchema | None:
    given = [key for key in _TOOL_KEYS if getattr(table, key) is not None]
    if table.kind != "tool":
        if table.catalog != "static":
            given.append("catalog")
        if given:
            what = f"is for tools, not for a {table.kind}"
            raise source.refuse([*place, given[0]], what, "remove the key")
        return None
    if table.effect is None:
        raise source.refuse(
            [*place, "effect"], "is missing", "every tool declares its effect class"
        )
    if table.catalog == "dynamic":
        extra = [key for key in given if key != "effect"]
        if extra:
            raise source.refuse([*place, extra[0]], "is not known of a dynamic catalog")
        return None
    parameters = _parameters(source, place, table)
    declared = {key: getattr(table, key) for key in _POLICY_KEYS if key in given}
    description = table.description or table.summary
    return declare(table.name, description, parameters, table.effect, **declared)


def _parameters(
    source: Source, place: Sequence[str | int], table: ProvidesTable
) -> Mapping[str, Any]:
    if table.input is None:
        return admit(_NO_ARGUMENTS)
    try:
        return admit(table.input, where="")
    except PurraError as error:
        inside = f"{error.where.strip(': ')}: " if error.where else ""
        reason = f"{inside}{error.message}"
        raise source.refuse([*place, "input"], reason, error.hint) from None
