"""Host manifests: an application's TOML, read once into types that nobody validates again.

What can be judged from the file alone is judged here: its shape, that each adapter's plugin is
named, that nothing is asked for that this version does not do. What needs the plugins' manifests
(config, grants, which adapters exist) is judged by `purra.manifest.binding`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from purra.agent import Agent, PromptSection, RunLimits
from purra.errors import PurraError
from purra.manifest.host_tables import AgentTable, HostFile, PluginTable
from purra.manifest.names import Address, RefusedError, parse_address, suggest
from purra.manifest.placeholders import Expanded, Parameter, Placeholders, override, state_folder
from purra.manifest.source import Source, read_source, refusal
from purra.values import canonical_text

__all__ = [
    "SCHEMA",
    "Adapters",
    "Caller",
    "HostManifest",
    "IsolationDemand",
    "PluginUse",
    "load_host",
]

SCHEMA: Final = "purra.host/1"


@dataclass(frozen=True, slots=True)
class Caller:
    """What a load takes from its caller's circumstances.

    `params`: values for declared parameters; relative paths in them are relative to `current`.
    `state`: the state folder, None = by `environment` (XDG). `current`: None = the process's.
    """

    params: Mapping[str, Parameter] | None = None
    state: Path | None = None
    environment: Mapping[str, str] | None = None
    current: Path | None = None


@dataclass(frozen=True, slots=True)
class Adapters:
    """The agent's adapters, in the order of the file. `store` None: runs are kept in memory."""

    model: Address
    tools: tuple[Address, ...]
    context: tuple[Address, ...]
    store: Address | None
    policy: Address | None


@dataclass(frozen=True, slots=True)
class PluginUse:
    """How one named plugin is to be used. `secrets`: environment variable by secret name.
    `digest`: `sha256:` of the one manifest that is accepted, "" = any. `inproc_writes`: its tools
    may write though it runs in this process.
    """

    config: Expanded
    grants: Expanded
    secrets: Mapping[str, str]
    digest: str
    inproc_writes: bool


@dataclass(frozen=True, slots=True)
class IsolationDemand:
    """The level asked for; with `require`, a start that achieves less is refused."""

    level: Literal["none", "standard", "strict"]
    require: bool


@dataclass(frozen=True, slots=True)
class HostManifest:
    """One accepted host manifest with its parameters filled in.

    `folders`: absolute, searched for plugins beside the installed packages. `state`: absolute; may
    not exist yet. `uses_state`: whether anything in the file is below it. `sha256`: 64 hex digits
    over the bytes of the file at `path`.
    """

    name: str
    agent: Agent
    adapters: Adapters
    plugins: Mapping[str, PluginUse]
    isolation: IsolationDemand
    folders: tuple[Path, ...]
    params: Mapping[str, Parameter]
    state: Path
    uses_state: bool
    extensions: Mapping[str, Any]
    path: Path
    sha256: str

    def refuse(self, place: Sequence[str | int], reason: str, hint: str = "") -> PurraError:
        """The error for a value of this file that turns out to be wrong later."""
        return refusal(self.path, place, reason, hint)


def load_host(path: Path, caller: Caller | None = None) -> HostManifest:
    """Reads and checks the host manifest at `path`.

    Raises `PurraError`: `invalid_manifest` with file, key path and reason; `invalid_argument` for a
    parameter of the caller that is unknown or of another type; `unsupported` for sections that
    this version cannot honour; `duplicate_tool`.
    """
    caller = caller or Caller()
    source = read_source(path, SCHEMA)
    file = source.parse(HostFile)
    _refuse_unsupported(source, file)
    placeholders = _placeholders(source, file, caller)
    reader = _Reader(source, placeholders)
    adapters = reader.adapters(file.agent)
    _check_named(source, file, adapters)
    return HostManifest(
        name=file.name,
        agent=_agent(source, file.agent),
        adapters=adapters,
        plugins=MappingProxyType(
            {name: reader.plugin(name, table) for name, table in file.plugins.items()}
        ),
        isolation=IsolationDemand(file.isolation.level, file.isolation.require),
        folders=reader.folders(file.discovery.folders),
        params=placeholders.params,
        state=placeholders.state,
        uses_state="{state}" in canonical_text(source.data),
        extensions=source.extensions,
        path=source.path,
        sha256=source.sha256,
    )


def _refuse_unsupported(source: Source, file: HostFile) -> None:
    for place, asked in (
        ("agent.middleware", file.agent.middleware),
        ("hooks.use", file.hooks.use),
    ):
        if asked:
            raise PurraError(
                "unsupported",
                "extensions in the kernel's process are not supported yet",
                where=f"{source.path}: {place}",
                hint="remove the key",
            )


def _placeholders(source: Source, file: HostFile, caller: Caller) -> Placeholders:
    for name, value in file.params.items():
        if not isinstance(value, (str, int, float)):
            raise source.refuse(["params", name], "must be text, a number, true or false")
    given = caller.params or {}
    environment = os.environ if caller.environment is None else caller.environment
    return Placeholders(
        params=MappingProxyType(override(file.params, given)),
        outside=frozenset(given),
        folder=source.path.parent,
        current=Path(os.path.abspath(caller.current or ".")),
        state=state_folder(file.name, caller.state, environment),
    )


def _agent(source: Source, table: AgentTable) -> Agent:
    names = [section.name for section in table.prompt]
    for index, name in enumerate(names):
        if name in names[:index]:
            what = f"two sections are named {name!r}"
            raise source.refuse(["agent", "prompt", index, "name"], what, "rename one of them")
    limits = table.limits
    return Agent(
        id=table.id,
        revision=table.revision,
        prompt=tuple(PromptSection(item.name, item.order, item.text) for item in table.prompt),
        limits=RunLimits(
            max_rounds=limits.max_rounds,
            max_tool_calls=limits.max_tool_calls,
            deadline_s=limits.deadline_s,
            max_tokens=limits.max_tokens,
            write_batch=limits.write_batch,
        ),
        session_policy=table.session,
        approvals=table.approvals,
    )


def _check_named(source: Source, file: HostFile, adapters: Adapters) -> None:
    """Installed means listed, named means started: no address names a plugin by the way."""
    addressed = {
        "model": (adapters.model,),
        "tools": adapters.tools,
        "context": adapters.context,
        "store": (adapters.store,),
        "policy": (adapters.policy,),
    }
    for key, addresses in addressed.items():
        for address in addresses:
            if address is not None and address.plugin not in file.plugins:
                hint = suggest(address.plugin, file.plugins, what="named")
                raise source.refuse(
                    ["agent", key],
                    f"{str(address)!r} is of a plugin that this manifest does not name",
                    f"add a section [plugins.{address.plugin}]" + (f"; {hint}" if hint else ""),
                )


class _Reader:
    """Expands placeholders in the parts of the file that may have them."""

    def __init__(self, source: Source, placeholders: Placeholders) -> None:
        self._source = source
        self._placeholders = placeholders

    def adapters(self, table: AgentTable) -> Adapters:
        return Adapters(
            model=self._address(["agent", "model"], table.model),
            tools=self._addresses("tools", table.tools),
            context=self._addresses("context", table.context),
            store=self._address(["agent", "store"], table.store) if table.store else None,
            policy=self._address(["agent", "policy"], table.policy) if table.policy else None,
        )

    def plugin(self, name: str, table: PluginTable) -> PluginUse:
        place = ["plugins", name]
        return PluginUse(
            config=self._expanded([*place, "config"], table.config),
            grants=self._expanded([*place, "grants"], table.grants),
            secrets=MappingProxyType(
                {key: value.removeprefix("env:") for key, value in table.secrets.items()}
            ),
            digest=table.digest or "",
            inproc_writes=table.inproc_writes,
        )

    def folders(self, folders: list[str]) -> tuple[Path, ...]:
        place = ["discovery", "folders"]
        expanded = self._expanded(place, folders)
        found = []
        for index, folder in enumerate(expanded.value):
            try:
                found.append(Path(expanded.locate(folder, (index,))))
            except RefusedError as error:
                raise self._source.refuse([*place, *error.place], error.reason) from None
        return tuple(found)

    def _addresses(self, key: str, texts: list[str]) -> tuple[Address, ...]:
        seen: dict[str, Address] = {}
        for index, text in enumerate(texts):
            place: list[str | int] = ["agent", key, index]
            address = self._address(place, text)
            other = seen.setdefault(address.name if key == "tools" else str(address), address)
            if other is not address:
                if other == address:
                    raise self._source.refuse(place, f"{text!r} is listed twice", "remove one")
                raise PurraError(
                    "duplicate_tool",
                    f"{str(other)!r} and {str(address)!r} offer one tool name",
                    where=f"{self._source.path}: agent.{key}[{index}]",
                    hint="leave one of them out; a model knows tools by name alone",
                )
        return tuple(seen.values())

    def _address(self, place: Sequence[str | int], text: str) -> Address:
        expanded = self._expanded(place, text)
        try:
            return parse_address(str(expanded.value))
        except RefusedError as error:
            raise self._source.refuse(place, error.reason, error.hint) from None

    def _expanded(self, place: Sequence[str | int], template: Any) -> Expanded:
        try:
            return self._placeholders.expand(template)
        except RefusedError as error:
            raise self._source.refuse([*place, *error.place], error.reason, error.hint) from None
