"""What may be wrong with an installation, looked at in order, each with the mend.

A finding is a line: what it is about, whether it is well, what was found, what to do. What is well
but worth knowing has something to do as well, and does not count as wrong. Looking changes nothing:
no folder is made, and the only code of plugins that runs is that of plugins under development, in a
process that is restricted as a worker is (`scaffold.describing`), and that of the plugins of a host
manifest, if one is named, in workers.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from purra.errors import PurraError
from purra.manifest.placeholders import state_folder
from purra.registry.discovery import Discovered, Discovery
from purra_hosts.app.environments import data_folder, in_use
from purra_hosts.app.plan import Plan

__all__ = ["Finding", "broken_plugins", "installation", "started"]

DISTRIBUTION: Final = "purra-kernel"
SPACE_BYTES: Final = 100 * 1024**2
"""Less free space than that is worth saying: a journal that cannot grow ends its runs."""
_DEMANDED: Final = ("fs", "net", "exec", "ipc", "env")
"""What `[isolation] require = true` demands at the level that is the default."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a check-up. `mend`: what to do, "" = nothing."""

    about: str
    text: str
    ok: bool = True
    mend: str = ""

    @property
    def mark(self) -> str:
        """How it begins: well, worth knowing, or wrong."""
        return ("tip" if self.mend else "ok") if self.ok else "BAD"


def installation(discovery: Discovery) -> Iterator[Finding]:
    """Everything that can be said without starting a plugin."""
    yield Finding("python", f"{platform.python_version()}, {sys.executable}")
    yield _platform()
    yield from _packages(discovery)
    yield from _folders()
    yield from _isolation()
    yield from broken_plugins(discovery)
    yield from _half_made()
    yield from _plugins(discovery)


def broken_plugins(discovery: Discovery) -> Iterator[Finding]:
    """Plugins that cannot be used, and another project with a package of our name."""
    if discovery.foreign:
        text = f"{discovery.foreign} has a package of our name"
        yield Finding("purra", text, ok=False, mend="uninstall it, or use another environment")
    for found in discovery.plugins:
        if found.state != "ok":
            yield Finding(found.id, found.reason, ok=False, mend=found.hint)


async def started(plan: Plan) -> list[Finding]:
    """Starts every plugin of a plan, one after the other, and stops them again."""
    from purra_bridge.wire.errors import WireError
    from purra_hosts.app.assembly import make_state
    from purra_hosts.process.supervisor import ProcessHost

    make_state(plan)
    findings: list[Finding] = []
    async with ProcessHost() as host:
        for name, launch in plan.launches.items():
            route = host.add(launch)
            try:
                await route.start()
            except WireError as error:
                text = f"does not start: {error.message} [{error.code}]"
                mend = f"`purra plugins show {name}` says what it is and where"
                findings.append(Finding(name, text, ok=False, mend=mend))
                continue
            axes = "; ".join(f"{axis} {level}" for axis, level in route.status().isolation.items())
            findings.append(Finding(name, f"starts; isolation: {axes}"))
    return findings


# --- the machine --------------------------------------------------------------------------------


def _platform() -> Finding:
    text = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform == "win32":
        mend = "plugins in processes need Linux or macOS; use Linux in a virtual machine or WSL"
        return Finding("platform", text, ok=False, mend=mend)
    if sys.platform != "linux":
        return Finding("platform", text, mend="nothing isolates plugins here; Linux does")
    return Finding("platform", text)


def _folders() -> Iterator[Finding]:
    places = {
        "state": ("XDG_STATE_HOME", state_folder("any", None, os.environ).parent),
        "data": ("XDG_DATA_HOME", data_folder()),
        "temporary": ("TMPDIR", Path(tempfile.gettempdir())),
    }
    for name, (variable, folder) in places.items():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        mend = f"let {variable} name a folder that can be written"
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            text = f"{folder} cannot be written, because of {there}"
            yield Finding(f"{name} folder", text, ok=False, mend=mend)
        elif (free_bytes := shutil.disk_usage(there).free) < SPACE_BYTES:
            text = f"{folder}: {free_bytes // 1024**2} MiB are free"
            yield Finding(f"{name} folder", text, mend=f"make room, or {mend}")
        else:
            made = "" if folder.exists() else ", made when it is needed"
            yield Finding(f"{name} folder", f"{folder}{made}")


def _isolation() -> Iterator[Finding]:
    """What a worker without any grant would get here, found by trying."""
    from purra_hosts.isolation.machine import probe
    from purra_hosts.isolation.policy import Jail
    from purra_hosts.launch import Launch

    sample = Launch("sample", "0", Path(), Path(), "", (), sys.executable, entry="sample:plugin")
    for axis, claim in Jail(sample, probe()).claims.items():
        short = axis in _DEMANDED and not claim.startswith(("enforced", "granted"))
        mend = "plugins are not kept from it here; that takes Linux with Landlock and seccomp"
        yield Finding(f"isolation {axis}", claim, mend=mend if short else "")


# --- what is installed --------------------------------------------------------------------------


def _packages(discovery: Discovery) -> Iterator[Finding]:
    try:
        ours = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        mend = "install it: plugins and commands are found by what an installer writes down"
        yield Finding("packages", f"{DISTRIBUTION} is not installed", ok=False, mend=mend)
        return
    wrong = list(_unmet(ours.requires or ()))
    for text in wrong:
        mend = f"{sys.executable} -m pip install --upgrade {DISTRIBUTION}"
        yield Finding("packages", text, ok=False, mend=mend)
    if not wrong:
        yield Finding("packages", f"{DISTRIBUTION} {ours.version} and all that it needs")
    if importlib.util.find_spec("msgpack._cmsgpack") is None:
        mend = "install msgpack as a wheel for this Python"
        yield Finding("packages", "msgpack runs without its compiled part, slowly", mend=mend)
    if importlib.util.find_spec("pip") is None:
        mend = f"{sys.executable} -m ensurepip"
        yield Finding("packages", "pip is not here, so plugins cannot be installed", mend=mend)
    for note in discovery.notes:
        empty = note.startswith("the folder ")
        mend = "name a folder with plugins" if empty else "remove the one that is not wanted"
        yield Finding("packages", note, mend=mend)


def _unmet(requirements: Sequence[str]) -> Iterator[str]:
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            yield f"{wanted.name} is not installed"
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            yield f"{wanted.name} {version} does not fit {wanted.specifier}"


def _half_made() -> Iterator[Finding]:
    data = data_folder()
    for folder in sorted(data.iterdir()) if data.is_dir() else ():
        chosen = in_use(folder)
        if chosen is None or not (folder / chosen.folder).is_dir():
            text = f"{folder} has no environment that is whole"
            yield Finding(folder.name, text, ok=False, mend=f"remove {folder}, and install again")


def _plugins(discovery: Discovery) -> Iterator[Finding]:
    """Who can be used, and manifests that have fallen behind code that is worked on here."""
    well = [found for found in discovery.plugins if found.state == "ok"]
    for found in well:
        problem = _behind(found) if _is_developed(found) else None
        if problem is not None:
            yield problem
    names = ", ".join(found.id for found in well)
    yield Finding("plugins", f"{len(well)} can be used{': ' if names else ''}{names}")


def _is_developed(found: Discovered) -> bool:
    """Whether its code lies where its author edits it, and not where an installer put it."""
    inside = found.path is not None and "site-packages" in found.path.parts
    return not inside and found.manifest is not None and found.manifest.runs.entry is not None


def _behind(found: Discovered) -> Finding | None:
    from purra_hosts.app.scaffold.describing import describe
    from purra_hosts.app.scaffold.specs import specs

    manifest: Any = found.manifest
    try:
        described = describe(manifest, found.sys_path, found.python or sys.executable)
        differences = specs(manifest.path.read_text(encoding="utf-8"), described).differences
    except PurraError as error:
        return Finding(found.id, error.message, ok=False, mend=error.hint or "mend its code")
    if not differences:
        return None
    more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
    mend = f"purra plugins manifest {manifest.path.parent} --write"
    return Finding(found.id, f"its manifest: {differences[0]}{more}", ok=False, mend=mend)
