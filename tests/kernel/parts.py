"""In-process parts of kernel tests: scripted model, counting store, a clock that stands still."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio

from purra.contracts.call import CallContext
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    ModelProfile,
    ModelRequest,
    ToolCallFragment,
    Usage,
)
from purra.contracts.store import Commit, Receipt
from purra.stores.memory import MemoryStore

Step = Sequence[Any]


def say(text: str, usage: Usage | None = None) -> list[Chunk]:
    """A round that answers."""
    return [Content(text), usage or Usage(3, 2), Finish("stop", "stop")]


def ask(*calls: tuple[str, str], text: str = "") -> list[Chunk]:
    """A round that calls tools: (name, argument text) each."""
    fragments = [
        ToolCallFragment(index, f"call_{index}", name, arguments)
        for index, (name, arguments) in enumerate(calls)
    ]
    said: list[Chunk] = [Content(text)] if text else []
    return [*said, *fragments, Usage(3, 2), Finish("tool_calls", "tool_use")]


class ScriptModel:
    """Plays one step per request; a step holds chunks, exceptions to raise and events to await.

    `requests` are kept. More requests than steps fail the test.
    """

    def __init__(self, *steps: Step, window: int = 8192, output_limit: int = 512) -> None:
        self.steps = list(steps)
        self.requests: list[ModelRequest] = []
        self.window, self.output_limit = window, output_limit

    async def profile(self) -> ModelProfile:
        return ModelProfile(self.window, self.output_limit, frozenset({"tools"}))

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        if len(self.requests) > len(self.steps):
            raise AssertionError(f"unexpected request {len(self.requests)}")
        for part in self.steps[len(self.requests) - 1]:
            if isinstance(part, anyio.Event):
                await part.wait()
            elif isinstance(part, BaseException):
                raise part
            elif callable(part):
                part()
            else:
                yield part


class CountingStore(MemoryStore):
    """The memory store, with its commits kept and a hook before each."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []
        self.calls: Counter[str] = Counter()
        self.before_commit: Callable[[Commit], None] | None = None

    async def commit(self, commit: Commit) -> Receipt:
        self.calls["commit"] += 1
        if self.before_commit:
            self.before_commit(commit)
        receipt = await super().commit(commit)
        self.commits.append(commit)
        return receipt


class StillClock:
    """Time that only `pass_ms` moves; ids count up."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._tokens = 0
        self._alarms: list[tuple[int, Callable[[], object]]] = []

    def wall_ms(self) -> int:
        return self.now_ms

    def token(self, size: int = 8) -> str:
        self._tokens += 1
        return f"{self._tokens:0{2 * size}x}"

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        for alarm in [alarm for alarm in self._alarms if alarm[0] <= self.now_ms]:
            self._alarms.remove(alarm)
            alarm[1]()

    def alarm(self, at_ms: int, ring: Callable[[], object]) -> Callable[[], object]:
        alarm = (at_ms, ring)
        self._alarms.append(alarm)
        return lambda: alarm in self._alarms and self._alarms.remove(alarm)


def kinds(events: Sequence[Any]) -> list[str]:
    return [event.kind for event in events]
