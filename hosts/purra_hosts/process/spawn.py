"""The one file that knows processes and signals.

Rules of this file:

1. A child is reaped exactly once, here, and is never signalled after that. A pid is only a number:
   once reaped it may belong to anybody. Until then even a dead child keeps its number (H49).
2. Its process group is killed *before* it is reaped. The zombie keeps the group's number ours, so
   what the leader left behind can still be named; one moment later it could not.
3. Death is seen through a pidfd, never through the end of a log pipe, which a grandchild may hold.

Rejected: `preexec_fn` forces a real fork, which costs milliseconds per GiB of host memory and runs
Python after fork in a threaded host; limits are set from outside instead, before WELCOME opens the
gate. asyncio's own subprocess support waits for the log pipes, starts a thread per child on Python
3.11, and has no word for "the group, before reaping". `posix_spawn` cannot start a session.
`subprocess` uses vfork here, and is called on the loop's own thread, because PDEATHSIG fires when
the *thread* that spawned ends (H56).
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if sys.platform == "linux":
    import resource

__all__ = ["Child", "Command", "Exit", "Pipes", "environment", "spawn"]

CHANNEL_BUFFER_BYTES: Final = 1024 * 1024
"""Asked for each direction of the channel; the kernel caps it. With the default size one large
write is 5 to 6 times slower (measured)."""
POLL_S: Final = 0.02
"""How often a child is looked at where there is no pidfd."""
KILL_WAIT_MS: Final = 1000
"""Longest blocking wait after SIGKILL, in the one path that cannot wait for the loop."""
PASSED_ON: Final = ("PATH", "LANG", "TZ")
"""Variables every worker gets from the host, with everything that begins with `LC_`."""
OOM_SCORE: Final = b"500"
"""Of 1000: the kernel ends a worker before the host."""
CPU_KILL_S: Final = 1
"""From SIGXCPU to SIGKILL, in seconds of processor time."""
DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `folder` is the private working directory; the channel's descriptor number is
    put into the environment as `PURRA_FD`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    nofile: int
    memory_bytes: int | None = None
    cpu_s: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: an exit status, or a signal, or neither when somebody else reaped it
    (an embedding program that ignores SIGCHLD or waits for every child; H55).
    """

    status: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = "unnamed"
            return f"killed by signal {self.signal} ({name})"
        if self.status is not None:
            return f"exited with status {self.status}"
        return "ended with a status that another part of the host took"


@dataclass(frozen=True, slots=True)
class Pipes:
    """The host's ends: a non-blocking socket, and the descriptors of the two log pipes, if any.

    Whoever takes one closes it.
    """

    channel: socket.socket
    stdout: int | None
    stderr: int | None

    def close(self) -> None:
        """Closes all three; for when nobody took them."""
        self.channel.close()
        for pipe in (self.stdout, self.stderr):
            if pipe is not None:
                os.close(pipe)


def environment(
    host: Mapping[str, str], home: Path, granted: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """A worker's whole environment: an allow-list of the host's, granted names, then our own.

    HOME and TMPDIR are private folders below `home`. Nothing else of the host's environment is
    passed: it may hold secrets, and LD_PRELOAD would run code before the gate (LIM-005).
    """
    passed = {
        name: text for name, text in host.items() if name in PASSED_ON or name.startswith("LC_")
    }
    private = {"HOME": str(home), "TMPDIR": str(home / "tmp")}
    return {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", **passed, **granted, **private, **own}


def spawn(command: Command) -> tuple[Child, Pipes]:
    """Starts a process in its own session with a channel, two log pipes and a null stdin.

    Raises `OSError`: the errno of the failed exec, or of a missing descriptor. Then nothing is
    left, neither a process nor a descriptor.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    opened: list[int] = []
    try:
        for end in (near, far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHANNEL_BUFFER_BYTES)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHANNEL_BUFFER_BYTES)
        near.setblocking(False)
        out_read, out_write = _pipe(opened)
        err_read, err_write = _pipe(opened)
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=out_write,
            stderr=err_write,
            cwd=command.folder,
            env={**command.env, "PURRA_FD": str(far.fileno())},
            pass_fds=(far.fileno(),),
            start_new_session=True,
            umask=0o077,
        )
    except BaseException:  # whatever it was, no descriptor may stay behind
        near.close()
        for descriptor in opened:
            os.close(descriptor)
        raise
    finally:
        far.close()
    os.close(out_write)
    os.close(err_write)
    child = Child(process)
    child.limit(command)
    return child, Pipes(near, out_read, err_read)


def _pipe(opened: list[int]) -> tuple[int, int]:
    read, write = os.pipe()  # both ends close on exec
    opened += (read, write)
    # Only the host's end: the two ends are separate descriptions, so the worker's stays blocking.
    os.set_blocking(read, False)
    return read, write


class Child:
    """One direct child process, from its start to its reaping. Belongs to one event loop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pidfd = _open_pidfd(process.pid)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_exit: Callable[[Exit], None] | None = None
        self.exit: Exit | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def limit(self, command: Command) -> None:
        """Sets RLIMIT_NOFILE, _CORE, _DATA and _CPU from outside, and makes it the first to go when
        the machine is out of memory. A child that is gone, or is a program that has changed its
        user, keeps what it has.
        """
        if sys.platform != "linux":
            return
        limits = {resource.RLIMIT_NOFILE: command.nofile, resource.RLIMIT_CORE: 0}
        if command.memory_bytes is not None:
            limits[resource.RLIMIT_DATA] = command.memory_bytes
        if command.cpu_s is not None:
            limits[resource.RLIMIT_CPU] = command.cpu_s
        try:
            for kind, wanted in limits.items():
                hard = resource.prlimit(self.pid, kind)[1]
                # At the hard limit of processor time comes SIGKILL, which tells nothing.
                last = wanted + (CPU_KILL_S if kind == resource.RLIMIT_CPU else 0)
                if hard != resource.RLIM_INFINITY:
                    last = min(last, hard)
                resource.prlimit(self.pid, kind, (min(wanted, last), last))
            _write(f"/proc/{self.pid}/oom_score_adj", OOM_SCORE)
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            pass

    def watch(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[Exit], None]) -> None:
        """Calls `on_exit` once, from the loop, when the process has ended and is reaped."""
        self._loop = loop
        self._on_exit = on_exit
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self._look)
        else:
            loop.call_soon(self._look)

    def signal_group(self, number: int) -> bool:
        """Signals the process and its group. False: it is gone, and nothing was signalled."""
        if self.exit is not None or not self._is_there():
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill_now(self) -> Exit | None:
        """Kills the group and reaps, blocking for at most `KILL_WAIT_MS`.

        For the one case where the loop is going down and nobody can wait. None: it would not die.
        """
        if self.exit is not None:
            return self.exit
        self.signal_group(signal.SIGKILL)
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll(KILL_WAIT_MS)
        self._collect()
        return self.exit

    def close(self) -> None:
        """Stops watching. A process that is still there stays unreaped: it was abandoned."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pidfd is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self._on_exit = None

    def _is_there(self) -> bool:
        """With SIGCHLD ignored the kernel reaps for us, so that the number may be free already."""
        if self._pidfd is None:
            return True
        try:
            signal.pidfd_send_signal(self._pidfd, 0)
        except ProcessLookupError:
            # A zombie of ours answers too; only a process that was reaped does not.
            return self._waitable()
        return True

    def _waitable(self) -> bool:
        try:
            self._wait(os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _wait(self, options: int) -> os.waitid_result | None:
        if self._pidfd is not None:
            return os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | options)
        return os.waitid(os.P_PID, self.pid, os.WEXITED | options)

    def _look(self) -> None:
        self._collect()
        if self.exit is None:
            if self._pidfd is None and self._loop is not None:
                self._timer = self._loop.call_later(POLL_S, self._look)
            return
        on_exit = self._on_exit
        self.close()
        if on_exit is not None:
            on_exit(self.exit)

    def _collect(self) -> None:
        """Reaps if it has ended: first a look that leaves the zombie, then the group, then it."""
        try:
            seen = self._wait(os.WNOHANG | os.WNOWAIT)
            if seen is None:
                return
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # nothing left behind, or only what changed its user
            self._wait(0)
        except ChildProcessError:
            self._ended(Exit())
            return
        if seen.si_code == os.CLD_EXITED:
            self._ended(Exit(status=seen.si_status))
        else:
            self._ended(Exit(signal=seen.si_status))

    def _ended(self, how: Exit) -> None:
        self.exit = how
        # Popen must know too, else it would wait for this number when it is collected.
        self._process.returncode = 0 if how.signal is None else -how.signal


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _open_pidfd(pid: int) -> int | None:
    """None: no pidfd on this system, or the child was reaped by the kernel already."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
