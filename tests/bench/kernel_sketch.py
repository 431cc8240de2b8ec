"""The sketch of a kernel: what a careful one must do anyway, and nothing else.

An event for each transition, encoded once; arguments checked; a deadline for each adapter call;
what a model decided is durable before its effect, and the result before the next request. It has no
policy, approval, budget, lease, session, subscriber or recovery, so it is a bound and no equal.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Protocol

import msgpack  # type: ignore[import-untyped]

from tests.bench.lean import HANDLERS

__all__ = ["Journal", "MemoryJournal", "Play", "SqliteJournal", "bare_loop", "kernel_sketch"]

ADAPTER_S: Final = 60.0
PARAMETERS: Final = {"a": int, "b": int}
QUESTION: Final = {"role": "user", "text": "Hello"}

Ask = Callable[[str, Any], Awaitable[Any]]
"""An adapter: method and value to its answer."""
Play = Callable[[int], Awaitable[Any]]
"""One run of so many rounds with the tool; what it gives is what is left of it."""


class Journal(Protocol):
    """Where events go."""

    def add(self, run: str, seq: int, body: bytes) -> None:
        """Takes one event."""

    def commit(self) -> None:
        """Makes what was taken durable."""


class MemoryJournal:
    """Events in a list."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, bytes]] = []

    def add(self, run: str, seq: int, body: bytes) -> None:
        self._rows.append((run, seq, body))

    def commit(self) -> None:
        """They are as safe as they will be."""


class SqliteJournal:
    """Events as rows of a file, written ahead, not flushed at each commit."""

    def __init__(self, path: Path) -> None:
        self._rows: list[tuple[str, int, bytes]] = []
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=NORMAL")
        self._file.execute(
            "CREATE TABLE journal (run TEXT, seq INTEGER, body BLOB, PRIMARY KEY (run, seq)) "
            "WITHOUT ROWID"
        )

    def add(self, run: str, seq: int, body: bytes) -> None:
        self._rows.append((run, seq, body))

    def commit(self) -> None:
        self._file.execute("BEGIN IMMEDIATE")
        self._file.executemany("INSERT INTO journal VALUES (?, ?, ?)", self._rows)
        self._file.execute("COMMIT")
        self._rows.clear()

    def close(self) -> None:
        """The file can be removed then."""
        self._file.close()


async def here(method: str, value: Any) -> Any:
    """The adapters in this process."""
    return HANDLERS[method](value)


async def bare_loop(rounds: int) -> Any:
    """The floor: a model, a tool and a list of messages."""
    messages: list[Any] = [QUESTION]
    while True:
        answer = await here("model", (messages, rounds))
        messages.append(answer)
        if not answer["calls"]:
            return messages
        for call in answer["calls"]:
            text = await here("add", json.loads(call["arguments"]))
            messages.append({"role": "tool", "id": call["id"], "text": text})


class _Thread:
    """One run of the sketch: its number, its events, its deadline."""

    def __init__(self, ask: Ask, journal: Journal, pack: Callable[[Any], bytes]) -> None:
        self._ask = ask
        self._journal = journal
        self._pack = pack
        self._id = uuid.uuid4().hex
        self._seq = 0
        self._loop = asyncio.get_running_loop()

    def emit(self, kind: str, data: Any) -> None:
        self._seq += 1
        self._journal.add(self._id, self._seq, self._pack((kind, time.time_ns(), data)))

    async def ask(self, method: str, value: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        timer = self._loop.call_later(ADAPTER_S, task.cancel)
        try:
            return await self._ask(method, value)
        finally:
            timer.cancel()

    async def tool(self, call: dict[str, Any]) -> dict[str, Any]:
        arguments = _checked(json.loads(call["arguments"]))
        self.emit("tool.requested", call)
        self._journal.commit()
        result = {"role": "tool", "id": call["id"], "text": await self.ask("add", arguments)}
        self.emit("tool.completed", result)
        self._journal.commit()
        return result


def _checked(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments.keys() != PARAMETERS.keys():
        raise TypeError("other parameters")
    for name, kind in PARAMETERS.items():
        if type(arguments[name]) is not kind:
            raise TypeError(name)
    return arguments


def kernel_sketch(ask: Ask, journal: Journal) -> Play:
    """A kernel on these adapters and this journal."""
    pack = msgpack.Packer().pack

    async def play(rounds: int) -> Any:
        thread = _Thread(ask, journal, pack)
        messages: list[Any] = [QUESTION]
        thread.emit("run.started", QUESTION)
        while True:
            thread.emit("model.requested", len(messages))
            answer = await thread.ask("model", (messages, rounds))
            thread.emit("model.completed", answer)
            messages.append(answer)
            if not answer["calls"]:
                thread.emit("run.completed", answer["text"])
                journal.commit()
                return messages
            for call in answer["calls"]:
                messages.append(await thread.tool(call))

    return play
