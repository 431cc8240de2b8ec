"""A kernel around the tools of a plugin: what a model announces is what a check says.

So what is judged is the whole way from the text of a call to its result (preflight, gates,
dispatch, port, plugin) as applications have it, and the kit holds no copy of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from purra import adapters as local
from purra.agent import Agent, RunLimits
from purra.contracts.call import CallContext
from purra.contracts.context import Context
from purra.contracts.messages import Message
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    ModelProfile,
    ModelRequest,
    ToolCallFragment,
)
from purra.contracts.tool import ToolResult, Tools, ToolSchema
from purra.journal.events import Event
from purra.kernel import Kernel
from purra.runs.bindings import Adapters
from purra.stores.memory import MemoryStore

__all__ = [
    "Answer",
    "Asked",
    "Intercepted",
    "Narrowed",
    "Told",
    "announce",
    "assembled",
    "one_by_one",
]

RUN_S: Final = 60.0
WINDOW_TOKENS: Final = 100_000_000
MAX_CALLS: Final = 10_000
RUNS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """One call as a model announces it: the raw text of its arguments."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The one result of one call. `order`: its place among the results that the model saw."""

    name: str
    value: Any
    is_error: bool
    code: str
    effect_state: str
    order: int

    @property
    def message(self) -> str:
        """What the model may read of a failure."""
        return str(self.value.get("error", "")) if isinstance(self.value, Mapping) else ""

    def __str__(self) -> str:
        return f"{self.name}: {self.code or 'ok'} {self.value!r}"[:300]


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one run: results by (round, place), and how it ended."""

    answers: Mapping[tuple[int, int], Answer]
    status: str
    code: str

    def of(self, batch: int, place: int = 0) -> Answer | None:
        """The result of a call; batches count from 0."""
        return self.answers.get((batch, place))


Batches = Sequence[Sequence[Asked]]


class _Announcer:
    """A model that announces one batch per round, then says that it is done.

    One model plays all runs of a kernel: it knows a run by its prompt, and a round by the answers
    that the conversation holds.
    """

    def __init__(self, runs: Sequence[Batches]) -> None:
        self._runs = runs
        self.seen: dict[tuple[int, int], list[str]] = {}
        """By run and batch: aliases of the results, in the order that the model sees."""

    async def profile(self) -> ModelProfile:
        return ModelProfile(WINDOW_TOKENS, 1000, frozenset({"tools", "parallel_tools"}))

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        run = next(int(each.content) for each in request.messages if each.role == "user")
        number = sum(message.role == "assistant" for message in request.messages)
        if number:
            self.seen[run, number - 1] = _last_results(request.messages)
        if number >= len(self._runs[run]):
            yield Content("done")
            yield Finish("stop")
            return
        for place, asked in enumerate(self._runs[run][number]):
            yield ToolCallFragment(place, _alias(number, place), asked.tool, asked.text)
        yield Finish("tool_calls")


def _alias(batch: int, place: int) -> str:
    return f"tck-{batch}-{place}"


def _last_results(messages: Sequence[Message]) -> list[str]:
    found: list[str] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        found.append(message.call_id)
    return found[::-1]


async def announce(tools: Tools, *runs: Batches) -> list[Told]:
    """One kernel with one run for each of `runs`, all at once.

    Writes of one batch run one after the other; a call that needs a person's approval gets it.
    """
    model = _Announcer(runs)
    found: dict[int, Told] = {}

    async def one(number: int) -> None:
        run = await kernel.submit(str(number))
        events: list[Event] = []
        async for event in run.events():
            events.append(event)
            if event.kind == "approval.requested":
                await kernel.decide(run.id, event.data["call"], "approve", by="tck")
        result = await run.wait()
        code = str(result.error["code"]) if result.error else ""
        answers = _answers(events, {b: seen for (r, b), seen in model.seen.items() if r == number})
        found[number] = Told(answers, result.status, code)

    async with (
        _kernel(tools, model, max(map(len, runs))) as kernel,
        anyio.create_task_group() as tasks,
    ):
        for number in range(len(runs)):
            tasks.start_soon(one, number)
    return [found[number] for number in range(len(runs))]


async def one_by_one(tools: Tools, calls: Sequence[Asked]) -> list[Answer | None]:
    """The results of calls that have a run each; None: its run ended before.

    A run whose calls are refused again and again ends, so many refusals take many runs.
    """
    found: list[Answer | None] = []
    for start in range(0, len(calls), RUNS_AT_ONCE):
        some = calls[start : start + RUNS_AT_ONCE]
        told = await announce(tools, *([[call]] for call in some))
        found += [each.of(0) for each in told]
    return found


def _kernel(tools: Tools, model: _Announcer, rounds: int) -> Kernel:
    limits = RunLimits(
        max_rounds=rounds + 1, max_tool_calls=MAX_CALLS, deadline_s=RUN_S, write_batch="serial"
    )
    agent = Agent("tck", "1", limits=limits, approvals="inbox")
    ports = Adapters(local.local_model(model), (tools,), names={"model": "tck/announcer"})
    return Kernel.of(ports, MemoryStore(), agent)


def _answers(
    events: Sequence[Event], seen: Mapping[int, Sequence[str]]
) -> dict[tuple[int, int], Answer]:
    answers: dict[tuple[int, int], Answer] = {}
    for event in events:
        if event.kind != "tool.call.completed":
            continue
        data = event.data
        number, place = (int(part) for part in data["call"].split("."))
        batch = number - 1
        order = -1
        if _alias(batch, place) in seen.get(batch, ()):
            order = seen[batch].index(_alias(batch, place))
        answers[batch, place] = Answer(
            data["name"],
            data["value"],
            data["is_error"],
            data["code"],
            data["effect_state"],
            order,
        )
    return answers


class _Listener:
    """A model that keeps what it is asked."""

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()

    async def profile(self) -> ModelProfile:
        return ModelProfile(WINDOW_TOKENS, 1000, frozenset())

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        self.messages = request.messages
        yield Content("done")
        yield Finish("stop")


async def assembled(provider: Context, prompt: str, session: str) -> tuple[Message, ...]:
    """What a model sees of a run with this context provider. () if the run failed before."""
    model = _Listener()
    ports = Adapters(
        local.local_model(model), contexts=(("tck", provider),), names={"model": "tck/listener"}
    )
    async with Kernel.of(ports, MemoryStore(), Agent("tck", "1")) as kernel:
        run = await kernel.submit(prompt, session=session)
        await run.wait()
    return model.messages


class Intercepted:
    """The tools with nothing behind them: what is admitted is counted and not carried out."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    async def catalog(self) -> Sequence[ToolSchema]:
        return await self._tools.catalog()

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        self.calls.append((name, arguments))
        return ToolResult(None, effect_state="not_started")


class Narrowed:
    """Some of the tools: what a run was granted."""

    def __init__(self, tools: Tools, names: Sequence[str]) -> None:
        self._tools = tools
        self._names = names

    async def catalog(self) -> Sequence[ToolSchema]:
        return [schema for schema in await self._tools.catalog() if schema.name in self._names]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        return await self._tools.call(name, arguments, context)
