"""Installed distributions, read as files: nothing is imported and no line of theirs is executed.

`importlib.metadata.distributions()` is close to what is needed and was not taken: it asks every
finder on `sys.meta_path`, which lets an import hook answer, and it caches listings by time stamp,
so that a reload could be shown removed versions (H08). Here each folder of the search path is
listed once per call, and `importlib.metadata` parses only the files of the distributions found.

An import name is turned into a file by what the installer wrote down: RECORD, else, for editable
installs, the path lines of the distribution's `.pth` files and `direct_url.json`. Lines of `.pth`
files that begin with `import` are code for the interpreter's start and are never run: an install
that only such a hook can find is reported as broken, with the remedy.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

__all__ = ["Installed", "Located", "NotLocatedError", "Shadowed", "installed", "worker_folders"]

PTH_MAX_BYTES: Final = 64 * 1024
"""Larger `.pth` files are data that somebody misnamed."""

_INFO: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]*)(?:-([^-]+))?(?:-[^/]*)?\.(?:dist|egg)-info\Z"
)


class NotLocatedError(Exception):
    """A file that a distribution should have cannot be found: `reason`, and what to do: `hint`."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Located:
    """A file of a distribution, and the folders that a worker must import from to find its code."""

    path: Path
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """One distribution. `name` is normalised; `site` is the folder that holds its metadata."""

    name: str
    version: str
    site: Path
    metadata: importlib.metadata.Distribution

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def entry_points(self, group: str) -> Iterator[tuple[str, str]]:
        """Names and values of one group. Raises `NotLocatedError` for a file that is not one."""
        text = self.metadata.read_text("entry_points.txt")
        if text is None or group not in text:
            return
        try:
            for point in self.metadata.entry_points.select(group=group):
                yield point.name, point.value.strip()
        except Exception as error:  # a parser that promises no exception type reads foreign text
            raise NotLocatedError(f"entry_points.txt of {self} cannot be read: {error}") from None

    def record(self) -> list[str] | None:
        """The files that the installer wrote, relative to `site`; None if it did not say."""
        text = self.metadata.read_text("RECORD")
        if text is None:
            return None
        return [row[0] for row in csv.reader(text.splitlines()) if row]

    def requirements(self) -> Iterator[Requirement]:
        """Declared dependencies, as far as they can be read."""
        for text in self.metadata.requires or ():
            try:
                yield Requirement(text)
            except InvalidRequirement:
                continue

    def provides(self, package: str) -> bool:
        """Whether it has that top-level package; True if it does not say."""
        record = self.record()
        tops = {name.split("/")[0].casefold() for name in record or ()}
        return record is None or package in tops or f"{package}.py" in tops

    def locate(self, package: str, file_name: str) -> Located:
        """`file_name` in the import package `package`. Raises `NotLocatedError`."""
        wanted = "/".join([*package.split("."), file_name])
        record = self.record()
        if record is not None and wanted in record:
            return self._listed(wanted)
        roots, hooked = self._editable_roots(record)
        for root in roots:
            if (Path(root) / wanted).is_file():
                return Located(Path(root) / wanted, (*roots, str(self.site)))
        if record is None and (self.site / wanted).is_file():
            return Located(self.site / wanted, (str(self.site),))
        if hooked:
            raise NotLocatedError(
                f"{self} is installed in a way that only an import hook can find",
                "install it without -e, or with a build backend that writes path lines (hatchling, "
                "or setuptools with --config-settings editable_mode=compat)",
            )
        raise NotLocatedError(
            f"{self} has no {wanted}", f"the package {package} must contain {file_name}"
        )

    def _listed(self, wanted: str) -> Located:
        path = self.site / wanted
        if not path.is_file():
            raise NotLocatedError(f"{path} is listed by {self} but is not there", "reinstall it")
        return Located(path, (str(self.site),))

    def _editable_roots(self, record: list[str] | None) -> tuple[list[str], bool]:
        """Folders that the distribution adds to the import path, and whether a hook adds more."""
        if record is None:
            files = sorted(self.site.glob("*.pth"))
        else:
            names = [name for name in record if name.endswith(".pth") and "/" not in name]
            files = [self.site / name for name in names]
        roots: list[str] = []
        hooked = False
        for file in files:
            for line in _pth_lines(file):
                if line.startswith(("import ", "import\t")):
                    hooked = True
                else:
                    roots.append(os.path.abspath(self.site / line))
        roots += self._direct_roots()
        return [root for root in dict.fromkeys(roots) if os.path.isdir(root)], hooked

    def _direct_roots(self) -> list[str]:
        try:
            direct = json.loads(self.metadata.read_text("direct_url.json") or "{}")
            editable = direct.get("dir_info", {}).get("editable") is True
            url = urlsplit(direct["url"]) if editable else None
        except (ValueError, AttributeError, KeyError, TypeError):
            return []
        if url is None or url.scheme != "file":
            return []
        folder = url2pathname(url.path)
        return [folder, os.path.join(folder, "src")]


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A distribution that another one of its name hides."""

    hidden: Installed
    by: Installed

    def __str__(self) -> str:
        return (
            f"{self.hidden} in {self.hidden.site} is hidden by {self.by} in {self.by.site}, "
            "which is first on the path"
        )


def installed(path: Sequence[str]) -> tuple[Mapping[str, Installed], tuple[Shadowed, ...]]:
    """The distributions on the search path by normalised name, and those that they hide.

    The first on the path wins, as it does for imports (H73, H74); in one folder, the newest.
    """
    winners: dict[str, Installed] = {}
    shadowed: list[Shadowed] = []
    for folder in dict.fromkeys(os.path.realpath(entry or ".") for entry in path):
        for found in sorted(_in_folder(folder), key=_newest_first, reverse=True):
            winner = winners.setdefault(found.name, found)
            if winner is not found:
                shadowed.append(Shadowed(found, winner))
    return winners, tuple(shadowed)


def worker_folders(plugin: Installed, known: Mapping[str, Installed]) -> tuple[str, ...]:
    """Folders that hold what the plugin requires, directly and indirectly, beside its own.

    Only those: each folder is something the worker can read, and a plugin has no business in an
    environment that it does not depend on.
    """
    folders: dict[str, None] = {}
    seen = {plugin.name}
    waiting = [plugin]
    while waiting:
        current = waiting.pop()
        for requirement in current.requirements():
            name = canonicalize_name(requirement.name)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and name in known and name not in seen:
                seen.add(name)
                waiting.append(known[name])
        if current is not plugin:
            folders[str(current.site)] = None
            folders.update(dict.fromkeys(current._editable_roots(current.record())[0]))
    return tuple(folders)


def _in_folder(folder: str) -> Iterator[Installed]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        match = _INFO.match(name)
        if match is None:
            continue
        path = Path(folder, name)
        yield Installed(
            name=canonicalize_name(match[1]),
            version=match[2] or "",
            site=Path(folder),
            metadata=importlib.metadata.Distribution.at(path),
        )


def _newest_first(found: Installed) -> tuple[Version, str]:
    try:
        return Version(found.version), found.version
    except InvalidVersion:
        return Version("0"), found.version


def _pth_lines(file: Path) -> Iterator[str]:
    try:
        with open(file, "rb") as stream:
            content = stream.read(PTH_MAX_BYTES + 1)
    except OSError:
        return
    if len(content) > PTH_MAX_BYTES:
        return
    for line in content.decode("utf-8-sig", errors="replace").splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            yield line
