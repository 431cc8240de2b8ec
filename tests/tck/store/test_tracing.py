"""What a process asks the system for is seen, and it can be killed at a place."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from purra_tck.faults.points import Points, Record, stores, unflushed
from purra_tck.faults.tracing import SystemCall, TraceRefused, Tracing

PROGRAM = """
import os, sys, threading
path = sys.argv[1]
def write(number):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"x" * 100 * number)
    os.fsync(fd)
    os.close(fd)
for line in sys.stdin:
    thread = threading.Thread(target=write, args=(int(line),))
    thread.start()
    thread.join()
    print("done", flush=True)
"""


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Writes 100 bytes times the number in each line of its input, in a thread of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str], number: int) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{number}\n")
    process.stdin.flush()
    return process.stdout.readline()


def ended(process: subprocess.Popen[str]) -> int:
    """How it ended. While it is traced nobody may wait for it but through its pidfd: a wait by
    number would take the tracer's stops away.
    """
    pidfd = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    gone = poll.poll(10_000)
    os.close(pidfd)
    assert gone, "it does not end"
    return process.wait(10)


def test_writes_and_flushes_are_seen_in_order(tmp_path: Path) -> None:
    """STO-027: also those of threads that were made while it was traced."""
    path = tmp_path / "file"
    with writer(path) as process:
        ask(process, 1)
        with Record(process.pid, str(tmp_path)) as record:
            for number in (2, 3):
                assert ask(process, number) == "done\n"
        assert record.refused == ""
        wanted = ["write file 200", "fsync file", "write file 300", "fsync file"]
        assert record.points == wanted
        assert ask(process, 1) == "done\n", "it goes on when nobody looks any more"
        with Record(process.pid, str(tmp_path)) as again:
            ask(process, 1)
        assert again.points == ["write file 100", "fsync file"]
    assert path.stat().st_size == 800


@pytest.mark.parametrize(("number", "reached", "size"), [(1, "write", 0), (2, "fsync", 500)])
def test_it_dies_before_the_call_is_carried_out(
    tmp_path: Path, number: int, reached: str, size: int
) -> None:
    """STO-001: a point is a place and not a matter of luck."""
    path = tmp_path / "file"
    path.touch()
    with writer(path) as process:
        points = Points(process.pid, number, str(tmp_path))
        points.arm()
        assert ask(process, 5) == ""
        points.disarm()
        assert ended(process) == -signal.SIGKILL
    assert points.reached.startswith(reached)
    assert path.stat().st_size == size


def test_a_point_that_is_not_reached_kills_nobody(tmp_path: Path) -> None:
    with writer(tmp_path / "file") as process:
        points = Points(process.pid, 99, str(tmp_path))
        points.arm()
        assert ask(process, 1) == "done\n"
        points.disarm()
        points.disarm()
        assert points.reached == ""
        assert ask(process, 1) == "done\n"


def test_signals_reach_the_process_while_it_is_traced(tmp_path: Path) -> None:
    with writer(tmp_path / "file") as process:
        ask(process, 1)
        tracing = Tracing(process.pid, lambda call: False)
        tracing.start()
        os.kill(process.pid, signal.SIGTERM)
        assert ended(process) == -signal.SIGTERM
        tracing.stop()


def test_who_cannot_be_traced_is_told() -> None:
    """A process that is gone, and none at all; never a silent pass."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(TraceRefused):
        Tracing(gone.pid, lambda call: False).start()
    with Record(None) as record:
        pass
    assert record.refused
    assert record.points == []


def test_what_is_left_unflushed() -> None:
    """STO-027: by file, at the last answer; a write of a byte only makes a file longer."""
    a, b, answer = "/s/a", "/s/b", SystemCall("write", "socket:[1]", 9)

    def write(path: str, size: int = 100) -> SystemCall:
        return SystemCall("pwrite64", path, size)

    def left(*calls: SystemCall) -> list[str]:
        return unflushed(calls, lambda call: call.path.startswith("socket:"))

    flush = SystemCall("fdatasync", a, 0)
    assert left(write(a), flush, answer) == []
    assert left(write(a), answer, flush) == ["a"]
    assert left(flush, write(a), answer) == ["a"]
    assert left(write(a), write(b), flush, answer) == ["b"]
    assert left(write(a), write(b), SystemCall("syncfs", "", 0), answer) == []
    assert left(write(b, 1), answer) == []
    assert left(write(a)) == []
    assert not stores(write("/dev/shm/x"))
    assert not stores(write("pipe:[1]"))
    assert stores(SystemCall("rename", "", 0))
    assert not stores(write("/other/x"), "/s")


def test_the_tracer_does_not_reap_the_process(tmp_path: Path) -> None:
    """Whoever started it must be able to wait for it, and learns how it ended."""
    with writer(tmp_path / "file") as process:
        with Record(process.pid):
            os.kill(process.pid, signal.SIGKILL)
            assert ended(process) == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
