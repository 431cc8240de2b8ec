"""One plugin as one host manifest uses it: configuration, grants, and what it may then offer.

Both manifests are judged against each other here, before anything is started, so that a wrong
configuration is an error of a file with a key, not of a process that died at start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from purra.errors import PurraError
from purra.manifest.config import Config, resolve_config
from purra.manifest.host import HostManifest, PluginUse
from purra.manifest.names import RefusedError, suggest
from purra.manifest.permissions import (
    Permissions,
    PermissionTable,
    covered,
    excess,
    permissions,
)
from purra.manifest.placeholders import Expanded
from purra.manifest.plugin import Offer, PluginManifest
from purra.manifest.source import parse_table

__all__ = ["BoundPlugin", "bind"]


@dataclass(frozen=True, slots=True)
class BoundPlugin:
    """A plugin with everything resolved.

    `config`: full and checked, paths absolute. `granted`: what it may touch, paths absolute.
    `secrets`: environment variable by secret name. `offers`: those whose needs are granted.
    `withheld`: for each other offer, the needs that are not.
    """

    manifest: PluginManifest
    config: Mapping[str, Any]
    granted: Permissions
    secrets: Mapping[str, str]
    offers: tuple[Offer, ...]
    withheld: Mapping[str, tuple[str, ...]]


def bind(host: HostManifest, plugin: PluginManifest) -> BoundPlugin:
    """The plugin as the section `[plugins.<id>]` of `host` uses it.

    Raises `PurraError`: `plugin_drift` if it is not the one that was locked; `invalid_manifest` (of
    the host manifest) for wrong configuration, for a grant that the plugin does not declare and for
    an unknown secret; `unsupported` for a granted host service that this version does not have.
    """
    use = host.plugins[plugin.id]
    place = ("plugins", plugin.id)
    _check_lock(host, plugin, use)
    try:
        config = resolve_config(plugin.config, use.config.value, use.config.locate)
    except RefusedError as error:
        raise host.refuse([*place, "config", *error.place], error.reason, error.hint) from None
    granted = _granted(host, plugin, use)
    wanted = _wanted(plugin.capabilities, config)
    allowed = covered(wanted, granted)
    withheld = {
        offer.name: missing
        for offer in plugin.offers
        if (missing := tuple(need for need in offer.needs if need not in allowed))
    }
    return BoundPlugin(
        manifest=plugin,
        config=config.values,
        granted=granted,
        secrets=use.secrets,
        offers=tuple(offer for offer in plugin.offers if offer.name not in withheld),
        withheld=withheld,
    )


def _check_lock(host: HostManifest, plugin: PluginManifest, use: PluginUse) -> None:
    found = f"sha256:{plugin.sha256}"
    if use.digest and use.digest != found:
        raise PurraError(
            "plugin_drift",
            f"the manifest of {plugin.id} {plugin.version} is not the one that was locked",
            where=f"{host.path}: plugins.{plugin.id}.digest",
            hint="look at what changed, then `purra plugins lock`",
            detail={"locked": use.digest, "found": found, "manifest": str(plugin.path)},
        )


def _granted(host: HostManifest, plugin: PluginManifest, use: PluginUse) -> Permissions:
    place = ("plugins", plugin.id, "grants")
    table = permissions(parse_table(host.path, place, use.grants.value, PermissionTable))
    for where, reason in excess(plugin.capabilities, table):
        hint = suggest("", plugin.capabilities.names, what="it declares")
        raise host.refuse([*place, *where], reason, hint)
    for name in use.secrets:
        if f"secret:{name}" not in plugin.capabilities.host:
            what = "the plugin does not declare this secret"
            hint = f'remove it; a plugin that wants it says host = ["secret:{name}"]'
            raise host.refuse(["plugins", plugin.id, "secrets", name], what, hint)
    services = [name for name in table.host if not name.startswith("secret:")]
    if services:
        raise PurraError(
            "unsupported",
            f"the host service {services[0]!r} is not supported yet",
            where=f"{host.path}: plugins.{plugin.id}.grants.host",
        )
    return replace(
        table,
        fs_read=_located(host, (*place, "fs", "read"), table.fs_read, use.grants),
        fs_write=_located(host, (*place, "fs", "write"), table.fs_write, use.grants),
        host=tuple(f"secret:{name}" for name in use.secrets),
    )


def _located(
    host: HostManifest, place: Sequence[str | int], paths: Sequence[str], grants: Expanded
) -> tuple[str, ...]:
    inside = tuple(place[3:])  # after plugins.<id>.grants
    try:
        return tuple(grants.locate(path, (*inside, index)) for index, path in enumerate(paths))
    except RefusedError as error:
        raise host.refuse([*place[:3], *error.place], error.reason) from None


def _wanted(declared: Permissions, config: Config) -> Permissions:
    """`declared` with `{config.KEY}` replaced by the paths that are configured."""

    def resolved(patterns: Sequence[str]) -> tuple[str, ...]:
        paths: list[str] = []
        for pattern in patterns:
            if pattern.startswith("/"):
                paths.append(pattern)
                continue
            key, _, below = pattern.removeprefix("{config.").partition("}")
            paths += [path + below for path in config.paths.get(key, ())]
        return tuple(paths)

    return replace(
        declared, fs_read=resolved(declared.fs_read), fs_write=resolved(declared.fs_write)
    )
