"""`purra plugins install`, `upgrade` and `uninstall`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from purra_hosts.app.options import Json
from purra_hosts.app.printing import json_line

if TYPE_CHECKING:
    from purra.registry.discovery import Discovered
    from purra_hosts.app.installing import Pip

__all__ = ["install", "uninstall", "upgrade"]

PipOptions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- PIP_OPTIONS]", help="After --, options of pip: -- --no-index"),
]
PluginId = Annotated[str, typer.Argument(metavar="PLUGIN", help="The plugin's id.")]


def install(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A package, a wheel or a project's folder.")
    ],
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Into a new environment of its own.")
    ] = False,
    pip: PipOptions = None,
    json: Json = False,
) -> None:
    """Install a plugin, here or into an environment of its own.

    With --isolated it brings its own dependencies, which may disagree with those of others. Nothing
    is started: an agent uses a plugin only if its host manifest names it.
    """
    from purra_hosts.app.installing import install_here, install_isolated

    if isolated:
        _tell_found(install_isolated(spec, _pip(pip)), json=json)
        return
    came = install_here(spec, _pip(pip))
    for found in came:
        _tell_found(found, json=json)
    if not came:
        typer.echo(f"note: no plugin came or changed with {spec}", err=True)


def upgrade(
    plugin: PluginId,
    spec: Annotated[str, typer.Option(help="What to install; else what was asked for then.")] = "",
    pip: PipOptions = None,
    json: Json = False,
) -> None:
    """Replace an installed plugin by a newer version, where it is.

    Running kernels go on with the old one until `purra plugins reload`.
    """
    from purra_hosts.app.installing import upgrade as upgraded

    _tell_found(upgraded(plugin, spec, _pip(pip)), json=json)


def uninstall(plugin: PluginId, json: Json = False) -> None:
    """Remove a plugin, and its environment if it has one of its own."""
    from purra_hosts.app.installing import uninstall as uninstalled

    where = uninstalled(plugin, _pip(None))
    if json:
        json_line({"plugin": plugin, "removed": where})
        return
    typer.echo(f"{plugin}: removed with {where}")


def _pip(options: list[str] | None) -> Pip:
    from purra_hosts.app.installing import Pip

    return Pip(tuple(options or ()), lambda text: typer.echo(f"{text} ...", err=True))


def _tell_found(found: Discovered, *, json: bool) -> None:
    version = found.manifest.version if found.manifest else found.version
    if json:
        told = {"plugin": found.id, "version": version, "state": found.state}
        json_line({**told, "from": found.owner, "manifest": str(found.path or "")})
        return
    said = f": {found.reason}" if found.reason else ""
    typer.echo(f"{found.id} {version}: {found.state}{said}, {found.owner}")
