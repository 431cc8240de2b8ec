"""Objects of the embedding code as adapters in this process (design invariant 1).

They get no isolation, but they pass the same checks as a plugin's answers, and fail in the same
way: whatever such an object raises or returns, the kernel sees a checked contract value or one
`AdapterError`. The ports of plugins do not go through here.

Hard timeouts do not exist in a process: a coroutine is cancelled, but a function that runs in a
thread is only left behind, and what it does afterwards it does. Its call is then `maybe` executed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from purra.contracts import answers
from purra.contracts.call import CallContext
from purra.contracts.context import Context, ContextBundle, ContextClaim, ContextRequest
from purra.contracts.messages import Message
from purra.contracts.model import Chunk, Model, ModelProfile, ModelRequest
from purra.contracts.policy import Policy, PolicyDecision, PolicyRequest
from purra.contracts.shapes import violation
from purra.contracts.store import Commit, Document, Page, Receipt, Scan, ScanPage, Store
from purra.contracts.tool import ToolResult, Tools, ToolSchema
from purra.errors import AdapterError, PurraError, ToolError
from purra.time_limit import TimeLimit
from purra.tools import FunctionTool, declared
from purra.values import freeze, thaw

__all__ = ["local_context", "local_model", "local_policy", "local_store", "local_tools"]

T = TypeVar("T")

_END: Final = object()

MAX_THREADS: Final = 16
"""Plain functions of one set that run at once; one that was left behind keeps its place."""


def local_model(model: Model) -> Model:
    """`model`, checked. Raises `PurraError(invalid_argument)` if it lacks a method."""
    return _LocalModel(_having(model, "model", "profile", "generate"))


def local_tools(tools: Iterable[Tools | Callable[..., Any]]) -> Tools:
    """Functions marked with `purra.tool`, and objects with `catalog` and `call`, as one set.

    Raises `PurraError`: `invalid_argument` for anything else, `duplicate_tool` for a name twice.
    """
    functions: dict[str, _Function] = {}
    sets: list[Tools] = []
    for tool in tools:
        if hasattr(tool, "catalog") and hasattr(tool, "call"):
            sets.append(_LocalTools(tool))
            continue
        read = declared(tool)
        if read.schema.name in functions:
            raise _duplicate(read.schema.name)
        functions[read.schema.name] = _Function(read, tool, inspect.iscoroutinefunction(tool))
    return _ToolSet(functions, tuple(sets))


def local_context(provider: Context) -> Context:
    """`provider`, checked; `compress` may be missing. Raises `PurraError(invalid_argument)`."""
    return _LocalContext(_having(provider, "context provider", "demand", "provide"))


def local_policy(policy: Policy) -> Policy:
    """`policy`, checked. Raises `PurraError(invalid_argument)` if it lacks a method."""
    return _LocalPolicy(_having(policy, "policy", "decide"))


def local_store(store: Store) -> Store:
    """`store`, checked. Raises `PurraError(invalid_argument)` if it lacks a method."""
    operations = ("commit", "read", "get", "scan", "watch", "now", "blob_put", "blob_get")
    return _LocalStore(_having(store, "store", *operations))


def _having(thing: T, kind: str, *methods: str) -> T:
    for method in methods:
        if not callable(getattr(thing, method, None)):
            raise PurraError(
                "invalid_argument", f"no {method}: not a {kind}", where=type(thing).__name__
            )
    return thing


def _duplicate(name: str) -> PurraError:
    return PurraError("duplicate_tool", f"two tools have the name {name!r}")


class _Boundary:
    """Around foreign code: what leaves it is an `AdapterError`, one of `passes`, or a real cancel.

    Also caught: `SystemExit`, which would end the whole process, and a `CancelledError` that nobody
    asked for, which would silently end the task that waits.
    """

    __slots__ = ("_passes",)

    def __init__(self, *passes: type[BaseException]) -> None:
        """Holds nothing of a block, so one serves all."""
        self._passes = passes

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, (AdapterError, *self._passes)):
            return
        if isinstance(error, (Exception, SystemExit)) or _is_stray_cancel(error):
            raise answers.failure(error) from error


_FOREIGN: Final = _Boundary()
_FOREIGN_TOOL: Final = _Boundary(ToolError)
_FOREIGN_STORE: Final = _Boundary(PurraError)


def _is_stray_cancel(error: BaseException) -> bool:
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


class _Deadline:
    """The time that a call has, counted from here on.

    Raises `AdapterError(cancelled, executed="no")` if the call was given up before it began.
    """

    __slots__ = ("_end_s",)

    def __init__(self, context: CallContext) -> None:
        if context.stop.requested:
            raise AdapterError("cancelled", "the call was given up", origin="caller", executed="no")
        limit_s = context.timeout_s
        self._end_s = None if limit_s is None else time.monotonic() + limit_s

    async def wait(self, made: Awaitable[T]) -> T:
        """The outcome of `made`. Raises `AdapterError(deadline_exceeded)`."""
        if self._end_s is None:
            return await made
        with TimeLimit(self._end_s - time.monotonic()):
            return await made
        raise AdapterError(
            "deadline_exceeded", "the call's time is over", origin="caller", executed="maybe"
        )


class _LocalModel:
    def __init__(self, model: Model) -> None:
        self._model = model

    async def profile(self) -> ModelProfile:
        with _FOREIGN:
            found = await self._model.profile()
        return answers.profile(found, "profile")

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        order = answers.StreamOrder()
        task = asyncio.current_task()
        others = task.cancelling() if task is not None else 0
        deadline = _Deadline(context)
        with _FOREIGN:
            stream = aiter(self._model.generate(request, context))
        try:
            while True:
                with _FOREIGN:
                    found = await deadline.wait(anext(stream, _END))
                if task is not None and task.cancelling() > others:
                    raise asyncio.CancelledError  # the model kept it for itself, and would go on
                if found is _END:
                    break
                check = answers.chunk.get(type(found))
                if check is None:
                    raise violation("stream", f"{type(found).__name__} is no chunk")
                chunk = check(found, "chunk")
                order.take(chunk)
                yield chunk
        finally:
            await _close(stream)
        order.end()


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        with _FOREIGN:
            await close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Function:
    read: FunctionTool
    function: Callable[..., Any]
    is_async: bool


class _ToolSet:
    """Functions and other sets; which set has a name is looked up once, at the first catalog."""

    def __init__(self, functions: Mapping[str, _Function], sets: tuple[Tools, ...]) -> None:
        self._functions = functions
        self._sets = sets
        self._owners: dict[str, Tools] | None = None
        self._threads: anyio.CapacityLimiter | None = None

    async def catalog(self) -> Sequence[ToolSchema]:
        listed = [function.read.schema for function in self._functions.values()]
        owners: dict[str, Tools] = {}
        for tools in self._sets:
            for schema in await tools.catalog():
                if schema.name in owners or schema.name in self._functions:
                    raise _duplicate(schema.name)
                owners[schema.name] = tools
                listed.append(schema)
        self._owners = owners
        return tuple(listed)

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        function = self._functions.get(name)
        if function is not None:
            return await self._call_function(function, arguments, context)
        if self._owners is None:
            await self.catalog()
        owner = (self._owners or {}).get(name)
        if owner is None:
            raise AdapterError(
                "unknown_tool", f"no tool {name!r} is offered", origin="caller", executed="no"
            )
        return await owner.call(name, arguments, context)

    async def _call_function(
        self, function: _Function, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        values = thaw(arguments)
        reports = _Reports(context)
        if function.read.injected:
            report = reports.report if function.is_async else reports.report_from_thread
            values[function.read.injected] = dataclasses.replace(context, progress=report)
        call = functools.partial(function.function, **values)
        deadline = _Deadline(context)
        try:
            with _FOREIGN_TOOL:
                made = call() if function.is_async else self._in_thread(call)
                found = await deadline.wait(made)
        except ToolError as error:
            found = _told(error)
        finally:
            reports.open = False
        if isinstance(found, ToolResult):
            return answers.tool_result(found, "result")
        return ToolResult(answers.tool_value(found, "result"))

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(MAX_THREADS)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)


def _told(error: ToolError) -> ToolResult:
    return ToolResult(
        {"error": error.message}, is_error=True, code=error.code, effect_state=error.effect_state
    )


class _Reports:
    """Progress of one function: checked, on the kernel's thread, and only while the call lasts."""

    __slots__ = ("_progress", "open")

    def __init__(self, context: CallContext) -> None:
        self._progress = context.progress
        self.open = True

    def report(self, item: Any) -> None:
        frozen = freeze(item, where="progress")
        if self.open:
            self._progress(frozen)

    def report_from_thread(self, item: Any) -> None:
        anyio.from_thread.run_sync(self.report, item)


class _LocalTools:
    def __init__(self, tools: Any) -> None:
        self._tools: Tools = tools

    async def catalog(self) -> Sequence[ToolSchema]:
        with _FOREIGN:
            found = await self._tools.catalog()
        return answers.catalog(found, "catalog")

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        try:
            with _FOREIGN_TOOL:
                found = await _Deadline(context).wait(self._tools.call(name, arguments, context))
        except ToolError as error:
            found = _told(error)
        return answers.tool_result(found, "result")


class _LocalContext:
    def __init__(self, provider: Context) -> None:
        self._provider = provider

    async def demand(self, request: ContextRequest, context: CallContext) -> ContextClaim:
        with _FOREIGN:
            found = await _Deadline(context).wait(self._provider.demand(request, context))
        return answers.claim(found, "claim")

    async def provide(
        self, request: ContextRequest, budget: int, context: CallContext
    ) -> ContextBundle:
        deadline = _Deadline(context)
        with _FOREIGN:
            found = await deadline.wait(self._provider.provide(request, budget, context))
        return answers.bundle(found, "bundle")

    async def compress(
        self, messages: Sequence[Message], budget: int, context: CallContext
    ) -> tuple[Message, ...]:
        compress = getattr(self._provider, "compress", None)
        if compress is None:
            raise AdapterError("unimplemented", "the provider cannot compress", executed="no")
        with _FOREIGN:
            found = await _Deadline(context).wait(compress(tuple(messages), budget, context))
        return answers.messages(found, "messages")


class _LocalPolicy:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision:
        with _FOREIGN:
            found = await _Deadline(context).wait(self._policy.decide(request, context))
        return answers.decision(found, "decision")


class _LocalStore:
    """`PurraError` passes: the store's own codes are what the caller decides by."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def commit(self, commit: Commit) -> Receipt:
        with _FOREIGN_STORE:
            found = await self._store.commit(commit)
        return answers.receipt(found, commit)

    async def read(self, stream: str, after: int, limit: int) -> Page:
        with _FOREIGN_STORE:
            found = await self._store.read(stream, after, limit)
        return answers.page(found, limit)

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        with _FOREIGN_STORE:
            found = await self._store.get(keys)
        return answers.documents(found, keys)

    async def scan(self, scan: Scan) -> ScanPage:
        with _FOREIGN_STORE:
            found = await self._store.scan(scan)
        return answers.scan_page(found, scan)

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        with _FOREIGN_STORE:
            stream = aiter(self._store.watch(prefix))
        try:
            while True:
                with _FOREIGN_STORE:
                    found = await anext(stream, _END)
                if found is _END:
                    break
                yield answers.watched_name(found, "watch")
        finally:
            await _close(stream)

    async def now(self) -> int:
        with _FOREIGN_STORE:
            found = await self._store.now()
        return answers.clock_ms(found, "now")

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        with _FOREIGN_STORE:
            found = await self._store.blob_put(chunks)
        return answers.digest_name(found, "digest")

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        with _FOREIGN_STORE:
            found = await self._store.blob_get(digest, offset, length)
        if type(found) is not bytes or len(found) > length:
            raise violation("blob", f"at most {length} bytes expected")
        return found
