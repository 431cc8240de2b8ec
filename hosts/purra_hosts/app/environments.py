"""Environments that are plugins' own: where they are, and every plugin of this machine's user.

    $XDG_DATA_HOME/purra/plugins/<id>/environment.json     which one is in use, and what it is of
    $XDG_DATA_HOME/purra/plugins/<id>/env-<letters>/       a virtual environment

An upgrade makes a new environment beside the one in use and then changes the file, in one step: a
worker that runs goes on with the files that it began with, and no moment has neither. The one that
was in use before is kept until the next upgrade, for workers that still import from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from purra.registry.discovery import Discovery, Environment, discover
from purra_hosts.app.toml_text import replace_file

__all__ = ["InUse", "data_folder", "environment_at", "find_plugins", "in_use", "set_in_use"]

FILE: Final = "environment.json"


@dataclass(frozen=True, slots=True)
class InUse:
    """Which environment of a plugin is in use: the name of its folder, what was installed into it
    (as it was asked for), and the folder's name of the one before.
    """

    folder: str
    spec: str
    before: str = ""


def data_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where environments are kept. It may not be there."""
    variables = os.environ if environment is None else environment
    configured = variables.get("XDG_DATA_HOME", "")
    # The XDG specification: a relative value is to be ignored.
    home = Path(configured) if os.path.isabs(configured) else Path.home() / ".local" / "share"
    return home / "purra" / "plugins"


def in_use(folder: Path) -> InUse | None:
    """What the file in a plugin's folder says; None if it says nothing that can be read."""
    try:
        told = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return InUse(str(told["folder"]), str(told["spec"]), str(told["before"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def set_in_use(folder: Path, chosen: InUse) -> None:
    """From now on that one is found. Raises `OSError`."""
    replace_file(folder / FILE, json.dumps(asdict(chosen), indent=1) + "\n")


def environment_at(folder: Path) -> Environment:
    """The virtual environment in a folder."""
    sites = sorted(folder.glob("lib/python*/site-packages"))
    return Environment(folder / "bin" / "python", tuple(sites))


def find_plugins(
    folders: Iterable[Path] = (), environment: Mapping[str, str] | None = None
) -> Discovery:
    """What is installed here, lies in `folders`, or has an environment of its own below the data
    folder that `environment` (default: this process's) says.
    """
    return discover(folders=folders, environments=_environments(data_folder(environment)))


def _environments(data: Path) -> Iterator[Environment]:
    try:
        folders = sorted(path for path in data.iterdir() if path.is_dir())
    except OSError:
        return
    for folder in folders:
        chosen = in_use(folder)
        if chosen is not None and (folder / chosen.folder).is_dir():
            yield environment_at(folder / chosen.folder)
