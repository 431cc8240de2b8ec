"""From what a person names (an id, a folder, a wheel) to the plugin that is judged.

A wheel is installed into a new virtual environment, offline and with nothing else, and what is
judged is what lies there: a package that only works from its source tree fails. A manifest that is
refused is not the end: the package is judged all the same, so that the refusal is a verdict with
its place and mend and not a usage error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from purra.errors import PurraError
from purra.manifest.plugin import FILE_NAME, PluginManifest, load_plugin
from purra.registry.discovery import Discovered, discover
from purra_tck.fixtures import Fixtures, find_fixtures, load_fixtures

__all__ = ["BUILDING", "Package", "build_wheel", "find_package", "install_wheel", "installed_in"]

PIP_TIMEOUT_S: Final = 120.0
SOURCES: Final = ("", "src")
"""Where packages lie in a project."""
_QUIET: Final = ("--quiet", "--disable-pip-version-check", "--no-input")
TAIL_CHARS: Final = 1500
BUILDING: Final = "building it"
BACKEND: Final = """
import importlib, sys
name, folder, *paths = sys.argv[1:]
sys.path[:0] = paths
module, _, attribute = name.partition(":")
backend = importlib.import_module(module)
for part in filter(None, attribute.split(".")):
    backend = getattr(backend, part)
backend.build_wheel(folder)
"""
"""A program: asks a build backend for a wheel of the current folder."""
LEFT_OUT: Final = (".*", "__pycache__", "node_modules", "build", "dist", "*.egg-info")


@dataclass(frozen=True, slots=True)
class Package:
    """One plugin, as it is to be launched.

    `path`: its manifest. `manifest` None: it was refused, with `refusal`. `form`: how it is there.
    `project`: the folder with its pyproject.toml, None if there is none or it is not known.
    `wheel`: the file that it was installed from. `digest`: `sha256:` of the wheel, else of the
    manifest. `room`: a folder of the kit's for what is built once.
    """

    where: str
    form: Literal["folder", "installed", "wheel"]
    path: Path
    sys_path: tuple[str, ...]
    python: str
    manifest: PluginManifest | None
    refusal: PurraError | None = None
    project: Path | None = None
    wheel: Path | None = None
    digest: str = ""
    fixtures: Fixtures = field(default_factory=Fixtures)
    room: Path | None = None

    @property
    def name(self) -> str:
        return self.manifest.id if self.manifest else self.path.parent.name


def find_package(where: str, room: Path, fixtures: Path | None = None) -> Package:
    """The plugin that `where` names: an id, a folder, a manifest, a wheel, or a `tck.toml`.

    `room`: a folder for the environment of a wheel. `fixtures`: a `tck.toml` instead of the
    plugin's own. Raises `PurraError`: `plugin_not_found`, `plugin_broken`, `plugin_conflict`,
    `invalid_manifest` for a wrong `tck.toml`.
    """
    told = None if fixtures is None else load_fixtures(fixtures)
    path = Path(where)
    if path.suffix == ".toml" and path.name != FILE_NAME and path.is_file():
        told = load_fixtures(path)
        where, path = _subject_of(told)
    if path.suffix == ".whl":
        package = _wheel_package(where, path, room / "judged", told)
    elif path.name == FILE_NAME:
        package = _folder_package(where, path.parent)
    elif "/" in where or path.is_dir():
        package = _folder_package(where, path)
    else:
        package = _installed_package(where)
    return replace(package, fixtures=told or find_fixtures(package.path), room=room)


def _subject_of(told: Fixtures) -> tuple[str, Path]:
    for text in (told.manifest, told.wheel):
        if text:
            return str(told.folder / text), told.folder / text
    if told.plugin:
        return told.plugin, Path(told.plugin)
    raise PurraError(
        "invalid_argument",
        "it names no subject",
        where=str(told.path),
        hint='add:\n[subject]\nmanifest = "path/to/purra-plugin.toml"',
    )


# --- a folder -----------------------------------------------------------------------------------


def _folder_package(where: str, folder: Path) -> Package:
    folder = folder.resolve()
    manifests = [folder / FILE_NAME] if (folder / FILE_NAME).is_file() else []
    for source in SOURCES:
        manifests = manifests or sorted((folder / source).glob(f"*/{FILE_NAME}"))
    if len(manifests) != 1:
        found = "no plugin" if not manifests else f"{len(manifests)} plugins"
        raise PurraError(
            "plugin_not_found",
            f"{found} in {folder}",
            where="tck plugin",
            hint=f"give the folder that {FILE_NAME} is in",
        )
    (path,) = manifests
    # Nothing but the folder and what is installed beside it: an id may be installed as well.
    roots = discover(path=[], folders=[path.parent]).plugins[0].sys_path
    sites = tuple(entry for entry in sys.path if entry.endswith("site-packages"))
    project = next(
        (up for up in (path.parent, *path.parents[1:3]) if (up / "pyproject.toml").is_file()), None
    )
    package = Package(where, "folder", path, (*roots, *sites), sys.executable, None)
    return replace(_read(package), project=project)


# --- an installed plugin ------------------------------------------------------------------------


def _installed_package(where: str) -> Package:
    found = discover().get(where)
    if found is None:
        raise PurraError(
            "plugin_not_found",
            f"no plugin {where!r} is installed",
            where="tck plugin",
            hint="`purra plugins list` shows what there is; a folder is written with a slash",
        )
    return _of_discovered(where, found, sys.executable)


def _of_discovered(where: str, found: Discovered, python: str) -> Package:
    if found.state == "conflict":
        raise PurraError("plugin_conflict", found.reason, where=where, hint=found.hint)
    if found.path is None:
        raise PurraError("plugin_broken", found.reason, where=where, hint=found.hint)
    package = Package(where, "installed", found.path, found.sys_path, python, None)
    project = found.path.parent.parent
    known = project if (project / "pyproject.toml").is_file() else None
    return replace(_read(package), project=known)


def _read(package: Package) -> Package:
    try:
        manifest = load_plugin(package.path)
    except PurraError as error:
        return replace(package, refusal=error)
    return replace(package, manifest=manifest, digest=f"sha256:{manifest.sha256}")


# --- a wheel ------------------------------------------------------------------------------------


def _wheel_package(where: str, wheel: Path, room: Path, told: Fixtures | None) -> Package:
    if not wheel.is_file():
        raise PurraError("plugin_not_found", f"there is no file {wheel}", where="tck plugin")
    links = (told.folder / told.find_links,) if told and told.find_links else ()
    python = install_wheel(wheel, room, links)
    return installed_in(python, where, wheel)


def installed_in(python: Path, where: str, wheel: Path) -> Package:
    """The plugin that the environment of `python` has, which came from `wheel`.

    What is wrong with it as a package is its `refusal`, as what is wrong with its manifest.
    """
    sites = [str(site) for site in python.parent.parent.glob("lib/python*/site-packages")]
    plugins = discover(path=sites).plugins
    nowhere = Path(sites[0] if sites else str(wheel.parent), FILE_NAME)
    digest = "sha256:" + hashlib.sha256(wheel.read_bytes()).hexdigest()
    package = Package(where, "wheel", nowhere, (), str(python), None, wheel=wheel, digest=digest)
    if len(plugins) != 1:
        refusal = PurraError(
            "plugin_broken",
            f"the package installs {len(plugins)} plugins, not one",
            where=wheel.name,
            hint='it needs one entry point: [project.entry-points."purra.plugins"]',
        )
        return replace(package, refusal=refusal)
    (found,) = plugins
    if found.path is None:
        refusal = PurraError("plugin_broken", found.reason, where=f"{wheel.name}", hint=found.hint)
        return replace(package, refusal=refusal)
    return replace(_read(replace(package, path=found.path, sys_path=found.sys_path)), digest=digest)


def install_wheel(wheel: Path, room: Path, links: Sequence[Path] = ()) -> Path:
    """A new virtual environment in `room` with the wheel and nothing else; its interpreter.

    `links`: folders with the wheels that it depends on; without them no dependency is installed.
    Nothing is taken from the network. Raises `PurraError(plugin_broken)` with what pip says.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(room)], "a virtual environment")
    python = room / "bin" / "python"
    options = [f"--find-links={folder}" for folder in links] if links else ["--no-deps"]
    argv = [sys.executable, "-m", "pip", "--python", str(python), "install", *_QUIET]
    _run([*argv, "--no-index", "--no-compile", *options, str(wheel)], f"installing {wheel.name}")
    return python


def build_wheel(project: Path, folder: Path) -> Path:
    """Builds a copy of the project with the backend that is installed here; the file, in `folder`.

    Asks the backend itself (PEP 517): a frontend would do no more, and takes a second to start.
    Raises `PurraError(plugin_broken)` with what the backend says.
    """
    copy = folder / "source"
    # Some backends leave folders in the tree that they build.
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    try:
        table = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))
        system = table.get("build-system", {})
        backend = str(system.get("build-backend", "setuptools.build_meta:__legacy__"))
        paths = [str(copy / path) for path in system.get("backend-path", ())]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise PurraError("plugin_broken", f"{BUILDING}: {error}", where="pip") from None
    argv = [sys.executable, "-c", BACKEND, backend, str(folder), *paths]
    _run(argv, BUILDING, copy)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise PurraError("plugin_broken", f"{BUILDING} made {len(wheels)} wheels", where="pip")
    return wheels[0]


def _run(argv: list[str], what: str, folder: Path | None = None) -> None:
    try:
        subprocess.run(
            argv,
            check=True,
            capture_output=True,
            env=_environment(),
            cwd=folder,
            timeout=PIP_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        tail = (error.stdout + error.stderr).decode(errors="replace")[-TAIL_CHARS:].strip()
        raise PurraError("plugin_broken", f"{what} failed: {tail}", where="pip") from None
    except subprocess.TimeoutExpired:
        raise PurraError(
            "plugin_broken", f"{what} took more than {PIP_TIMEOUT_S:g} s", where="pip"
        ) from None


def _environment() -> Mapping[str, str]:
    """Ours, without what would lead pip or Python elsewhere."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**kept, "PIP_CONFIG_FILE": os.devnull}
