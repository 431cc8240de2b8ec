"""Running the arena: as whoever runs the tests, and as an unprivileged user where that is root."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pytest

from purra_hosts.isolation.machine import Findings, probe

ROOT: Final = Path(__file__).resolve().parents[3]
ARENA: Final = Path(__file__).with_name("arena.py")
NOBODY: Final = 65534
BOUND_S: Final = 120.0
IDENTITIES: Final = ("myself", "nobody")


@functools.cache
def findings() -> Findings:
    """What this machine allows. What it lacks is skipped, whatever system it calls itself."""
    return probe()


def need(axis: str) -> None:
    """Skips the test where the probe did not find what `axis` rests on."""
    found = findings()
    reason = {"fs": found.no_landlock, "exec": found.no_seccomp}[axis]
    if reason:
        pytest.skip(f"{axis} cannot be isolated here: {reason}")


def need_standard() -> None:
    """Skips the test where the level `standard` cannot be had."""
    need("fs")
    need("exec")


def paths() -> str:
    """Where a bare interpreter finds us and what we need."""
    site = Path(msgpack.__file__).parents[1]
    parts = [ROOT, ROOT / "hosts", ROOT / "bridge", ROOT / "tck", site]
    return os.pathsep.join(map(str, parts))


def _identity(who: str) -> dict[str, Any]:
    if who == "myself":
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@functools.cache
def python_of(who: str) -> str:
    """An interpreter of our version that this user may run, with everything that the arena needs.

    Skips the test if there is none, or if nobody else can be become.
    """
    if who == "myself":
        return sys.executable
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; these tests run as one already")
    minor = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    tried = (sys.executable, f"/usr/bin/{minor}", f"/usr/local/bin/{minor}")
    for python in tried:
        try:
            ran = subprocess.run(
                [python, "-c", "import purra_hosts.process.supervisor"],
                env={"PYTHONPATH": paths()},
                capture_output=True,
                cwd="/",
                timeout=BOUND_S,
                **_identity(who),
            )
        except OSError:
            continue
        if ran.returncode == 0:
            return python
    pytest.skip(f"an unprivileged user can run none of {', '.join(tried)} with what is needed")


def arena(who: str, what: str, *arguments: Any) -> Any:
    """What happened there; the same order is carried out once."""
    return json.loads(_ran(who, json.dumps({"do": what, "with": arguments})))


@functools.cache
def _ran(who: str, order: str) -> str:
    ran = subprocess.run(
        [python_of(who), str(ARENA)],
        input=order,
        env={"PYTHONPATH": paths(), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        cwd="/",
        timeout=BOUND_S,
        **_identity(who),
    )
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)
