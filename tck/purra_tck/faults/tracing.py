"""Looks at what a process asks the system for, and can kill it at exactly one such place.

A thread of the kit becomes the tracer (`ptrace`) of all threads of the process. It sees each system
call before it is carried out, so that a death "between the write and the flush" is a place and not
a matter of luck, and a flush that is claimed can be told from one that was made. This needs nothing
of the subject: it works for any language.

What must hold:
1. Only the tracer thread touches the tracees, and only it waits for their stops (`__WNOTHREAD`).
2. The first thread of the process is never reaped here. It is a child of whoever started it.
3. The end of the tracer thread is the end of the tracing: the system lets go of all tracees.

Rejected: preloading a library (needs a compiler, misses static binaries, and hosts do not pass
LD_PRELOAD on), and a copy of the disk per write (needs root and a block device).
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["CALLS", "SystemCall", "TraceRefused", "Tracing"]

_SEIZE, _INTERRUPT, _GO, _INFO = 0x4206, 0x4207, 24, 0x420E
_OPTIONS: Final = 0x1 | 0x8
"""System call stops are marked; threads that are made later are traced too."""
_WALL, _OWN = 0x40000000, 0x20000000
"""`__WALL`, `__WNOTHREAD`."""
_INFO_BYTES: Final = 88
_ENTRY: Final = 1
_STOP_MARK: Final = signal.SIGTRAP | 0x80
START_TIMEOUT_S: Final = 5.0

_NUMBERS: Final[Mapping[str, Mapping[int, str]]] = MappingProxyType(
    {
        "x86_64": {
            1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 328: "pwritev2",
            74: "fsync", 75: "fdatasync", 26: "msync", 162: "sync", 306: "syncfs",
            77: "ftruncate", 82: "rename", 264: "renameat", 316: "renameat2",
            87: "unlink", 263: "unlinkat", 44: "sendto", 46: "sendmsg",
        },
        "aarch64": {
            64: "write", 68: "pwrite64", 66: "writev", 70: "pwritev", 287: "pwritev2",
            82: "fsync", 83: "fdatasync", 227: "msync", 81: "sync", 267: "syncfs",
            46: "ftruncate", 38: "renameat", 276: "renameat2",
            35: "unlinkat", 206: "sendto", 211: "sendmsg",
        },
    }
)  # fmt: skip
CALLS: Final[Mapping[int, str]] = _NUMBERS.get(platform.machine(), MappingProxyType({}))
"""The system calls that are told, by number: those that write, flush, cut, rename or send."""


class TraceRefused(Exception):  # noqa: N818  # says what the machine does not allow
    """This machine does not let the kit trace the process."""


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One call that is about to be carried out. `path`: what its first argument is open on, ""
    if that is no descriptor. `size`: its third argument, bytes for those that write.
    """

    name: str
    path: str
    size: int


class Tracing:
    """Traces a process from the end of `start` to `stop`, or to the death of the process.

    `decide` is asked on the tracer thread before each call; True kills the process right there.
    """

    def __init__(self, pid: int, decide: Callable[[SystemCall], bool]) -> None:
        self._pid = pid
        self._decide = decide
        self._started = threading.Event()
        self._over = threading.Event()
        self._refused: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"trace-{pid}", daemon=True)

    def start(self) -> None:
        """Returns when every thread of the process is traced. Raises `TraceRefused`."""
        if not CALLS:
            raise TraceRefused(f"no table of system calls for {platform.machine()}")
        self._thread.start()
        self._started.wait(START_TIMEOUT_S)
        if self._refused is not None:
            raise TraceRefused(f"ptrace: {self._refused.strerror}")

    def stop(self) -> None:
        """Lets go of the process. Idempotent."""
        self._over.set()
        while self._thread.is_alive():
            try:
                os.kill(self._pid, signal.SIGCONT)  # a stop for the tracer to wake up by
            except ProcessLookupError:
                pass
            self._thread.join(0.05)

    def _run(self) -> None:
        try:
            _seize_all(self._pid)
        except OSError as error:
            self._refused = error
            self._started.set()
            return
        self._started.set()
        try:
            while not self._over.is_set() and self._step():
                pass
        except (ChildProcessError, ProcessLookupError):
            return  # nobody is left

    def _step(self) -> bool:
        """Handles one stop. False when the process has ended."""
        peek = os.WSTOPPED | os.WEXITED | os.WNOWAIT | _WALL | _OWN
        seen = os.waitid(os.P_ALL, 0, peek)
        if seen is None:
            return True
        task = seen.si_pid
        if seen.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
            if task == self._pid:
                return False
            os.waitid(os.P_PID, task, os.WEXITED | _WALL)
            return True
        os.waitid(os.P_PID, task, os.WSTOPPED | _WALL)
        passed_on = 0
        if seen.si_status == _STOP_MARK:
            call = self._entered(task)
            if call is not None and self._decide(call):
                os.kill(self._pid, signal.SIGKILL)
                return True
        elif seen.si_status >> 8 == 0 and seen.si_status != signal.SIGCONT:
            passed_on = seen.si_status
        try:
            _ptrace(_GO, task, passed_on)
        except ProcessLookupError:
            pass  # it was killed while it stood
        return True

    def _entered(self, task: int) -> SystemCall | None:
        """The call that `task` is about to make, if it is one of those that are told."""
        info = ctypes.create_string_buffer(_INFO_BYTES)
        try:
            _ptrace(_INFO, task, ctypes.addressof(info), _INFO_BYTES)
        except ProcessLookupError:
            return None
        if info.raw[0] != _ENTRY:
            return None
        words = [int.from_bytes(info.raw[at : at + 8], "little") for at in range(24, 56, 8)]
        name = CALLS.get(words[0])
        if name is None:
            return None
        try:
            path = os.readlink(f"/proc/{self._pid}/fd/{words[1]}")
        except OSError:
            path = ""
        return SystemCall(name, path, words[3])


def _seize_all(pid: int) -> None:
    """Also those threads that are made while the others are seized."""
    known: set[int] = set()
    while new := {int(name) for name in os.listdir(f"/proc/{pid}/task")} - known:
        for task in new:
            _seize(pid, task)
        known |= new


def _seize(pid: int, task: int) -> None:
    """A thread that ends meanwhile needs no tracer. One that an earlier tracer is about to let go
    of, as a thread of ours that has ended for Python and not yet for the system, is waited for.
    """
    until_s = time.monotonic() + START_TIMEOUT_S / 2
    while True:
        try:
            _ptrace(_SEIZE, task, _OPTIONS)
            _ptrace(_INTERRUPT, task, 0)
        except ProcessLookupError:
            if task == pid:
                raise
        except PermissionError:
            if not os.path.exists(f"/proc/{pid}/task/{task}"):
                return
            if time.monotonic() > until_s:
                raise
            time.sleep(0.001)
            continue
        return


_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, task: int, data: int, address: int = 0) -> None:
    long = ctypes.c_long
    done = _LIBRARY.ptrace(long(request), long(task), long(address), long(data))
    if done == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
