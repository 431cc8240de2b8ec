"""Hosts that leave something behind when they die. Each is broken in the program that dies."""

from __future__ import annotations

import atexit
import os
import py_compile
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from purra_hosts.process import instance, spawn
from purra_hosts.process.staging import HOSTS, Folders
from purra_tck.drivers.apart import main
from purra_tck.drivers.process import ProcessDriver
from purra_tck.drivers.specs import to_text
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import broken

__all__ = ["SABOTEURS", "atexit_only", "relies_on_eof"]

STARTING_S: Final = 10.0
"""A program with a host in it takes a while to start."""
TIE: Final = 'Libc().call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)'


def relies_on_eof() -> None:
    """A program whose workers are not tied to it: they see their channel end, if they look."""
    boot = Folders.boot

    def untied(self: Folders) -> Path:
        if self._boot is None:
            started = boot(self)
            source = (HOSTS / "isolation/jail.py").read_text(encoding="utf-8")
            if TIE not in source:
                raise ValueError("the tie to the parent is no longer where it was")
            loose = self.root / "loose.py"
            loose.write_text(source.replace(TIE, "pass"), encoding="utf-8")
            target = started.parent / "isolation" / "jail.pyc"
            py_compile.compile(str(loose), str(target), doraise=True)
        return boot(self)

    vars_of: Any = Folders
    vars_of.boot = untied
    main()


def atexit_only() -> None:
    """The same, and it ends its workers when its interpreter comes to an orderly end."""
    start = spawn.spawn

    def noted(command: Any) -> Any:
        child, pipes = start(command)
        atexit.register(os.killpg, child.pid, signal.SIGKILL)
        return child, pipes

    vars(instance)["spawn"] = noted
    relies_on_eof()


def _dying(program: Callable[[], None]) -> type[ProcessDriver]:
    """A driver whose host apart runs in `program`."""

    class Dying(ProcessDriver):
        def apart(self, spec: Any) -> tuple[str, ...]:
            code = f"from {__name__} import {program.__name__} as program; program()"
            return (sys.executable, "-c", code, to_text(spec))

    return Dying


SABOTEURS: tuple[Saboteur, ...] = (
    broken(
        "relies-on-stdin-EOF",
        "SUP-015",
        "of a plugin that is stopped",
        lambda patch: None,
        driver=_dying(relies_on_eof),
        patience_s=STARTING_S,
    ),
    broken(
        "atexit-only",
        "SHD-005",
        "the host has ended by",
        lambda patch: None,
        driver=_dying(atexit_only),
        patience_s=STARTING_S,
    ),
)
