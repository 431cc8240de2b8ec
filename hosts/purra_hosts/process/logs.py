"""What a worker prints and logs: always drained, bounded, tagged, never trusted.

Both pipes are read whether or not anybody listens, because a full pipe would block the plugin. A
flood costs the host a bounded amount of memory and time: over the rate, lines are counted without
being cut apart. Text is made harmless before it goes anywhere (a worker can write terminal control
sequences), and granted secrets are masked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

__all__ = ["LogSink", "Logs", "Record"]

Record = dict[str, Any]
"""`plugin`, `instance`, `generation`, `stream` (stdout, stderr, log, host), `level`, `text`; LOG
frames add `fields` and `call`."""
LogSink = Callable[[Record], None]

LINE_BYTES: Final = 16 * 1024
"""Longest line; the rest of it is left out, and the record says so."""
RATE: Final = 1000
"""Records a second of one instance; more are counted and reported as one."""
TAIL_BYTES: Final = 64 * 1024
"""How much of the end of stderr is kept."""
CRASH_TAIL_BYTES: Final = 4 * 1024
"""How much of it a crash error carries (protocol, errors)."""
READ_BYTES: Final = 64 * 1024
DRAIN_BYTES: Final = 1024 * 1024
"""Read at most after the process is gone: a pipe holds 64 KiB, but a grandchild may go on."""
SECRET_CHARS: Final = 4
"""Shorter secrets are not masked: they would hit ordinary words."""

CUT_MARK: Final = " [line cut]"
TAIL_MARK: Final = "[earlier output cut]\n"

_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}


class Logs:
    """The log of one instance."""

    def __init__(
        self, tags: Mapping[str, Any], sink: LogSink | None, secrets: Iterable[str] = ()
    ) -> None:
        """`tags` go into every record. `sink` is called on the loop and must not block."""
        self._tags = dict(tags)
        self._sink = sink
        # Longest first, so that a secret inside another does not leave the rest of it readable.
        self._secrets = sorted({s for s in secrets if len(s) >= SECRET_CHARS}, key=len)[::-1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pipes: list[_Pipe] = []
        self._tail = bytearray()
        self._tail_cut = False
        self._second = 0
        self._left = RATE
        self._dropped = 0
        self._report: asyncio.TimerHandle | None = None
        self.sink_failures = 0

    def attach(
        self, loop: asyncio.AbstractEventLoop, stdout: int | None, stderr: int | None
    ) -> None:
        """Takes the read ends over and drains them from now on."""
        self._loop = loop
        if stdout is not None:
            self._pipes.append(_Pipe(stdout, "stdout"))
        if stderr is not None:
            self._pipes.append(_Pipe(stderr, "stderr"))
        for pipe in self._pipes:
            loop.add_reader(pipe.descriptor, self._readable, pipe)

    def frame(self, body: Mapping[str, Any]) -> None:
        """Takes one LOG message."""
        if self._spend():
            text = self._harmless(str(body.get("msg", ""))[:LINE_BYTES])
            more = {name: body[name] for name in ("fields", "call") if body.get(name) is not None}
            self._give("log", str(body.get("level", "info"))[:16], text, more)

    def note(self, level: str, text: str) -> None:
        """A remark of the host itself about this instance; not counted against the rate."""
        self._give("host", level, self._harmless(text), {})

    def tail(self) -> str:
        """The last `CRASH_TAIL_BYTES` of stderr, as text."""
        cut = self._tail_cut or len(self._tail) > CRASH_TAIL_BYTES
        text = bytes(self._tail[-CRASH_TAIL_BYTES:]).decode("utf-8", "replace")
        return (TAIL_MARK if cut and text else "") + self._harmless(text)

    def drain(self) -> None:
        """Reads what is in the pipes now, without waiting: after the process has ended."""
        for pipe in tuple(self._pipes):
            left = DRAIN_BYTES
            while left > 0 and (count := self._readable(pipe)):
                left -= count

    def close(self) -> None:
        """Drains, gives out the unfinished last lines, and closes the pipes."""
        self.drain()
        for pipe in tuple(self._pipes):
            self._end(pipe)
        self._report_dropped()

    def _readable(self, pipe: _Pipe) -> int:
        """Reads one piece; the number of bytes, 0 when there is nothing (more) to read."""
        if pipe.closed:
            return 0
        try:
            data = os.read(pipe.descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self._end(pipe)
            return 0
        if pipe.stream == "stderr":
            self._tail += data
            if len(self._tail) > TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]
                self._tail_cut = True
        self._lines(pipe, data)
        return len(data)

    def _lines(self, pipe: _Pipe, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if not self._spend():
                # The flood path: count the lines, look at nothing.
                self._dropped += data.count(b"\n", start) - 1
                start = data.rfind(b"\n") + 1
                pipe.begin(b"")
                break
            pipe.grow(data[start:end])
            self._line(pipe)
            start = end + 1
        pipe.grow(data[start:])

    def _line(self, pipe: _Pipe) -> None:
        text = self._harmless(pipe.partial.decode("utf-8", "replace").rstrip("\r"))
        level = "info" if pipe.stream == "stdout" else "warning"
        self._give(pipe.stream, level, text + (CUT_MARK if pipe.cut else ""), {})
        pipe.begin(b"")

    def _end(self, pipe: _Pipe) -> None:
        if pipe.closed:
            return
        pipe.closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(pipe.descriptor)
        os.close(pipe.descriptor)
        if pipe.partial and self._spend():
            self._line(pipe)

    def _spend(self) -> bool:
        """One record from this second's budget; False counts it as dropped."""
        now = int(self._loop.time()) if self._loop is not None else 0
        if now != self._second:
            self._second = now
            self._left = RATE
            self._report_dropped()
        if self._left <= 0:
            self._dropped += 1
            if self._report is None and self._loop is not None:
                self._report = self._loop.call_later(1.0, self._report_dropped)
            return False
        self._left -= 1
        return True

    def _report_dropped(self) -> None:
        if self._report is not None:
            self._report.cancel()
            self._report = None
        dropped, self._dropped = self._dropped, 0
        if dropped:
            self.note("warning", f"{dropped} log lines were dropped (more than {RATE} a second)")

    def _harmless(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text if text.isprintable() else text.translate(_CONTROLS)

    def _give(
        self,
        stream: Literal["stdout", "stderr", "log", "host"],
        level: str,
        text: str,
        more: Record,
    ) -> None:
        if self._sink is None:
            return
        record = {**self._tags, "stream": stream, "level": level, "text": text, **more}
        try:
            self._sink(record)
        except Exception:  # a listener's fault must not stop the draining of the pipe
            self.sink_failures += 1


class _Pipe:
    """One stream's descriptor and its unfinished line."""

    __slots__ = ("closed", "cut", "descriptor", "partial", "stream")

    def __init__(self, descriptor: int, stream: Literal["stdout", "stderr"]) -> None:
        self.descriptor = descriptor
        self.stream = stream
        self.closed = False
        self.begin(b"")

    def begin(self, data: bytes) -> None:
        self.partial = bytearray(data)
        self.cut = False

    def grow(self, data: bytes) -> None:
        room = LINE_BYTES - len(self.partial)
        self.partial += data[:room]
        self.cut = self.cut or len(data) > room
