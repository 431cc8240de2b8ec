"""What a plugin may touch: wanted in its manifest, granted in the host manifest, one vocabulary.

Nothing is granted by default. A grant may be narrower than what the plugin declares, and a granted
folder may be wider than the file in it that the plugin will use; but a grant of a *kind* that the
plugin does not declare is a mistake of the operator and is refused, because the author never
promised to behave with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from purra.manifest.names import RefusedError
from purra.manifest.source import Strict

__all__ = ["PermissionTable", "Permissions", "covered", "excess", "permissions"]

Network = Literal["none", "any"] | tuple[str, ...]

_ENDPOINT: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\]):(\d{1,5})\Z"
)
_SERVICE: Final = re.compile(r"(?:secret:[A-Za-z_][A-Za-z0-9_]*|memory|model|tool)\Z", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


class _FsTable(Strict):
    read: list[str] = Field(default=[], description="Files and folders to read")
    write: list[str] = Field(default=[], description="Files and folders to change")


class PermissionTable(Strict):
    """`[capabilities]` of a plugin, `grants` of a host manifest."""

    fs: _FsTable = _FsTable()
    network: Any = Field(
        default="none",
        description="none, any, or a list of host:port",
        json_schema_extra={
            "anyOf": [
                {"enum": ["none", "any"]},
                {"type": "array", "items": {"type": "string", "pattern": ":[0-9]{1,5}$"}},
            ]
        },
    )
    host: list[str] = Field(default=[], description="secret:NAME, memory, model, tool")
    subprocess: bool = Field(default=False, description="May start programs of its own")
    env: list[str] = Field(default=[], description="Environment variables to pass through")

    @field_validator("network")
    @classmethod
    def _network(cls, value: object) -> object:
        if value in ("none", "any"):
            return value
        if not isinstance(value, list):
            raise RefusedError('must be "none", "any" or a list of "host:port"')
        for index, item in enumerate(value):
            match = _ENDPOINT.match(item) if isinstance(item, str) else None
            if match is None or not 0 < int(match[1]) < 65536:
                raise RefusedError(f"{item!r} is not host:port", "as in 'example.org:443'", [index])
        return value

    @field_validator("host")
    @classmethod
    def _host(cls, value: list[str]) -> list[str]:
        return _matching(value, _SERVICE, "is not one of secret:NAME, memory, model, tool")

    @field_validator("env")
    @classmethod
    def _env(cls, value: list[str]) -> list[str]:
        return _matching(value, _VARIABLE, "is not the name of an environment variable")


def _matching(items: list[str], pattern: re.Pattern[str], reason: str) -> list[str]:
    for index, item in enumerate(items):
        if not pattern.match(item):
            raise RefusedError(f"{item!r} {reason}", place=[index])
    return items


@dataclass(frozen=True, slots=True)
class Permissions:
    """Wanted or granted access. Paths are absolute once resolved."""

    fs_read: tuple[str, ...] = ()
    fs_write: tuple[str, ...] = ()
    network: Network = "none"
    host: tuple[str, ...] = ()
    subprocess: bool = False
    env: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The kinds that are not empty, as `needs` of a `[[provides]]` spells them."""
        kinds = {
            "fs.read": bool(self.fs_read),
            "fs.write": bool(self.fs_write),
            "network": self.network not in ("none", ()),
            "subprocess": self.subprocess,
        }
        variables = (f"env:{name}" for name in self.env)
        return frozenset([kind for kind, some in kinds.items() if some]) | {*self.host, *variables}

    def value(self) -> Mapping[str, Any]:
        """The strict value that goes to the plugin in WELCOME."""
        return {
            "fs.read": list(self.fs_read),
            "fs.write": list(self.fs_write),
            "network": self.network if isinstance(self.network, str) else list(self.network),
            "host": list(self.host),
            "subprocess": self.subprocess,
            "env": list(self.env),
        }


def permissions(table: PermissionTable) -> Permissions:
    """The trusted form of a checked table."""
    network: Network = tuple(table.network) if isinstance(table.network, list) else table.network
    return Permissions(
        fs_read=tuple(table.fs.read),
        fs_write=tuple(table.fs.write),
        network=network,
        host=tuple(table.host),
        subprocess=table.subprocess,
        env=tuple(table.env),
    )


def excess(wanted: Permissions, granted: Permissions) -> Iterator[tuple[Sequence[str], str]]:
    """Places and reasons of grants that the plugin does not declare."""
    for kind in ("fs.read", "fs.write", "network", "subprocess"):
        if kind in granted.names and kind not in wanted.names:
            yield kind.split("."), f"the plugin does not declare the capability {kind}"
    any_host = wanted.network == "any"
    lists = [
        ("network", _endpoints(wanted.network), () if any_host else _endpoints(granted.network)),
        ("host", wanted.host, granted.host),
        ("env", wanted.env, granted.env),
    ]
    for key, some, others in lists:
        for name in sorted(set(others) - set(some)):
            yield [key], f"the plugin does not declare {name}"
    if isinstance(wanted.network, tuple) and granted.network == "any":
        yield ["network"], "the plugin declares named hosts only"


def _endpoints(network: Network) -> tuple[str, ...]:
    return network if isinstance(network, tuple) else ()


def covered(wanted: Permissions, granted: Permissions) -> frozenset[str]:
    """The wanted kinds that are granted; all paths of both are absolute.

    Named paths and hosts must all be granted. A plugin that wants any network is content with the
    hosts that it gets. Permission to write includes permission to read.
    """
    missing = set(wanted.names - granted.names)
    if not _inside(wanted.fs_read, granted.fs_read + granted.fs_write):
        missing.add("fs.read")
    if not _inside(wanted.fs_write, granted.fs_write):
        missing.add("fs.write")
    named = set(_endpoints(wanted.network))
    if granted.network != "any" and not named <= set(_endpoints(granted.network)):
        missing.add("network")
    return wanted.names - missing


def _inside(paths: Sequence[str], folders: Sequence[str]) -> bool:
    return all(any(PurePath(path).is_relative_to(top) for top in folders) for path in paths)
