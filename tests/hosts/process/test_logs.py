"""Draining, cutting, tagging and masking of what workers print."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from purra_hosts.process import logs
from purra_hosts.process.logs import CUT_MARK, LINE_BYTES, RATE, TAIL_MARK, Logs, Record

TAGS = {"plugin": "p", "instance": "i", "generation": 1}
BOUND_S = 20.0


class Rig:
    """A `Logs` with the write ends of its pipes in our hands."""

    def __init__(self, sink: Callable[[Record], None] | None = None, secrets: Any = ()) -> None:
        self.records: list[Record] = []
        self.log = Logs(TAGS, sink or self.records.append, secrets)
        ends = [os.pipe(), os.pipe()]
        for read, _ in ends:
            os.set_blocking(read, False)
        self.out, self.err = ends[0][1], ends[1][1]
        self.log.attach(asyncio.get_running_loop(), ends[0][0], ends[1][0])

    def close(self) -> None:
        os.close(self.out)
        os.close(self.err)
        self.log.close()

    def texts(self, stream: str) -> list[str]:
        return [record["text"] for record in self.records if record["stream"] == stream]


def with_rig(then: Callable[[Rig], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        return await then(Rig(**options))

    return asyncio.run(main())


def test_records_are_tagged_and_in_order_per_stream() -> None:
    """IOC-005."""

    async def go(rig: Rig) -> None:
        os.write(rig.out, b"one\ntwo\r\nunfin")
        os.write(rig.err, b"\n")
        os.write(rig.out, b"ished")
        rig.close()
        assert rig.texts("stdout") == ["one", "two", "unfinished"]
        assert rig.texts("stderr") == [""]
        assert all(record.items() >= TAGS.items() for record in rig.records)

    with_rig(go)


def test_odd_bytes_become_harmless_text() -> None:
    """IOC-004: NUL, terminal sequences, invalid UTF-8."""

    async def go(rig: Rig) -> None:
        os.write(rig.out, b"a\x00b\x1b[31m\xff\xc3\xa9\tc\n")
        rig.close()
        assert rig.texts("stdout") == ["a\\x00b\\x1b[31m\ufffdé\tc"]

    with_rig(go)


def test_a_long_line_is_cut_once_and_says_so() -> None:
    """IOC-004: 1 MiB without a newline is one bounded record, and the next line is whole."""

    async def go(rig: Rig) -> None:
        for _ in range(32):
            os.write(rig.out, b"x" * 32768)
            rig.log.drain()
        os.write(rig.out, b"\nnext\n")
        rig.close()
        first, second = rig.texts("stdout")
        assert first == "x" * LINE_BYTES + CUT_MARK
        assert second == "next"

    with_rig(go)


def test_a_flood_is_counted_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """IOC-001: over the rate, lines are counted and reported; the pipe is read all the same."""

    async def go(rig: Rig) -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: 100.0)
        for _ in range(10):
            os.write(rig.err, b"flood\n" * 5000)
            rig.log.drain()
        rig.close()
        kept = len(rig.texts("stderr"))
        assert kept == RATE
        assert rig.texts("host") == [
            f"{50_000 - kept} log lines were dropped (more than {RATE} a second)"
        ]

    with_rig(go)


def test_the_tail_of_stderr_is_kept_with_a_mark() -> None:
    """IOC-002: the last 4 KiB, marked as cut; without anything it is empty."""

    async def go(rig: Rig) -> None:
        assert rig.log.tail() == ""
        for number in range(30_000):
            os.write(rig.err, b"%08d\n" % number)
            if number % 1000 == 0:
                rig.log.drain()
        rig.log.drain()
        tail = rig.log.tail()
        assert tail.startswith(TAIL_MARK) and tail.endswith("00029999\n")
        assert len(tail) == len(TAIL_MARK) + logs.CRASH_TAIL_BYTES
        assert len(rig.log._tail) == logs.TAIL_BYTES
        rig.close()

    with_rig(go)


def test_granted_secrets_are_masked() -> None:
    """OBS-07, SVC-09, IOC-006, also where one secret contains another."""

    async def go(rig: Rig) -> None:
        os.write(rig.err, b"key=hunter2-long and hunter2\n")
        rig.log.frame({"level": "info", "msg": "hunter2", "fields": {"n": 1}, "call": 3})
        rig.close()
        assert rig.texts("stderr") == ["key=*** and ***"]
        assert "hunter2" not in rig.log.tail()
        assert rig.records[0] == TAGS | {
            "stream": "log",
            "level": "info",
            "text": "***",
            "fields": {"n": 1},
            "call": 3,
        }

    with_rig(go, secrets=["hunter2", "hunter2-long", "a"])


def test_a_raising_sink_does_not_stop_the_draining() -> None:
    """IOC-001: the listener's fault is counted."""

    def sink(record: Record) -> None:
        raise RuntimeError("the listener is broken")

    async def go(rig: Rig) -> None:
        os.write(rig.out, b"one\ntwo\n")
        rig.close()
        assert rig.log.sink_failures == 2

    with_rig(go, sink=sink)
