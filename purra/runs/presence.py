"""Whether the process that owns something is still there.

A lease lapses by time; on the same machine one need not wait for that. A kernel's document names
the machine's boot and the process by pid and start time, so that a number used again by another
process is never taken for the old one (H49). Linux tells through /proc; elsewhere nothing is known
and the lapse decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["describe", "gone"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD = 19
"""Index of the start time among the fields after the command in /proc/PID/stat."""


def describe() -> dict[str, Any]:
    """`{boot, pid, started}` of this process; `boot` is "" where it cannot be known."""
    pid = os.getpid()
    return {"boot": _boot(), "pid": pid, "started": _started(pid)}


def gone(process: Mapping[str, Any] | None) -> bool:
    """True only if the described process was on this boot of this machine and has ended."""
    if process is None or not process.get("boot") or process["boot"] != _boot():
        return False
    return bool(_started(process["pid"]) != process["started"])


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> int:
    """Start time in clock ticks since boot; 0 = no such process, or it is only waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[_START_FIELD])
