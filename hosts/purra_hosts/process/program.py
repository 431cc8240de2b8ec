"""From a launch to the command that is run for one instance of it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from purra_hosts.launch import Launch
from purra_hosts.process.spawn import Command, environment

__all__ = ["Birth", "command_of", "program_of"]

BOOTSTRAP: Final = Path(__file__).resolve().parent.parent / "bootstrap.py"
PYTHON_FLAGS: Final = ("-I", "-S", "-X", "faulthandler")
"""Isolated, without `site`: no third-party code before the gate. A crash in C prints its stack."""
PYTHON_TOKEN: Final = "{python}"
"""Stands for the interpreter in a `command`."""


@dataclass(frozen=True, slots=True)
class Birth:
    """What is the instance's own: its private folder, number and nonce. For a worker with an entry
    also `staged`, what it imports of ours, and `boot`, the compiled bootstrap.
    """

    home: Path
    generation: int
    nonce: str
    staged: Path | None
    boot: Path | None = None


def program_of(launch: Launch) -> str:
    """What is run, for messages."""
    return launch.python if launch.command is None else _argument(launch, launch.command[0])


def command_of(launch: Launch, birth: Birth) -> Command:
    """The whole command, with its environment and limits."""
    own = {
        "PURRA_PROTO": "1",
        "PURRA_PLUGIN": launch.label,
        "PURRA_MANIFEST": str(launch.manifest_path),
        "PURRA_GENERATION": str(birth.generation),
        "PURRA_NONCE": birth.nonce,
    }
    if launch.entry is not None:
        own["PURRA_ENTRY"] = launch.entry
        own["PURRA_STAGED"] = str(birth.staged)
    limits = launch.limits
    return Command(
        argv=_argv(launch, birth.boot),
        env=environment(os.environ, birth.home, launch.env, own),
        folder=birth.home,
        nofile=limits.nofile,
        memory_bytes=limits.memory_bytes,
        cpu_s=limits.cpu_s,
    )


def _argv(launch: Launch, boot: Path | None) -> tuple[str, ...]:
    if launch.command is None:
        # What is compiled is for our own interpreter only.
        ours = os.path.realpath(launch.python) == os.path.realpath(sys.executable)
        first = boot if boot is not None and ours else BOOTSTRAP
        return (launch.python, *PYTHON_FLAGS, str(first))
    return tuple(_argument(launch, part) for part in launch.command)


def _argument(launch: Launch, part: str) -> str:
    """Names of files in the plugin's folder become absolute, because the working directory is the
    worker's private one (paths in manifests).
    """
    if part == PYTHON_TOKEN:
        return launch.python
    path = launch.folder / part
    return str(path) if part and not part.startswith("-") and path.is_file() else part
