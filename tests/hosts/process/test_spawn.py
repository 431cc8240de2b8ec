"""Processes and signals: one child from start to reaping."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from purra_hosts.process import spawn
from purra_hosts.process.spawn import Child, Command, Exit, Pipes, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

BOUND_S = 20.0


def command(folder: Path, code: str, **env: str) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", code), env, folder, nofile=64)


async def ended(child: Child) -> Exit:
    """Waits for the child's own report of its end."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Exit] = loop.create_future()
    child.watch(loop, told.set_result)
    return await asyncio.wait_for(told, BOUND_S)


def read_all(descriptor: int, bound_s: float = BOUND_S) -> bytes:
    """What is in a pipe until its end."""
    os.set_blocking(descriptor, True)
    data = b""
    while piece := os.read(descriptor, 65536):
        data += piece
    return data


def running(folder: Path, code: str, then: Callable[[Child, Pipes], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        child, pipes = spawn.spawn(command(folder, code))
        try:
            return await then(child, pipes)
        finally:
            child.kill_now()
            child.close()
            pipes.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("pass", Exit(status=0)),
        ("raise SystemExit(3)", Exit(status=3)),
        ("import os; os.kill(os.getpid(), 9)", Exit(signal=9)),
        ("import os; os.kill(os.getpid(), 11)", Exit(signal=11)),
    ],
)
def test_the_way_a_child_ended_is_told_apart(tmp_path: Path, code: str, how: Exit) -> None:
    """SUP-001: exit status and signal are known exactly."""

    async def look(child: Child, pipes: Pipes) -> Exit:
        return await ended(child)

    assert running(tmp_path, code, look) == how


def test_a_child_is_reaped_and_then_never_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H49, H50, SUP-017: no zombie stays, and its number is left alone."""
    sent: list[tuple[int, int]] = []

    async def look(child: Child, pipes: Pipes) -> None:
        await ended(child)
        with pytest.raises(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
        monkeypatch.setattr(os, "killpg", lambda *call: sent.append(call))
        monkeypatch.setattr(os, "kill", lambda *call: sent.append(call))
        assert child.signal_group(signal.SIGKILL) is False
        assert child.kill_now() == Exit(status=0)

    running(tmp_path, "pass", look)
    assert sent == []


def test_what_the_leader_left_in_its_group_dies_with_it(tmp_path: Path) -> None:
    """SUP-016: a child of the worker does not outlive it."""
    code = "import os,sys,time\nif os.fork() == 0: time.sleep(600)\nos._exit(0)"

    async def look(child: Child, pipes: Pipes) -> None:
        assert await ended(child) == Exit(status=0)
        # The grandchild holds the write end of stdout: the pipe ends when it is gone.
        assert await asyncio.wait_for(asyncio.to_thread(read_all, pipes.stdout), BOUND_S) == b""

    running(tmp_path, code, look)


def test_the_end_is_seen_when_sigchld_is_ignored(tmp_path: Path) -> None:
    """H55: the kernel reaps then, so the status is unknown, but the end is not missed."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:

        async def look(child: Child, pipes: Pipes) -> Exit:
            how = await ended(child)
            assert child.signal_group(signal.SIGTERM) is False
            return how

        assert running(tmp_path, "raise SystemExit(3)", look) == Exit()
        assert "another part" in str(Exit())
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_without_pidfd_the_child_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have no pidfd; the same rules hold there."""
    monkeypatch.setattr(spawn, "_open_pidfd", lambda pid: None)

    async def look(child: Child, pipes: Pipes) -> Exit:
        return await ended(child)

    assert running(tmp_path, "raise SystemExit(4)", look) == Exit(status=4)


@pytest.mark.parametrize("name", ["missing", "not-executable", "no-interpreter"])
def test_a_command_that_cannot_run_leaves_nothing(tmp_path: Path, name: str) -> None:
    """SUP-018: the errno of the exec; no process, no descriptor."""
    path = tmp_path / name
    if name != "missing":
        path.write_text("#!/nowhere/at/all\n")
    if name == "no-interpreter":
        path.chmod(0o755)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError) as caught:
        spawn.spawn(Command((str(path),), {}, tmp_path, nofile=64))
    assert caught.value.errno == (errno.EACCES if name == "not-executable" else errno.ENOENT)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_worker_inherits_its_channel_and_nothing_else(tmp_path: Path) -> None:
    """PLG-17, LIM-006: descriptors 0, 1, 2 and the channel; stdin is null. LIM-007: umask 077."""
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    code = (
        "import os\n"
        "fds = [fd for fd in range(64) if not _gone(fd)]\n"
        "print(sorted(set(fds) - {0, 1, 2, int(os.environ['PURRA_FD'])}), os.read(0, 1),"
        " oct(os.umask(0)), os.getsid(0) == os.getpid(), os.getcwd())"
    )
    define = (
        "def _gone(fd):\n"
        " import os\n"
        " try: os.fstat(fd)\n"
        " except OSError: return True\n"
        " return False\n"
    )

    async def look(child: Child, pipes: Pipes) -> bytes:
        await ended(child)
        return read_all(pipes.stdout)

    try:
        told = running(tmp_path, define + code, look).decode().strip()
    finally:
        os.close(leak)
    assert told == f"[] b'' 0o77 True {tmp_path}"


def test_limits_are_set_from_outside(tmp_path: Path) -> None:
    """LIM-003: descriptors are capped and no core is written; nothing runs before exec."""

    async def look(child: Child, pipes: Pipes) -> tuple[Any, Any]:
        return (
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE),
            resource.prlimit(child.pid, resource.RLIMIT_CORE),
        )

    assert running(tmp_path, "import time; time.sleep(600)", look) == ((64, 64), (0, 0))


def test_kill_now_needs_no_loop(tmp_path: Path) -> None:
    """SHD-005: when the loop goes down, a deaf child is killed and reaped within a second."""
    child, pipes = spawn.spawn(
        command(
            tmp_path,
            "import signal,os,time\nsignal.signal(15, signal.SIG_IGN)\nos.write(1, b'up')\n"
            "time.sleep(600)",
        )
    )
    os.set_blocking(pipes.stdout, True)
    assert os.read(pipes.stdout, 2) == b"up"
    began = time.monotonic()
    assert child.kill_now() == Exit(signal=9)
    assert time.monotonic() - began < 2
    child.close()
    pipes.close()


def test_the_environment_is_an_allow_list(tmp_path: Path) -> None:
    """PLG-17, LIM-005: what the host has and nobody granted is not there."""
    host = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "TZ": "UTC",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "canary",
        "LD_PRELOAD": "/evil.so",
        "PYTHONPATH": "/evil",
    }
    env = environment(host, tmp_path, {"GRANTED": "yes", "HOME": "/x"}, {"PURRA_PROTO": "1"})
    assert env == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "GRANTED": "yes",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "PURRA_PROTO": "1",
    }
