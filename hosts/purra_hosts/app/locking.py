"""The digests of plugin manifests, written into a host manifest: from then on, these and no others.

What is locked is the plugin's manifest: what it offers, with which effects, schemas and wishes. A
start verifies the same bytes again in the handshake. Only the line `digest = …` of each plugin's
section is written; everything else of the file stays.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from purra.errors import PurraError
from purra.manifest.host import HostManifest
from purra.registry.discovery import Discovery
from purra_hosts.app.toml_text import Statement, key_text, statements, value_text

__all__ = ["Locked", "lock", "locked_text"]

KEY: Final = "digest"


@dataclass(frozen=True, slots=True)
class Locked:
    """One plugin: its version, the digest that holds now, and the one before ("" = none)."""

    plugin: str
    version: str
    digest: str
    before: str


def lock(host: HostManifest, discovery: Discovery) -> tuple[Locked, ...]:
    """What each plugin that the manifest names is to be locked to.

    Raises `PurraError`: `plugin_not_found`, `plugin_broken`, `plugin_conflict`.
    """
    found = []
    for name, use in host.plugins.items():
        plugin = discovery.get(name)
        where = f"{host.path}: plugins.{name}"
        if plugin is None:
            raise PurraError("plugin_not_found", f"no plugin {name!r} is installed", where=where)
        if plugin.manifest is None:
            code = "plugin_conflict" if plugin.state == "conflict" else "plugin_broken"
            raise PurraError(code, plugin.reason, where=where, hint=plugin.hint)
        digest = f"sha256:{plugin.sha256}"
        found.append(Locked(name, plugin.manifest.version, digest, use.digest))
    return tuple(found)


def locked_text(path: Path, text: str, digests: Mapping[str, str]) -> str:
    """The host manifest `text` with those digests, by plugin.

    Raises `PurraError(unsupported)` for a plugin whose section is not a table of its own.
    """
    parts = statements(text)
    for plugin, digest in digests.items():
        parts = _with_digest(parts, plugin, f"{KEY} = {value_text(digest)}\n")
    made = "".join(part.text for part in parts)
    if _read(made) != _expected(text, digests):
        raise PurraError(
            "unsupported",
            "a plugin's section is not a table of its own",
            where=str(path),
            hint="write each plugin as [plugins.ID]",
        )
    return made


def _with_digest(parts: list[Statement], plugin: str, line: str) -> list[Statement]:
    place = ("plugins", plugin)
    headers = [index for index, part in enumerate(parts) if part.header == 1]
    own = next((index for index in headers if parts[index].keys == place), None)
    if own is None:
        below = next((index for index in headers if parts[index].keys[:2] == place), None)
        if below is None:
            return parts
        header = Statement(f"[plugins.{key_text(plugin)}]\n", place, 1)
        return [*parts[:below], header, Statement(line, (KEY,)), *parts[below:]]
    end = next((index for index in headers if index > own), len(parts))
    kept = [part for part in parts[own + 1 : end] if part.header or part.keys != (KEY,)]
    header = parts[own]
    if not header.text.endswith("\n"):
        header = Statement(header.text + "\n", header.keys, header.header)
    return [*parts[:own], header, Statement(line, (KEY,)), *kept, *parts[end:]]


def _expected(text: str, digests: Mapping[str, str]) -> Any:
    table = tomllib.loads(text)
    for plugin, digest in digests.items():
        table["plugins"][plugin][KEY] = digest
    return table


def _read(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
