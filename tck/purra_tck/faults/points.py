"""Places in the work of a store at which it can be killed, and what it flushed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import PurePath
from types import TracebackType
from typing import Final, Self

from purra_tck.faults.tracing import SystemCall, TraceRefused, Tracing

__all__ = ["Points", "Record", "stores", "unflushed"]

EXTENDING_BYTES: Final = 16
"""A smaller write makes a file longer and says nothing."""
_ELSEWHERE: Final = ("/dev/", "/proc/", "/sys/")
_FLUSH_ALL: Final = frozenset({"sync", "syncfs", "msync"})
_FLUSH_ONE: Final = frozenset({"fsync", "fdatasync"})
_WRITES: Final = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})


def stores(call: SystemCall, within: str = "/") -> bool:
    """Whether it changes or flushes a file, or its name: a point at which a death may matter.

    `within`: only files below this folder count.
    """
    if call.name.startswith(("rename", "unlink", "sync")):
        return True
    return call.path.startswith(within) and not call.path.startswith(_ELSEWHERE)


class Record(AbstractContextManager["Record"]):
    """What a process asks for while the block runs. `refused`: why it could not be seen, or ""."""

    def __init__(self, pid: int | None, within: str = "/") -> None:
        self.calls: list[SystemCall] = []
        self._within = within
        self.refused = "" if pid else "it lives in the kit's own process"
        self._tracing = Tracing(pid, self._seen) if pid else None

    def __enter__(self) -> Self:
        if self._tracing is not None:
            try:
                self._tracing.start()
            except TraceRefused as why:
                self.refused, self._tracing = str(why), None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._tracing is not None:
            self._tracing.stop()

    @property
    def points(self) -> list[str]:
        """Labels of what changes or flushes files, in order, as `pwrite64 store.db-wal 4096`."""
        return [_label(call) for call in self.calls if stores(call, self._within)]

    def _seen(self, call: SystemCall) -> bool:
        self.calls.append(call)
        return False


class Points:
    """Kills a process when it is about to do the `number`-th thing that changes or flushes a file.

    `reached`: the label of that point, "" if the process did not come so far.
    """

    def __init__(self, pid: int, number: int, within: str = "/") -> None:
        self.reached = ""
        self._left = number
        self._within = within
        self._tracing = Tracing(pid, self._decide)

    def arm(self) -> None:
        """From now on. Raises `TraceRefused`."""
        self._tracing.start()

    def disarm(self) -> None:
        """No more. Idempotent."""
        self._tracing.stop()

    def _decide(self, call: SystemCall) -> bool:
        if not stores(call, self._within):
            return False
        self._left -= 1
        if self._left == 0:
            self.reached = _label(call)
        return self._left == 0


def unflushed(calls: Iterable[SystemCall], answers: Callable[[SystemCall], bool]) -> list[str]:
    """Files that were written and not flushed when the last answer was sent."""
    dirty: dict[str, None] = {}
    at_answer: list[str] = []
    for call in calls:
        if answers(call):
            at_answer = list(dirty)
        elif call.name in _FLUSH_ALL:
            dirty.clear()
        elif call.name in _FLUSH_ONE:
            dirty.pop(call.path, None)
        elif call.name in _WRITES and stores(call) and call.size >= EXTENDING_BYTES:
            dirty[call.path] = None
    return [PurePath(path).name for path in at_answer]


def _label(call: SystemCall) -> str:
    size = f" {call.size}" if call.name in _WRITES else ""
    return f"{call.name} {PurePath(call.path).name}{size}"
