"""What the kernel under this host allows, found by doing it in a process that is thrown away.

Versions and configuration files do not say: a container may forbid what the kernel has, a boot
parameter may have switched it off. So the worker's own `jail` runs once with the strictest policy
and tries the forbidden things; what holds there will hold in the workers. Each of them tries again
all the same.
"""

from __future__ import annotations

import ast
import asyncio
import marshal
import os
import platform
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final

from purra_hosts.isolation import jail, landlock, seccomp
from purra_hosts.isolation.bpf import assemble
from purra_hosts.isolation.syscalls import MACHINES, Machine

__all__ = ["Findings", "Prober", "probe"]

PROBE_S: Final = 10.0
"""A few milliseconds, unless the machine is overloaded."""
_FLAGS: Final = ("-I", "-S")


@dataclass(frozen=True, slots=True)
class Findings:
    """`landlock`: the version in force, 0 = none, and then `no_landlock` says why. `machine`: the
    system call numbers if filters work here, else None, and `no_seccomp` says why.
    """

    linux: bool
    landlock: int
    machine: Machine | None
    no_landlock: str = ""
    no_seccomp: str = ""


def probe() -> Findings:
    """Looks; takes as long as an interpreter starts. Raises nothing: what fails is not there."""
    if sys.platform != "linux":
        why = f"{platform.system()} has neither Landlock nor seccomp"
        return Findings(False, 0, None, why, why)
    machine = MACHINES.get(platform.machine()) if sys.maxsize > 2**32 else None
    no_seccomp = "" if machine else f"no table of system calls for {platform.machine()}"
    version, no_landlock = _landlock_version()
    policy = _policy(version, machine)
    try:
        said = _in_a_child(policy)
    except (OSError, subprocess.SubprocessError, ValueError, SyntaxError) as error:
        why = f"the probe failed: {error}"
        return Findings(True, 0, None, no_landlock or why, no_seccomp or why)
    if version and said["fs"] != "yes":
        version, no_landlock = 0, said["fs"].removeprefix("none: ")
    if machine and said["exec"] != "yes":
        machine, no_seccomp = None, said["exec"].removeprefix("none: ")
    return Findings(True, version, machine, no_landlock, no_seccomp)


class Prober:
    """Probes once, when first asked, in a thread that ends with it. Belongs to one event loop."""

    def __init__(self) -> None:
        self._findings: asyncio.Future[Findings] | None = None

    async def findings(self) -> Findings:
        """The findings; who is cancelled here does not cancel the others' wait."""
        if self._findings is None:
            loop = asyncio.get_running_loop()
            self._findings = loop.create_future()
            threading.Thread(target=self._look, args=(loop,), daemon=True).start()
        return await asyncio.shield(self._findings)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        told: Findings | Exception
        try:
            told = probe()
        except Exception as error:  # a fault of ours: the start that waits must hear of it
            told = error
        try:
            loop.call_soon_threadsafe(self._told, told)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits any more

    def _told(self, told: Findings | Exception) -> None:
        if self._findings is None or self._findings.done():
            return
        if isinstance(told, Exception):
            self._findings.set_exception(told)
        else:
            self._findings.set_result(told)


def _landlock_version() -> tuple[int, str]:
    try:
        return min(jail.landlock_abi(jail.Libc()), landlock.NEWEST), ""
    except (ImportError, OSError, AttributeError) as error:
        return 0, f"the kernel has no Landlock ({getattr(error, 'strerror', None) or error})"


def _policy(version: int, machine: Machine | None) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    canaries: list[list[Any]] = []
    policy: dict[str, Any] = {"axes": axes, "canaries": canaries}
    if version:
        policy["landlock"] = landlock.ruleset(version, (), None)
        axes["fs"] = ["yes", ["landlock"]]
        canaries.append(["fs", "open", "/"])
    if machine is not None:
        wish = seccomp.Wish("none", subprocess=False, pid=0, host=os.getpid(), landlock=version)
        policy["seccomp"] = assemble(seccomp.rules(wish), machine)
        axes["exec"] = ["yes", ["seccomp"]]
        canaries.append(["exec", "fork"])
        number = machine.numbers
        for what, arguments in (
            ("a socket", (seccomp.EACCES, number["socket"], 2, 1, 0)),
            ("a signal", (seccomp.EPERM, number["kill"], "parent", 0)),
        ):
            canaries.append(["exec", "call", what, *arguments])
    return policy


def _in_a_child(policy: dict[str, Any]) -> dict[str, str]:
    """Raises `OSError`, `SubprocessError` and what reading its answer raises."""
    ran = subprocess.run(
        [sys.executable, *_FLAGS, str(jail.__file__)],
        input=marshal.dumps(policy),
        capture_output=True,
        timeout=PROBE_S,
        env={},
        check=True,
    )
    said = ast.literal_eval(ran.stdout.decode())
    if not isinstance(said, dict):
        raise ValueError("no report")
    return said
