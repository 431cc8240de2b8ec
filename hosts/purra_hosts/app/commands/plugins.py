"""`purra plugins`: what is installed, what it offers, and whether it starts.

`list` and `show` read metadata and manifests only: no plugin code is loaded, nothing is started.
With a host manifest they also tell how its plugins are in the kernels that run now, which takes the
store's plugin and no other. `doctor` is the one that starts plugins, and only those that a host
manifest names. `reload` has running kernels replace one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from purra.errors import PurraError
from purra.registry.discovery import Discovered, Discovery
from purra_hosts.app import exits
from purra_hosts.app.commands.doctor import tell
from purra_hosts.app.commands.install import install, uninstall, upgrade
from purra_hosts.app.commands.lock import lock
from purra_hosts.app.commands.looking import on_store, store_plan
from purra_hosts.app.commands.new import new
from purra_hosts.app.commands.plugin_manifest import manifest as plugin_manifest
from purra_hosts.app.commands.reload import reload
from purra_hosts.app.environments import find_plugins
from purra_hosts.app.options import Json, Params, StateFolder, params_of
from purra_hosts.app.printing import json_line, print_table

if TYPE_CHECKING:
    from purra.kernel import Kernel
    from purra.runs.kernels import KernelInfo

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
Running = Annotated[
    Path | None,
    typer.Option("--manifest", "-m", help="Tell of the kernels that run on this one's store."),
]


@app.command("list")
def list_plugins(
    manifest: Running = None,
    folder: Folders = None,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """List installed plugins, broken ones with the reason. Starts nothing.

    With --manifest list the plugins of the kernels that run on its store, and how they are.
    """
    if manifest is not None:
        if folder:
            what = "says nothing about the kernels that run"
            raise PurraError("invalid_argument", what, where="--folder", hint="leave one of them")
        on_store(store_plan(manifest, param, state), partial(_list_running, json=json))
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


async def _list_running(kernel: Kernel, *, json: bool) -> int:
    from purra.runs.kernels import kernels
    from purra_hosts.app import running

    found = list(running.of_plugin(await kernels(kernel.store, ended=True)))
    if json:
        for item in found:
            json_line(running.value(*item))
        return exits.COMPLETED
    print_table(running.TITLES, [running.row(*item) for item in found])
    if not found:
        typer.echo("note: no kernel runs on this store", err=True)
    return exits.COMPLETED


@app.command(no_args_is_help=True)
def show(
    plugin: Annotated[str, typer.Argument(metavar="PLUGIN", help="The plugin's id.")],
    manifest: Running = None,
    folder: Folders = None,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Show one plugin: what it offers, wants and is configured by. Starts nothing.

    With --manifest also how it is in each kernel that runs on its store: process, calls, isolation
    per axis, last error.
    """
    if manifest is None:
        found = _named(find_plugins(folder or ()), plugin)
        _show(found, None, json=json)
        return
    plan = store_plan(manifest, param, state)
    found = _named(find_plugins([*plan.host.folders, *(folder or ())]), plugin)

    async def work(kernel: Kernel) -> int:
        from purra.runs.kernels import kernels

        _show(found, await kernels(kernel.store, ended=True), json=json)
        return exits.COMPLETED

    on_store(plan, work)


def _show(found: Discovered, kernels: Iterable[KernelInfo] | None, *, json: bool) -> None:
    """`kernels`: None = nobody has asked for them."""
    from purra_hosts.app import running

    items = list(running.of_plugin(kernels or (), found.id))
    if json:
        told = [running.value(*item) for item in items]
        json_line(_value(found) | ({} if kernels is None else {"running": told}))
        return
    lines = list(_described(found))
    for kernel, _, status in items:
        lines += [("", ""), *running.described(kernel, status)]
    if kernels is not None and not items:
        lines += [("kernel", "none has it now")]
    for name, text in lines:
        typer.echo(f"{name:<12} {text}".rstrip())


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
