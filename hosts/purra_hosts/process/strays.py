"""What a worker started outside its process group: found by the mark that it carries.

A process that was put into a session of its own is in no group of ours, and once its parent has
ended nothing in the kernel connects it with us. But it carries the environment that its ancestor
was started with, and that names the worker's private folder, which no other process was ever given.
So after an instance has ended, whatever still carries its mark is killed (SUP-016). A process that
wiped its environment is not found; the report of isolation says `best effort` for `tree`, unless
processes cannot be started at all.

Rejected: becoming the reaper of orphans (PR_SET_CHILD_SUBREAPER). It is a setting of the whole
process that embeds us, every orphan of every other part of it would become ours to wait for, and
which of them belong to which plugin would still have to be told by a mark.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["killing"]

STEP: Final = 64
"""Processes looked at between two breaths of the event loop."""
ROUNDS: Final = 4
"""What is killed may have started another one a moment before."""
RECENT_S: Final = 60.0
"""Within this the system does not give all process numbers twice."""
WAIT_MS: Final = 1
WAITS: Final = 200
ENVIRON_BYTES: Final = 256 * 1024


def killing(folder: Path, after: int | None = None, since_s: float = 0.0) -> Iterator[None]:
    """Kills every process of this user that was started with `folder` in its environment, in small
    steps, each ended by a `yield`. `after`: the number of the process that all others come from,
    started `since_s` ago; None: not known.
    """
    if since_s > RECENT_S:
        after = None
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return
    mark = os.fsencode(folder)
    for _ in range(ROUNDS):
        killed: list[int] = []
        for count, pid in enumerate(_pids(after)):
            killed += _killed(pid, mark)
            if count % STEP == STEP - 1:
                yield
        yield from _ending(killed)
        if not killed:
            return


def _pids(after: int | None) -> list[int]:
    """Those that have begun since; numbers are given in a circle."""
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]
    if after is None:
        return pids
    with open("/proc/loadavg", "rb", buffering=0) as file:
        last = int(file.read().split()[-1])
    wrapped = last < after
    return [pid for pid in pids if pid > after or (wrapped and pid <= last)]


def _killed(pid: int, mark: bytes) -> list[int]:
    """Kills the process if it carries the mark; a descriptor of it then. It holds the process fast:
    a number that changes hands meanwhile is never signalled (H49).
    """
    if not _carries(pid, mark):
        return []
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return []
    try:
        if _carries(pid, mark):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            return [held]
    except OSError:
        pass
    os.close(held)
    return []


def _ending(killed: list[int]) -> Iterator[None]:
    """Until they are gone, which takes a moment, or for a while. Others have to reap them."""
    if not killed:
        return
    poll = select.poll()
    for held in killed:
        poll.register(held, select.POLLIN)
    for _ in range(WAITS):
        if len(poll.poll(WAIT_MS)) == len(killed):
            break
        yield
    for held in killed:
        os.close(held)


def _carries(pid: int, mark: bytes) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as block:
            text = block.read(ENVIRON_BYTES)
    except OSError:
        return False
    # As a folder, not as the beginning of another one's name.
    return mark + b"\0" in text or mark + b"/" in text
