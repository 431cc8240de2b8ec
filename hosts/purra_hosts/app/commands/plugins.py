"""`purra plugins`: what is installed, what it offers, and whether it starts.

`list` and `show` read metadata and manifests only: no plugin code is loaded, nothing is started.
`doctor` is the one that starts plugins, and only those that a host manifest names. `reload` has
running kernels replace one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from purra.errors import PurraError
from purra.registry.discovery import Discovered, Discovery
from purra_hosts.app import exits
from purra_hosts.app.commands.doctor import tell
from purra_hosts.app.commands.install import install, uninstall, upgrade
from purra_hosts.app.commands.lock import lock
from purra_hosts.app.commands.new import new
from purra_hosts.app.commands.plugin_manifest import manifest as plugin_manifest
from purra_hosts.app.commands.reload import reload
from purra_hosts.app.environments import find_plugins
from purra_hosts.app.options import Json, Params, StateFolder, params_of
from purra_hosts.app.printing import json_line, print_table

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="What is installed, and whether it is well.")
app.command(no_args_is_help=True)(new)
app.command("manifest")(plugin_manifest)
app.command()(reload)
app.command(no_args_is_help=True)(install)
app.command(no_args_is_help=True)(upgrade)
app.command(no_args_is_help=True)(uninstall)
app.command(no_args_is_help=True)(lock)

Folders = Annotated[
    list[Path] | None, typer.Option("--folder", help="Search this folder for plugins, too.")
]
HostFile = Annotated[
    Path | None, typer.Option("--manifest", "-m", help="Start the plugins that it names.")
]


@app.command("list")
def list_plugins(folder: Folders = None, json: Json = False) -> None:
    """List installed plugins, broken ones with the reason. Starts nothing."""
    discovery = find_plugins(folder or ())
    if json:
        for found in discovery.plugins:
            json_line(_value(found))
        return
    rows = [
        (found.id, _version(found), found.state, _offers(found) or found.reason, found.owner)
        for found in discovery.plugins
    ]
    print_table(("plugin", "version", "state", "offers", "from"), rows)
    for note in _notes(discovery):
        typer.echo(f"note: {note}", err=True)


@app.command()
def show(
    plugin: Annotated[str, typer.Argument(help="The plugin's id.")],
    folder: Folders = None,
    json: Json = False,
) -> None:
    """Show one plugin: what it offers, wants and is configured by. Starts nothing."""
    found = _named(find_plugins(folder or ()), plugin)
    if json:
        json_line(_value(found))
        return
    for name, text in _described(found):
        typer.echo(f"{name:<12} {text}")


@app.command()
def doctor(
    manifest: HostFile = None,
    folder: Folders = None,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Find what is wrong with the installed plugins, and say the mend.

    With --manifest the plugins that it names are started and stopped again. Exit 4 if one is not
    well.
    """
    from purra.manifest.host import Caller
    from purra_hosts.app.checkup import broken_plugins, started
    from purra_hosts.app.plan import make_plan

    findings = list(broken_plugins(find_plugins(folder or ())))
    if manifest is not None:
        plan = make_plan(manifest, Caller(params=params_of(param), state=state))
        findings += anyio.run(started, plan)
    well = tell(findings, json=json, name="plugin")
    if not findings and not json:
        typer.echo("ok: nothing wrong with what is installed; --manifest starts plugins, too")
    raise typer.Exit(exits.COMPLETED if well else exits.SETUP)


def _named(discovery: Discovery, plugin: str) -> Discovered:
    found = discovery.get(plugin)
    if found is None:
        raise PurraError(
            "plugin_not_found",
            f"no plugin {plugin!r} is installed",
            hint="`purra plugins list` shows what there is",
        )
    return found


def _notes(discovery: Discovery) -> Iterator[str]:
    yield from discovery.notes
    for found in discovery.plugins:
        yield from (f"{found.id}: {note}" for note in found.notes)
        if found.hint:
            yield f"{found.id}: {found.hint}"


def _version(found: Discovered) -> str:
    return found.manifest.version if found.manifest else found.version


def _offers(found: Discovered) -> str:
    if found.manifest is None or found.state != "ok":
        return ""
    return ", ".join(f"{offer.kind} {offer.name}" for offer in found.manifest.offers)


def _described(found: Discovered) -> Iterator[tuple[str, str]]:
    yield "plugin", found.id
    yield "state", found.state + (f": {found.reason}" if found.reason else "")
    if found.hint:
        yield "mend", found.hint
    yield "from", found.owner
    yield "manifest", str(found.path or "")
    manifest = found.manifest
    if manifest is None:
        return
    yield "version", manifest.version
    yield "summary", manifest.summary
    runs = manifest.runs
    yield "runs", f"{runs.host}: {runs.entry or ' '.join(runs.command or ())}"
    for offer in manifest.offers:
        effect = f", {offer.tool.effect}" if offer.tool else ""
        yield "offers", f"{offer.kind} {found.id}/{offer.name} ({offer.contract}{effect})"
    for key in manifest.config:
        yield "config", key


def _value(found: Discovered) -> dict[str, Any]:
    manifest = found.manifest
    return {
        "plugin": found.id,
        "version": _version(found),
        "state": found.state,
        "reason": found.reason,
        "mend": found.hint,
        "from": found.owner,
        "manifest": str(found.path) if found.path else None,
        "sha256": found.sha256 or None,
        "offers": [
            {"kind": offer.kind, "name": offer.name, "contract": offer.contract}
            for offer in (manifest.offers if manifest else ())
        ],
        "notes": list(found.notes),
    }
