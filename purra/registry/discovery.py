"""Which plugins are there: metadata and manifest files, read as data. The only knower of pluggy.

What is found is listed; nothing found is started, imported or trusted (design, invariant 1). A
plugin's code may raise, sleep or write when it is imported: discovery cannot notice (LIF-008, H77).

Each found plugin is registered with a pluggy plugin manager as a data object with the one hook
`purra_manifest`, under its id, and the answer of that hook is the result. So blocking an id and
ordering are pluggy's, and a trusted in-process source of further manifests would be one more
implementation of the hook. pluggy's own `load_setuptools_entrypoints` is not used: it imports, it
stops at the first plugin that fails, and it silently skips the second plugin of one name (H76).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import pluggy
from packaging.version import InvalidVersion, Version

from purra.errors import PurraError
from purra.manifest.names import RefusedError, folded, parse_id
from purra.manifest.plugin import FILE_NAME, PluginManifest, load_plugin
from purra.manifest.source import claimed_id
from purra.registry.installed import Installed, NotLocatedError, installed, worker_folders

__all__ = ["GROUP", "Discovered", "Discovery", "Environment", "State", "discover"]

GROUP: Final = "purra.plugins"
"""Entry point group: the name is the plugin's id, the value the package with its manifest."""
PROJECT: Final = "purra"
"""A distribution of this name is somebody else's; ours is `purra-kernel`."""

State = Literal["ok", "broken", "conflict"]

_PACKAGE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z", re.ASCII)
_OURS: Final = frozenset({"purra-kernel"})

_spec = pluggy.HookspecMarker(PROJECT)
_impl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class Discovered:
    """One plugin as it is installed.

    `state`: `ok` (then `manifest` is set), `broken` (`reason` and `hint` say why and what to do),
    or `conflict` (`reason` names both owners). `owner`: for people, a distribution with its version
    or a folder. `distribution`, `version`: empty for a folder. `sys_path`: what the plugin's worker
    must import from, in order. `python`: the interpreter of its own environment, "" = ours.
    `notes`: things to know that do not stop it. `sha256`: of the bytes of the manifest at `path`,
    64 hex digits.
    """

    id: str
    state: State
    owner: str
    manifest: PluginManifest | None = None
    path: Path | None = None
    sha256: str = ""
    reason: str = ""
    hint: str = ""
    distribution: str = ""
    version: str = ""
    sys_path: tuple[str, ...] = ()
    python: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that is a plugin's own: its interpreter, and the folders of its packages."""

    python: Path
    sites: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Discovery:
    """Everything found, by id. `notes`: what was passed over, and why.

    `foreign`: an installed distribution named `purra` that is not ours and provides a package of
    our name, or None. A kernel must not start beside it.
    """

    plugins: tuple[Discovered, ...]
    notes: tuple[str, ...]
    foreign: str | None

    def get(self, plugin: str) -> Discovered | None:
        """The plugin of that id."""
        return next((found for found in self.plugins if found.id == plugin), None)


def discover(
    *,
    path: Sequence[str] | None = None,
    folders: Iterable[Path] = (),
    environments: Iterable[Environment] = (),
    blocked: Iterable[str] = (),
) -> Discovery:
    """Finds the plugins that are installed on `path` (default: this process's search path), those
    in `folders` (each with a manifest in it, or one level below) and those in `environments`. Ids
    in `blocked` are left out.

    Raises nothing for a broken plugin: it is listed with the reason.
    """
    known, shadowed = installed(sys.path if path is None else path)
    notes = [str(item) for item in shadowed if _has_plugins(item.hidden)]
    claims = [*_from_distributions(known, notes), *_from_folders(folders, known, notes)]
    for environment in environments:
        claims += _from_environment(environment, notes)
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(_Hooks)
    for name in blocked:
        manager.set_blocked(name)
    for found in _settled(claims, notes):
        manager.register(_Found(found), name=found.id)
    plugins: list[Discovered] = manager.hook.purra_manifest()
    foreign = known.get(PROJECT)
    return Discovery(
        plugins=tuple(sorted(plugins, key=lambda found: found.id)),
        notes=tuple(notes),
        foreign=f"{foreign} in {foreign.site}" if foreign and foreign.provides(PROJECT) else None,
    )


class _Hooks:
    @_spec
    def purra_manifest(self) -> Discovered:
        """One found plugin, as data."""
        raise NotImplementedError  # pluggy reads the signature and never calls this


class _Found:
    def __init__(self, found: Discovered) -> None:
        self._found = found

    @_impl
    def purra_manifest(self) -> Discovered:
        return self._found


def _has_plugins(distribution: Installed) -> bool:
    try:
        return any(True for _ in distribution.entry_points(GROUP))
    except NotLocatedError:
        return False


def _from_distributions(known: Mapping[str, Installed], notes: list[str]) -> Iterator[Discovered]:
    for distribution in known.values():
        try:
            points = list(distribution.entry_points(GROUP))
        except NotLocatedError as error:
            notes.append(error.reason)
            continue
        for name, value in points:
            yield _installed_plugin(name, value, distribution, known)


def _installed_plugin(
    name: str, value: str, distribution: Installed, known: Mapping[str, Installed]
) -> Discovered:
    found = Discovered(
        id=name,
        state="broken",
        owner=str(distribution),
        distribution=distribution.name,
        version=distribution.version,
    )
    try:
        parse_id(name)
        if not _PACKAGE.match(value):
            raise RefusedError(f"the entry point's value {value!r} is not the name of a package")
        located = distribution.locate(value, FILE_NAME)
    except (RefusedError, NotLocatedError) as error:
        return replace(found, reason=error.reason, hint=error.hint)
    others = {key: item for key, item in known.items() if key not in _OURS}
    roots = dict.fromkeys([*located.roots, *worker_folders(distribution, others)])
    found = _read(replace(found, sys_path=tuple(roots)), located.path)
    if found.manifest and _differ(found.manifest.version, distribution.version):
        note = f"its manifest says version {found.manifest.version}"
        return replace(found, notes=(note,))
    return found


def _from_environment(environment: Environment, notes: list[str]) -> Iterator[Discovered]:
    """Its plugins see its own packages and nothing of ours."""
    known, _ = installed([str(site) for site in environment.sites])
    for found in _from_distributions(known, notes):
        isolated = replace(
            found, owner=f"{found.owner} in its own environment", python=str(environment.python)
        )
        if isolated.state == "ok" and not os.access(environment.python, os.X_OK):
            yield replace(
                isolated,
                state="broken",
                manifest=None,
                reason=f"its interpreter {environment.python} is not there any more",
                hint=f"`purra plugins upgrade {found.id}` makes its environment anew",
            )
            continue
        yield isolated


def _from_folders(
    folders: Iterable[Path], known: Mapping[str, Installed], notes: list[str]
) -> Iterator[Discovered]:
    sites = dict.fromkeys(str(item.site) for item in known.values())
    for folder in folders:
        direct = folder / FILE_NAME
        manifests = [direct] if direct.is_file() else sorted(folder.glob(f"*/{FILE_NAME}"))
        if not manifests:
            notes.append(f"the folder {folder} has no {FILE_NAME}, also not one level below")
        for path in manifests:
            found = _read(Discovered("", "broken", f"folder {path.parent}"), path)
            root = _import_root(path.parent, found.manifest)
            yield replace(found, sys_path=(str(root), *sites))


def _import_root(folder: Path, manifest: PluginManifest | None) -> Path:
    """Where the entry's module is found: beside the manifest, or above if that is its package."""
    top = (manifest.runs.entry or "" if manifest else "").partition(":")[0].partition(".")[0]
    inside_package = folder.name == top and not (folder / f"{top}.py").exists()
    return folder.parent if inside_package else folder


def _read(found: Discovered, path: Path) -> Discovered:
    """`found` with the manifest at `path`, or with the reason why there is none."""
    found = replace(found, path=path)
    try:
        manifest = load_plugin(path)
    except PurraError as error:
        name = found.id or claimed_id(path) or path.parent.name
        return replace(found, id=name, reason=f"{error.where}: {error.message}", hint=error.hint)
    if found.id and manifest.id != found.id:
        return replace(
            found,
            reason=f"the entry point is named {found.id!r}, its manifest says id = {manifest.id!r}",
            hint="give both one name",
        )
    return replace(found, id=manifest.id, state="ok", manifest=manifest, sha256=manifest.sha256)


def _settled(claims: Iterable[Discovered], notes: list[str]) -> Iterator[Discovered]:
    """One result per id; several claims of one id are a conflict, unless they are one file."""
    by_id: dict[str, list[Discovered]] = {}
    for claim in claims:
        rivals = by_id.setdefault(folded(claim.id), [])
        same = [rival for rival in rivals if _same_plugin(rival, claim)]
        if same:
            notes.append(f"{claim.owner} is {same[0].owner}, found twice")
        else:
            rivals.append(claim)
    for rivals in by_id.values():
        first = rivals[0]
        if len(rivals) == 1:
            yield first
            continue
        owners = " and ".join(rival.owner for rival in rivals)
        yield Discovered(
            id=first.id,
            state="conflict",
            owner=owners,
            reason=f"the id {first.id!r} is claimed by {owners}",
            hint="uninstall one of them",
        )


def _same_plugin(one: Discovered, other: Discovered) -> bool:
    """Whether a folder is the source of an installed plugin, or another name of a folder.

    Two distributions never are: whichever is uninstalled takes the file of the other with it.
    """
    if one.path is None or other.path is None or (one.distribution and other.distribution):
        return False
    return os.path.realpath(one.path) == os.path.realpath(other.path)


def _differ(one: str, other: str) -> bool:
    try:
        return Version(one) != Version(other)
    except InvalidVersion:
        return one != other
