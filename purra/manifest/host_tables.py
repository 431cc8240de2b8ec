"""The shape of a host manifest, schema `purra.host/1` (design, the plugin plane)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from purra.agent import Approvals, SessionPolicy, WriteBatch
from purra.limits import MAX_ROUNDS, MAX_TOOL_CALLS, RUN_DEADLINE_S
from purra.manifest.names import RefusedError
from purra.manifest.plugin_tables import IdText, NameText
from purra.manifest.source import Strict

__all__ = ["AgentTable", "HostFile", "PluginTable"]

ROUNDS_MAX: Final = 10_000
TOOL_CALLS_MAX: Final = 100_000
TOKENS_MAX: Final = 1_000_000_000
DEADLINE_MAX_S: Final = 30 * 86_400.0
"""Largest bounds that a manifest may set: finite, and far beyond any sensible run."""
REVISION_CHARS: Final = 128
PROMPT_SECTION_CHARS: Final = 100_000

_SECRET: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z", re.ASCII)


def _secret(text: str) -> str:
    if not _SECRET.match(text):
        raise RefusedError(
            "is not a reference to a secret",
            'write "env:VARIABLE"; a secret never stands in a manifest',
        )
    return text


def _digest(text: str) -> str:
    if not _DIGEST.match(text):
        raise RefusedError(
            "is not a digest: sha256: and 64 hex digits", "`purra plugins lock` writes it"
        )
    return text


class PromptTable(Strict):
    """One section of the system prompt."""

    name: NameText
    order: int = 0
    text: Annotated[str, Field(min_length=1, max_length=PROMPT_SECTION_CHARS)]


class RunLimitsTable(Strict):
    """Bounds of one run."""

    max_rounds: int = Field(default=MAX_ROUNDS, ge=1, le=ROUNDS_MAX)
    max_tool_calls: int = Field(default=MAX_TOOL_CALLS, ge=1, le=TOOL_CALLS_MAX)
    deadline_s: float = Field(default=RUN_DEADLINE_S, gt=0, le=DEADLINE_MAX_S)
    max_tokens: int | None = Field(default=None, ge=1, le=TOKENS_MAX)
    write_batch: WriteBatch = "refuse"


class AgentTable(Strict):
    """Who runs, and the adapters it is bound to. Addresses are PLUGIN-ID/NAME."""

    id: NameText
    revision: Annotated[str, Field(min_length=1, max_length=REVISION_CHARS)]
    model: str
    tools: list[str] = Field(default=[])
    context: list[str] = Field(default=[])
    store: str | None = Field(default=None, description="Without one, runs are kept in memory")
    policy: str | None = None
    middleware: list[str] = Field(default=[])
    session: SessionPolicy = Field(default="queue", description="A second run of one session")
    approvals: Approvals = Field(default="none", description="Where decisions come from")
    prompt: list[PromptTable] = Field(default=[])
    limits: RunLimitsTable = RunLimitsTable()


class PluginTable(Strict):
    """One plugin that may be started: named here, or not started at all."""

    config: dict[str, Any] = Field(default={}, description="Values of [config] of the plugin")
    grants: dict[str, Any] = Field(default={}, description="As [capabilities] of the plugin")
    secrets: dict[str, Annotated[str, AfterValidator(_secret)]] = Field(
        default={}, description="NAME = env:VARIABLE"
    )
    digest: Annotated[str, AfterValidator(_digest)] | None = Field(
        default=None, description="Of the plugin's manifest; another one is refused"
    )
    inproc_writes: bool = Field(
        default=False,
        description="A plugin in this process may write, though a late write cannot be stopped",
    )


class IsolationTable(Strict):
    """The level asked for, and whether a start without it is refused."""

    level: Literal["none", "standard", "strict"] = "standard"
    require: bool = False


class DiscoveryTable(Strict):
    """Where plugins are looked for beside the installed packages."""

    folders: list[str] = Field(default=[])


class HooksTable(Strict):
    """Trusted extensions in the kernel's own process."""

    use: list[str] = Field(default=[])


class HostFile(Strict):
    """A host manifest without `schema` and the `x-` tables."""

    name: IdText
    params: dict[str, Any] = Field(default={}, description="Values for {params.NAME}")
    agent: AgentTable
    plugins: dict[IdText, PluginTable] = Field(default={})
    isolation: IsolationTable = IsolationTable()
    discovery: DiscoveryTable = DiscoveryTable()
    hooks: HooksTable = HooksTable()
