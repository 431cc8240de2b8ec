"""Counts what SQLite flushes, from below: a VFS between it and the system, in this process only.

Run as `python flushes.py PATH`; prints one JSON list of observations. A plain count of calls in the
engine would only show what it meant to do.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

from purra_plugin_sqlite.engine import Engine
from tests.plugins.sqlite import children

_POINTER = ctypes.c_void_p
_OPEN_WAL = 0x80000
_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int, _POINTER, _POINTER, _POINTER, ctypes.c_int, ctypes.POINTER(ctypes.c_int)
)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int)


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, up to version 3."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("close", _POINTER),
        ("read", _POINTER),
        ("write", _POINTER),
        ("truncate", _POINTER),
        ("sync", _POINTER),
        ("rest", _POINTER * 13),
    )


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, up to version 3."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("path_bytes", ctypes.c_int),
        ("next", _POINTER),
        ("name", ctypes.c_char_p),
        ("data", _POINTER),
        ("open", _POINTER),
        ("rest", _POINTER * 15),
    )


class Flushes:
    """Installed as the default VFS: `log` and `file` count the flushes of each; `look` is called
    at each flush of a log, before it is done.
    """

    def __init__(self) -> None:
        self.log = self.file = 0
        self.look: Callable[[], None] = lambda: None
        self._kept: list[Any] = []
        self._patched: dict[tuple[int, bool], _Methods] = {}
        library = _library()
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        found = library.sqlite3_vfs_find(None)
        self._real_open = _OPEN(found.contents.open)
        self._real = found
        ours = _Vfs.from_buffer_copy(found.contents)
        ours.name = b"counting"
        opened = _OPEN(self._open)
        ours.open = ctypes.cast(opened, _POINTER)
        self._kept += [ours, opened]
        assert library.sqlite3_vfs_register(ctypes.byref(ours), 1) == 0

    def _open(self, _vfs: Any, name: Any, file: Any, flags: int, out: Any) -> int:
        code = int(self._real_open(ctypes.cast(self._real, _POINTER), name, file, flags, out))
        slot = ctypes.cast(file, ctypes.POINTER(_POINTER))
        if code == 0 and slot[0]:
            slot[0] = ctypes.addressof(self._methods(slot[0], bool(flags & _OPEN_WAL)))
        return code

    def _methods(self, real: int, is_log: bool) -> _Methods:
        if (real, is_log) not in self._patched:
            methods = _Methods.from_buffer_copy(_Methods.from_address(real))
            real_sync = _SYNC(methods.sync)

            def sync(file: Any, flags: int) -> int:
                if is_log:
                    self.look()
                    self.log += 1
                else:
                    self.file += 1
                return int(real_sync(file, flags))

            counted = _SYNC(sync)
            methods.sync = ctypes.cast(counted, _POINTER)
            self._kept.append(counted)
            self._patched[real, is_log] = methods
        return self._patched[real, is_log]


def _library() -> Any:
    """The SQLite that Python uses, wherever it is linked."""
    with open("/proc/self/maps") as maps:
        mapped = [line.split()[-1] for line in maps if "libsqlite3" in line]
    for place in (*mapped[:1], _sqlite3.__file__, None):
        library = ctypes.CDLL(place)
        if hasattr(library, "sqlite3_vfs_find"):
            return library
    raise SystemExit("no SQLite library to put a VFS into")


def observe(path: str) -> list[dict[str, Any]]:
    """What commits of each kind flush; `visible`: the head that another connection saw then."""
    flushes = Flushes()
    engine, other = Engine(path), Engine(path)
    observations: list[dict[str, Any]] = []
    visible: list[int] = []
    flushes.look = lambda: visible.append(other.read("run", 0, 1)["head"])

    def request(number: int, durable: bool) -> dict[str, Any]:
        op = children.append("run", number, {"n": number})
        return {"ops": [op], "key": ["run", f"{number}"], "durable": durable}

    plan = [[True], [False], [True], [False, False], [False, True], [True] * 40, [False] * 40]
    head = 0
    for kinds in plan:
        visible.clear()
        before = (flushes.log, flushes.file)
        outcomes = engine.commit_together(
            [request(head + number, durable) for number, durable in enumerate(kinds)]
        )
        assert [outcome["heads"]["run"] for outcome in outcomes] == list(  # type: ignore[index]
            range(head + 1, head + len(kinds) + 1)
        )
        observations.append(
            {
                "durable": kinds.count(True),
                "log": flushes.log - before[0],
                "file": flushes.file - before[1],
                "visible": list(visible),
                "head": head,
            }
        )
        head += len(kinds)
    flushes.look = lambda: None
    engine.close()
    other.close()
    return observations


if __name__ == "__main__":
    print(json.dumps(observe(sys.argv[1])))
