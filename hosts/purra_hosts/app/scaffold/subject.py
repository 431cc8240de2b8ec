"""The plugin that an author names by a path: its manifest, and what its code says."""

from __future__ import annotations

import sys
from pathlib import Path

from purra.errors import PurraError
from purra.manifest.plugin import FILE_NAME
from purra.registry.discovery import discover
from purra_hosts.app.scaffold.describing import Described, describe

__all__ = ["described", "find_manifest"]


def find_manifest(path: Path) -> Path:
    """The manifest at `path`, in that folder, or in the one package below it (or below `src`).

    Raises `PurraError(plugin_not_found)`.
    """
    path = path.resolve()
    if path.name == FILE_NAME and path.is_file():
        return path
    found = [path / FILE_NAME] if (path / FILE_NAME).is_file() else []
    for pattern in (f"*/{FILE_NAME}", f"src/*/{FILE_NAME}"):
        found = found or sorted(path.glob(pattern))
    if len(found) != 1:
        raise PurraError(
            "plugin_not_found",
            f"{len(found) or 'no'} manifests in {path}",
            hint=f"name the folder that one {FILE_NAME} is in",
        )
    return found[0]


def described(manifest: Path) -> tuple[Described, ...]:
    """What the code beside `manifest` offers, read with the packages of this environment.

    Raises `PurraError` for a manifest that is refused, and what `describe` raises.
    """
    (found,) = discover(path=[], folders=[manifest.parent]).plugins
    if found.manifest is None:
        raise PurraError("invalid_manifest", found.reason, hint=found.hint)
    sites = (entry for entry in sys.path if entry.endswith("site-packages"))
    return describe(found.manifest, (*found.sys_path, *sites))
