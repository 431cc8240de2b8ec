"""What the machine says about a process: memory, descriptors, children. Linux."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

__all__ = ["Memory", "Residue", "Signals", "alive", "born", "children", "descriptors", "threads"]


class Memory:
    """Resident memory of one process, and its peak since `mark`."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)
        self._before = 0

    def mark(self) -> None:
        """From here on growth is counted."""
        (self._folder / "clear_refs").write_text("5")  # the peak begins anew
        self._before = self._read("VmRSS")

    def peak_growth(self) -> int:
        """How much more was resident at any moment since `mark`, in bytes."""
        return max(0, self._read("VmHWM") - self._before)

    def growth(self) -> int:
        """How much more is resident now than at `mark`, in bytes."""
        return self._read("VmRSS") - self._before

    def _read(self, name: str) -> int:
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise ValueError(f"/proc tells no {name}")


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """How many threads a process has."""
    return len(os.listdir(f"/proc/{pid}/task"))


def children(pid: int) -> list[int]:
    """The processes that a process has started and not reaped, zombies too."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        path = Path(f"/proc/{pid}/task/{task}/children")
        if path.exists():
            found += [int(child) for child in path.read_text().split()]
    return found


def alive(pid: int) -> bool:
    """There is a process of that number, and it is not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def born(pid: int) -> str:
    """When a process was started, in the kernel's own count; "" if there is none. A number that is
    used again has another birth.
    """
    fields = _stat(pid)
    return fields[19] if fields else ""


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


class Residue:
    """What a process holds, taken once to be compared with later: nothing may be left over.

    `tasks`: counts tasks of the running loop too; for a host in the kit's own process.
    """

    def __init__(self, pid: int, *, tasks: bool = False) -> None:
        self._pid = pid
        self._tasks = tasks
        self._before = self._now()

    def left(self) -> str:
        """What there is now and was not before, in words; "" if nothing."""
        now = self._now()
        more = {
            name: now[name] - count for name, count in self._before.items() if now[name] > count
        }
        return ", ".join(f"{count} {name}" for name, count in more.items())

    def _now(self) -> dict[str, int]:
        found = {
            "descriptors": descriptors(self._pid),
            "threads": threads(self._pid),
            "processes": len(children(self._pid)),
        }
        if self._tasks:
            found["tasks"] = len(asyncio.all_tasks())
        return found


class Signals:
    """Watches what this process signals, while the block lasts.

    `to_nobody`: (function, number, signal) of each that went to a process that is not there, not
    even as a zombie. Signal 0 only asks and is not counted.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.to_nobody: list[tuple[str, int, int]] = []
        self._real = {"kill": os.kill, "killpg": os.killpg}

    def __enter__(self) -> Self:
        for name, real in self._real.items():
            vars(os)[name] = self._watched(name, real)
        return self

    def __exit__(self, *_: object) -> None:
        vars(os).update(self._real)

    def _watched(self, name: str, real: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def send(pid: int, number: int) -> None:
            if number:
                self.sent += 1
                if not os.path.exists(f"/proc/{abs(pid)}"):
                    self.to_nobody.append((name, pid, int(number)))
            real(pid, number)

        return send
