"""MAN-004, 007, 009, 010: the manifest and what is really there."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from purra.errors import PurraError
from purra.manifest.plugin import FILE_NAME, load_plugin
from purra_bridge.wire.errors import WireError
from purra_tck.checks import Checks
from purra_tck.fixtures import Example
from purra_tck.subjects.plugin import PluginSubject, Running, about_plugin
from purra_tck.subjects.plugin_hands import picture
from purra_tck.subjects.plugin_manifests import judge_own, manifest_copy
from purra_tck.subjects.plugin_package import BUILDING, build_wheel, install_wheel, installed_in
from purra_tck.verdict import Case, NotApplicable, RuleViolation, Untestable

__all__ = ["CHECKS"]

CHECKS = Checks("MAN")

PROBE_S: Final = 3.0
METHODS: Final = {
    "model": ("profile", "generate"),
    "tool": ("call",),
    "context": ("demand", "provide", "compress"),
    "policy": ("decide",),
    "store": ("commit", "read", "get", "scan", "watch", "now", "blob_put", "blob_get"),
}
"""Every method of every contract."""
ASKED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "model": ("profile", {}),
    "context": ("demand", {"run": "tck", "session": "", "prompt": ""}),
    "store": ("now", {}),
}
"""A call of each kind that asks for nothing. Of tools only what their author calls safe is done."""
STRANGE: Final = ("tck-not-there", "admin", "debug", "eval", "")
"""Adapters that nobody declares."""


@CHECKS.rule("MAN-004")
@about_plugin
async def what_is_declared_is_what_is_served(case: Case, subject: PluginSubject) -> None:
    """What works without being declared was never granted, reviewed or bounded by anybody."""
    judge_own(case, subject)
    running = await subject.start()
    case.saw(f"READY offers {list(running.launch.offers)}")
    for adapter, method in _undeclared(subject):
        reply = await running.ask(adapter, method, {"arguments": {}}, timeout_s=PROBE_S)
        refused = reply.error is not None and reply.error.origin in ("plugin", "caller")
        case.require(
            refused and not reply.items,
            f"{adapter!r}.{method} is refused: {FILE_NAME} does not declare it (add a "
            "[[provides]], or stop serving it)",
            f"{adapter!r}.{method}: {reply}",
        )
    for name, method, args in _declared(subject):
        reply = await running.ask(name, method, args, timeout_s=PROBE_S)
        case.require(
            reply.error is None,
            f"{name}.{method} works: it is declared",
            f"{name}.{method}: {reply}",
        )


def _declared(subject: PluginSubject) -> Iterator[tuple[str, str, Any]]:
    """A call of each adapter that is known to be harmless."""
    for offer in subject.manifest.offers:
        if offer.kind in ASKED:
            yield (offer.name, *ASKED[offer.kind])
    for example in subject.fixtures.tool.safe:
        yield example.tool, "call", {"arguments": subject.filled(dict(example.args))}


def _undeclared(subject: PluginSubject) -> Iterator[tuple[str, str]]:
    for offer in subject.manifest.offers:
        for kind, methods in METHODS.items():
            if kind != offer.kind:
                yield from ((offer.name, method) for method in methods)
        yield from ((offer.name, name) for name in ("tck_nothing", "__init__", "setup", "close"))
        yield offer.name.swapcase(), METHODS[offer.kind][0]
    for name in STRANGE:
        yield from ((name, methods[0]) for methods in METHODS.values())


@CHECKS.rule("MAN-007")
@about_plugin
async def what_was_judged_is_what_runs(case: Case, subject: PluginSubject) -> None:
    """A manifest that is swapped between its reading and the start would be a contract that nobody
    has read.
    """
    judge_own(case, subject)
    path = manifest_copy(subject)
    manifest = load_plugin(path)
    launch = subject.launch(
        manifest_path=path, manifest_sha256=manifest.sha256, folder=subject.manifest.path.parent
    )
    first = await subject.start(launch)
    case.saw(f"it starts with the manifest {manifest.sha256[:12]}")
    await first.end()
    with path.open("ab") as file:
        file.write(b"\n# changed after it was judged\n")
    expected = "a start with a manifest that has changed is refused (manifest_mismatch)"
    try:
        await subject.try_start(launch)
    except WireError as error:
        case.require(error.code == "manifest_mismatch", expected, str(error))
        return
    raise RuleViolation(expected, "it started with other bytes than were judged")


# --- MAN-009 ------------------------------------------------------------------------------------


@CHECKS.rule("MAN-009")
@about_plugin
async def it_works_as_it_is_installed(case: Case, subject: PluginSubject) -> None:
    """A manifest that is only in the source tree is found by its author and by nobody else."""
    judge_own(case, subject)
    package = subject.package
    if package.form == "folder" and package.project is None:
        raise NotApplicable("a folder that is no package: there is nothing to install")
    if package.form == "installed" and package.project is None:
        _is_recorded(case, package.path)
        await subject.start()
        return
    if package.form == "wheel":
        case.saw(f"installed from {package.wheel} into {package.path.parent}")
        await subject.start()
        return
    installed = await _installed_anew(case, subject)
    launch = subject.launch()
    clean = replace(
        launch,
        folder=installed.path.parent,
        manifest_path=installed.path,
        manifest_sha256=installed.manifest.sha256,
        sys_path=installed.sys_path,
        python=installed.python,
    )
    await subject.start(clean)
    case.saw(f"it starts from {installed.path.parent}")


async def _installed_anew(case: Case, subject: PluginSubject) -> Any:
    """The project, built and installed into an environment of its own, once for all checks."""
    package = subject.package
    if package.room is None or package.project is None:
        raise Untestable("there is no room to build it in")
    room = package.room / "built"
    expected = f"the package that {package.project} builds has the manifest and starts"
    try:
        wheels = sorted(room.glob("*.whl"))
        if wheels:
            wheel = wheels[0]
        else:
            room.mkdir(exist_ok=True)
            wheel = await anyio.to_thread.run_sync(build_wheel, package.project, room)
        python = room / "clean" / "bin" / "python"
        if not python.exists():
            links = package.fixtures.find_links
            folders = (package.fixtures.folder / links,) if links else ()
            python = await anyio.to_thread.run_sync(install_wheel, wheel, room / "clean", folders)
        installed = installed_in(python, package.where, wheel)
    except PurraError as error:
        if error.where == "pip" and error.message.startswith(BUILDING):
            raise Untestable(
                f"the package cannot be built here: {error.message}",
                "its build backend to this environment, or give the wheel itself",
            ) from None
        raise RuleViolation(expected, str(error)) from None
    if installed.manifest is None:
        raise RuleViolation(expected, str(installed.refusal))
    same = installed.manifest.sha256 == subject.manifest.sha256
    case.require(same, "the installed manifest is the project's", f"{wheel.name}: equal {same}")
    return installed


def _is_recorded(case: Case, path: Path) -> None:
    """The manifest is a file of an installed distribution."""
    for site in path.parents:
        for record in site.glob("*.dist-info/RECORD"):
            with record.open(newline="", encoding="utf-8") as file:
                names = {row[0] for row in csv.reader(file) if row}
            if str(path.relative_to(site)) in names:
                name = Distribution.at(record.parent).metadata["Name"]
                case.saw(f"{path.name} is a file of the distribution {name}")
                return
    raise RuleViolation(
        "the manifest is a file of the installed package",
        f"{path} is in no RECORD: it was put there by something else",
    )


# --- MAN-010 ------------------------------------------------------------------------------------


@CHECKS.rule("MAN-010")
@about_plugin
async def two_versions_share_nothing(case: Case, subject: PluginSubject) -> None:
    """Two versions run beside each other during every upgrade. What both write to one place is
    written by one and read by the other.
    """
    judge_own(case, subject)
    fixed = [path for path in subject.manifest.capabilities.fs_write if path.startswith("/")]
    case.require(
        not fixed,
        "every place that it writes to is configured: capabilities.fs.write names config keys",
        f"places that are the same for every version: {fixed}",
    )
    one, other = subject.beside("one"), subject.beside("other")
    await one.start()
    version = f"{subject.manifest.version.partition('+')[0]}+tck"

    def newer(table: dict[str, Any]) -> None:
        table["version"] = version

    path = manifest_copy(other, newer)
    manifest = load_plugin(path)
    launch = other.launch(version=version, manifest_path=path, manifest_sha256=manifest.sha256)
    before, package = picture(one.scratch), _sources(subject)
    running = await other.start(launch)
    for example in subject.fixtures.tool.safe:
        await _do(running, other, example)
    changed = {name for name, what in picture(one.scratch).items() if before.get(name) != what}
    case.require(
        not changed, "one version does not touch what the other has", f"changed: {sorted(changed)}"
    )
    new = sorted(set(_sources(subject)) - set(package))
    case.require(not new, "it writes nothing into its package", f"new files: {new}")


async def _do(running: Running, subject: PluginSubject, example: Example) -> None:
    args = {"arguments": subject.filled(dict(example.args))}
    await running.ask(example.tool, "call", args)


def _sources(subject: PluginSubject) -> list[str]:
    names = picture(subject.package.path.parent)
    return [name for name in names if "__pycache__" not in name]
