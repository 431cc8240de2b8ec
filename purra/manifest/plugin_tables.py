"""The shape of `purra-plugin.toml`, schema `purra.plugin/1` (design, the plugin plane)."""

from __future__ import annotations

import keyword
import re
from typing import Annotated, Any, Final, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field

from purra.contracts.tool import Concurrency, Effect
from purra.limits import TOOL_TIMEOUT_S
from purra.manifest.names import RefusedError, parse_id, parse_name
from purra.manifest.permissions import PermissionTable
from purra.manifest.source import Strict

__all__ = ["Kind", "PluginFile", "ProvidesTable", "memory_bytes"]

Kind = Literal["model", "tool", "context", "store", "policy", "memory", "sandbox"]

INFLIGHT_MAX: Final = 1024
THREADS_MAX: Final = 64
INSTANCES_MAX: Final = 32
CPU_MAX_S: Final = 30 * 86_400
TIMEOUT_MAX_S: Final = 3600.0
"""Longest time of one tool call that a manifest may ask for."""
IDLE_MAX_S: Final = 7 * 86_400.0
MEMORY_MIN_BYTES: Final = 16 * 1024**2
"""An interpreter does not start in less."""
MEMORY_MAX_BYTES: Final = 1024**4
SUMMARY_CHARS: Final = 200
DESCRIPTION_CHARS: Final = 8192
"""A tool's description goes into every request to the model."""

_UNITS: Final = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_MEMORY: Final = re.compile(r"(\d{1,12})(KiB|MiB|GiB)\Z", re.ASCII)
_SHELLS: Final = re.compile(
    r"(?:(?:ba|da|z|k|c|tc|fi|pw)?sh|powershell|busybox|cmd|env)(?:\.exe)?\Z"
)
_PROGRAM: Final = re.compile(r"(?:[A-Za-z0-9._+/-]+|\{python\})\Z", re.ASCII)
"""A name or a path; `{python}` is the interpreter that the host runs plugins with."""


def memory_bytes(text: str) -> int:
    """Bytes of `256MiB` and the like. Raises `RefusedError`."""
    match = _MEMORY.match(text)
    if match is None:
        raise RefusedError(f"{text!r} is not a size", "write a whole number of KiB, MiB or GiB")
    size = int(match[1]) * _UNITS[match[2]]
    if not MEMORY_MIN_BYTES <= size <= MEMORY_MAX_BYTES:
        raise RefusedError(f"{text} is not between 16MiB and 1024GiB")
    return size


def _memory(text: str) -> str:
    memory_bytes(text)
    return text


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise RefusedError(f"{text!r} is not a version (PEP 440)", "write it as in 1.2.0") from None
    return text


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise RefusedError(
            f"{text!r} is not a version specifier (PEP 440)", "write it as in '>=1.2,<2'"
        ) from None
    return text


def _entry(text: str) -> str:
    module, colon, attribute = text.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        raise RefusedError(f"{text!r} is not MODULE:ATTRIBUTE", "write it as in 'my_plugin:plugin'")
    return text


def _command(argv: list[str]) -> list[str]:
    """The arguments of a program in the package or on PATH: data, never a line for a shell."""
    if not argv:
        raise RefusedError("must not be empty")
    for index, argument in enumerate(argv):
        if not argument or "\0" in argument or "\n" in argument:
            raise RefusedError("an argument is empty or has a NUL or a newline", place=[index])
        if ".." in re.split(r"[/\\=]", argument):
            what = f"{argument!r} leaves the package folder"
            raise RefusedError(what, "put the file into the package", [index])
    program = argv[0]
    if not _PROGRAM.match(program):
        raise RefusedError(
            f"{program!r} is not the name of a program",
            "give each argument its own item; nothing is split and no shell runs",
            [0],
        )
    if program.startswith("/"):
        raise RefusedError(
            f"{program!r} is absolute", "name a file in the package, or a program on PATH", [0]
        )
    if _SHELLS.match(program.rpartition("/")[2].lower()):
        raise RefusedError(f"{program!r} is a shell or a launcher", "name the program itself", [0])
    return argv


IdText = Annotated[str, AfterValidator(parse_id)]
NameText = Annotated[str, AfterValidator(parse_name)]
Summary = Annotated[str, Field(min_length=1, max_length=SUMMARY_CHARS)]
Seconds = Annotated[float, Field(gt=0, le=TIMEOUT_MAX_S, allow_inf_nan=False)]


class HostTable(Strict):
    """How the plugin is run."""

    kind: Literal["process", "inproc"]
    entry: Annotated[str, AfterValidator(_entry)] | None = Field(
        default=None, description="MODULE:ATTRIBUTE of the Plugin object"
    )
    command: Annotated[list[str], AfterValidator(_command)] | None = Field(
        default=None, description="Argument list of a program that speaks the protocol"
    )


class LimitsTable(Strict):
    """What one instance may use."""

    inflight: int = Field(default=64, ge=1, le=INFLIGHT_MAX, description="Calls at once")
    threads: int = Field(default=1, ge=1, le=THREADS_MAX, description="Handlers at once")
    instances: int = Field(
        default=1,
        ge=1,
        le=INSTANCES_MAX,
        description="Processes at once; more than one is started when a call finds no room",
    )
    cpu_s: int | None = Field(
        default=None, ge=1, le=CPU_MAX_S, description="Processor time of a process's whole life"
    )
    memory: Annotated[str, AfterValidator(_memory)] | None = Field(
        default=None, description="Memory of the process, as in 256MiB"
    )


class LifecycleTable(Strict):
    """When an instance runs."""

    activation: Literal["on-demand", "eager"] = "on-demand"
    idle_s: Annotated[float, Field(gt=0, le=IDLE_MAX_S, allow_inf_nan=False)] = 300.0


class ProvidesTable(Strict):
    """One adapter. The keys from `catalog` on are for tools."""

    kind: Kind
    name: NameText
    summary: Summary
    contract: str | None = Field(default=None, description="Contract and version, purra.KIND/1")
    needs: list[str] = Field(default=[], description="Capabilities without which it is not offered")
    catalog: Literal["static", "dynamic"] = Field(
        default="static", description="dynamic: name is a prefix and effect a ceiling"
    )
    effect: Effect | None = None
    description: str | None = Field(
        default=None, min_length=1, max_length=DESCRIPTION_CHARS, description="For the model"
    )
    input: dict[str, Any] | None = Field(default=None, description="JSON Schema of the arguments")
    permission: NameText | None = None
    idempotency: Literal["none", "supported", "required"] | None = None
    concurrency: Concurrency | None = None
    approval: Literal["never", "required"] | None = None
    timeout_s: Seconds | None = Field(default=None, description=f"default {TOOL_TIMEOUT_S:g}")
    shared: bool | None = Field(
        default=None, description="A write that may share its instance with other calls"
    )


class PluginFile(Strict):
    """`purra-plugin.toml` without `schema` and the `x-` tables."""

    id: IdText
    version: Annotated[str, AfterValidator(_version)]
    summary: Summary
    host: HostTable
    requires: dict[IdText, Annotated[str, AfterValidator(_specifier)]] = Field(
        default={}, description="Plugins that must run too, with version specifiers"
    )
    config: dict[str, dict[str, Any]] = Field(
        default={}, description="JSON Schema per key; also required = true or false"
    )
    capabilities: PermissionTable = PermissionTable()
    limits: LimitsTable = LimitsTable()
    lifecycle: LifecycleTable = LifecycleTable()
    provides: list[ProvidesTable] = Field(min_length=1)
