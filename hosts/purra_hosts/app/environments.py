"""Every plugin that this machine's user has installed, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from purra.registry.discovery import Discovery, discover

__all__ = ["find_plugins"]


def find_plugins(folders: Iterable[Path] = ()) -> Discovery:
    """What `discover` finds in this environment and in `folders`."""
    return discover(folders=folders)
