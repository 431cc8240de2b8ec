"""Installing plugins: into this environment, or each into one of its own, by pip.

An environment of its own is for a plugin whose dependencies disagree with another's, or that should
not be able to bring anything along into the kernel's process. What is installed there is always a
wheel, built or fetched first, because only a wheel says whose environment it will be. Nothing of
ours is put into it: what a plugin imports of us is staged by the host.

A plugin is found only when everything has worked: the environment is made beside what is in use,
looked at as the host will look at it, and then chosen in one step (`environments`).
"""

from __future__ import annotations

import configparser
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from purra.errors import PurraError
from purra.manifest.names import RefusedError, parse_id
from purra.registry.discovery import GROUP, Discovered, discover
from purra_hosts.app.environments import (
    InUse,
    data_folder,
    environment_at,
    find_plugins,
    in_use,
    set_in_use,
)

__all__ = ["Pip", "install_here", "install_isolated", "uninstall", "upgrade"]

PIP_S: Final = 1800.0
"""Longest time of one call of pip: a large download, or a compiler."""
_QUIET: Final = ("--disable-pip-version-check", "--no-input", "--quiet")


@dataclass(frozen=True, slots=True)
class Pip:
    """How pip is called: further options, as typed, and who is told what is going on."""

    options: tuple[str, ...] = ()
    tell: Callable[[str], None] = lambda _: None

    def run(self, *arguments: str, doing: str, python: Path | None = None) -> None:
        """Runs pip, on the environment of `python` if one is given.

        Raises `PurraError(install_failed)` with the line in which pip says what was wrong.
        """
        if importlib.util.find_spec("pip") is None:
            raise _failed(doing, "pip is not installed here", "run `python -m ensurepip`")
        target = ["--python", str(python)] if python else []
        argv = [sys.executable, "-m", "pip", *target, *arguments, *_QUIET]
        self.tell(doing)
        try:
            ran = subprocess.run(
                argv, capture_output=True, env=_environment(), text=True, timeout=PIP_S
            )
        except subprocess.TimeoutExpired:
            raise _failed(doing, f"pip took more than {PIP_S:g} s") from None
        if ran.returncode != 0:
            raise _failed(doing, _reason(ran.stdout + ran.stderr))


def install_here(spec: str, pip: Pip, *, newer: bool = False) -> tuple[Discovered, ...]:
    """Installs `spec` into this environment; the plugins that came or changed.

    Raises `PurraError(install_failed)`.
    """
    before = {(found.id, found.version, found.sha256) for found in find_plugins().plugins}
    upgrading = ("--upgrade",) if newer else ()
    pip.run("install", spec, *upgrading, *pip.options, doing=f"installing {spec}")
    after = find_plugins().plugins
    return tuple(found for found in after if (found.id, found.version, found.sha256) not in before)


def install_isolated(spec: str, pip: Pip) -> Discovered:
    """Installs the one plugin of `spec` into a new environment of its own.

    Raises `PurraError`: `install_failed`, and `plugin_conflict` if its id is installed already;
    then nothing has changed.
    """
    return _isolate(spec, pip, replaces=None)


def upgrade(plugin: str, spec: str, pip: Pip) -> Discovered:
    """Installs a newer version of a plugin where it is; `spec` "" = as it was installed.

    Raises `PurraError`: `plugin_not_found`, `invalid_argument` for a plugin that lies in a folder,
    `install_failed` and then what was in use still is.
    """
    chosen = in_use(data_folder() / plugin)
    if chosen is not None:
        return _isolate(spec or chosen.spec, pip, replaces=plugin)
    found = _installed(plugin)
    install_here(spec or found.distribution, pip, newer=True)
    return _installed(plugin)


def uninstall(plugin: str, pip: Pip) -> str:
    """Removes a plugin, its own environment included; where it was, for people.

    Raises `PurraError`: `plugin_not_found`, `invalid_argument` for one that lies in a folder,
    `install_failed`.
    """
    folder = data_folder() / plugin
    if in_use(folder) is not None:
        gone = folder.with_name(f".{plugin}.{os.getpid()}")
        folder.rename(gone)  # in one step it is no longer found
        shutil.rmtree(gone, ignore_errors=True)
        return f"its own environment, {folder}"
    found = _installed(plugin)
    pip.run("uninstall", "--yes", found.distribution, doing=f"uninstalling {found.owner}")
    return f"{found.owner}, in this environment"


def _installed(plugin: str) -> Discovered:
    found = find_plugins().get(plugin)
    if found is None:
        raise PurraError(
            "plugin_not_found",
            f"no plugin {plugin!r} is installed",
            hint="`purra plugins list` shows what there is",
        )
    if not found.distribution:
        raise PurraError(
            "invalid_argument",
            f"{plugin} is {found.owner}, which no installer manages",
            hint="change the folder itself",
        )
    return found


# --- an environment of its own ------------------------------------------------------------------


def _isolate(spec: str, pip: Pip, *, replaces: str | None) -> Discovered:
    with tempfile.TemporaryDirectory(prefix="purra-wheel-") as folder:
        wheel = _wheel(spec, pip, Path(folder))
        plugin = _plugin_of(wheel)
        if replaces is None:
            _require_free(plugin, spec)
        elif plugin != replaces:
            raise _failed(f"upgrading {replaces}", f"{wheel.name} is the plugin {plugin!r}")
        home = data_folder() / plugin
        before = in_use(home)
        fresh = _made(home)
        try:
            found = _filled(fresh, wheel, plugin, pip)
            old = before.folder if before else ""
            set_in_use(home, InUse(fresh.name, _lasting(spec), old))
        except BaseException:  # also Ctrl-C: half an environment is none
            shutil.rmtree(fresh, ignore_errors=True)
            _remove_if_empty(home)
            raise
    _forget(home, keep={fresh.name, old})
    return found


def _wheel(spec: str, pip: Pip, folder: Path) -> Path:
    if spec.endswith(".whl") and os.path.isfile(spec):
        return Path(spec)
    pip.run(
        *("wheel", spec, "--no-deps", "--wheel-dir", str(folder)),
        *pip.options,
        doing=f"getting {spec}",
    )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise _failed(f"getting {spec}", f"it is {len(wheels)} packages, not one")
    return wheels[0]


def _plugin_of(wheel: Path) -> str:
    """The plugin's id, as the wheel's entry point says. Raises `PurraError(install_failed)`."""
    doing = f"installing {wheel.name}"
    points = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".dist-info/entry_points.txt") and name.count("/") == 1:
                    points.read_string(archive.read(name).decode("utf-8", "replace"))
    except (OSError, zipfile.BadZipFile, configparser.Error) as error:
        raise _failed(doing, f"it cannot be read: {error}") from None
    names = list(points[GROUP]) if points.has_section(GROUP) else []
    if len(names) != 1:
        what = "no plugin" if not names else f"{len(names)} plugins, not one"
        raise _failed(doing, f"the package has {what}", f'see [project.entry-points."{GROUP}"]')
    try:
        return parse_id(names[0])
    except RefusedError as error:
        raise _failed(doing, error.reason, error.hint) from None


def _require_free(plugin: str, spec: str) -> None:
    found = find_plugins().get(plugin)
    if found is None and in_use(data_folder() / plugin) is None:
        return
    owner = found.owner if found else f"an environment in {data_folder() / plugin}"
    raise PurraError(
        "plugin_conflict",
        f"the plugin {plugin!r} is installed already, by {owner}",
        where=f"install {spec}",
        hint=f"`purra plugins upgrade {plugin}` replaces it, `purra plugins uninstall {plugin}` "
        "removes it",
    )


def _made(home: Path) -> Path:
    """A new virtual environment below `home`: nothing but an interpreter."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="env-", dir=home))
        venv.create(fresh, symlinks=True)
    except OSError as error:
        raise _failed(f"making an environment in {home}", str(error)) from None
    return fresh


def _filled(fresh: Path, wheel: Path, plugin: str, pip: Pip) -> Discovered:
    """The plugin, installed with what it depends on, and found as the host will find it."""
    environment = environment_at(fresh)
    pip.run(
        *("install", str(wheel)),
        *pip.options,
        python=environment.python,
        doing=f"installing {wheel.name} and what it needs",
    )
    found = discover(path=[], environments=[environment_at(fresh)]).get(plugin)
    if found is None or found.state != "ok":
        reason = "it is not found" if found is None else found.reason
        raise _failed(f"installing {wheel.name}", reason, found.hint if found else "")
    return found


def _lasting(spec: str) -> str:
    """What was asked for, as it will still be understood in another folder."""
    return str(Path(spec).resolve()) if os.path.exists(spec) else spec


def _forget(home: Path, keep: set[str]) -> None:
    for path in home.glob("env-*"):
        if path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass  # something is in use there


def _reason(said: str) -> str:
    """The line in which pip says what was wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or ["it says nothing"])[-1]


def _failed(doing: str, reason: str, hint: str = "") -> PurraError:
    return PurraError("install_failed", reason, where=doing, hint=hint)


def _environment() -> Mapping[str, str]:
    """Ours, without what would lead Python elsewhere; settings of pip are the user's and stay."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
