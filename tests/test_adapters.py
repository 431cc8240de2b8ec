"""Objects of the embedding code: what only a process that shares its memory has to fear."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from purra.adapters import (
    MAX_THREADS,
    local_context,
    local_model,
    local_policy,
    local_store,
    local_tools,
)
from purra.contracts.call import CallContext
from purra.contracts.model import Chunk, Content, Finish, ModelProfile, ModelRequest
from purra.contracts.store import Append, Commit, Document, Page, Receipt, Scan, ScanPage
from purra.contracts.tool import ToolResult, ToolSchema, declare
from purra.errors import AdapterError, KernelBug, PurraError, StoreError
from purra.tools import tool

pytestmark = pytest.mark.anyio

CALL = CallContext()
OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


def test_objects_that_are_no_adapters_are_refused_at_once() -> None:
    """Before any run, by what they lack."""
    for wrap, lacking in (
        (local_model, "profile"),
        (local_context, "demand"),
        (local_policy, "decide"),
        (local_store, "commit"),
    ):
        with pytest.raises(PurraError, match=f"no {lacking}") as caught:
            wrap(object())  # type: ignore[arg-type]
        assert caught.value.code == "invalid_argument"
    with pytest.raises(PurraError, match="effect"):
        local_tools([object()])  # type: ignore[list-item]


async def test_a_tool_name_is_given_once() -> None:
    """`duplicate_tool`, among functions at once, among sets when they are listed."""

    @tool(effect="pure", name="same")
    def first() -> None: ...

    @tool(effect="pure", name="same")
    def second() -> None: ...

    with pytest.raises(PurraError, match="'same'"):
        local_tools([first, second])
    with pytest.raises(PurraError, match="'same'") as caught:
        await local_tools([first, OneTool("same")]).catalog()
    assert caught.value.code == "duplicate_tool"


class OneTool:
    """A set of one tool that answers with whatever it was made with."""

    def __init__(self, name: str, answer: Any = None) -> None:
        self._schema = declare(name, "", OBJECT, "pure")
        self._answer = answer

    async def catalog(self) -> tuple[ToolSchema, ...]:
        return (self._schema,)

    async def call(self, name: str, arguments: Any, context: CallContext) -> Any:
        return self._answer


async def test_a_set_passes_the_checks_of_a_function() -> None:
    """Invariant 1: the same value checks."""
    tools = local_tools([OneTool("good", ToolResult({"a": [1]})), OneTool("bad", {"a": object()})])
    assert (await tools.call("good", {}, CALL)).value == {"a": (1,)}
    with pytest.raises(AdapterError, match=r"result\.value: missing"):
        await tools.call("bad", {}, CALL)
    with pytest.raises(AdapterError, match="result: ToolResult expected, found NoneType"):
        await local_tools([OneTool("none")]).call("none", {}, CALL)


async def test_a_catalog_is_checked() -> None:
    class Lies(OneTool):
        async def catalog(self) -> Any:
            return [declare("x", "", OBJECT, "harmless")]  # type: ignore[arg-type]

    with pytest.raises(AdapterError, match=r"catalog\[0\]\.effect: not one of"):
        await local_tools([Lies("x")]).catalog()


async def test_a_result_is_detached_from_its_maker() -> None:
    """JSON-08: changing the returned object later changes nothing."""
    kept: dict[str, Any] = {"rows": [1]}

    @tool(effect="pure")
    def rows() -> Any:
        return kept

    result = await local_tools([rows]).call("rows", {}, CALL)
    kept["rows"].append(2)
    assert result.value == {"rows": (1,)}


async def test_arguments_are_the_functions_own() -> None:
    """JSON-08: a function may change what it gets; the kernel's values stay."""

    @tool(effect="pure")
    def sort(items: list[int]) -> Any:
        items.sort()
        return items

    given = {"items": (3, 1, 2)}
    assert (await local_tools([sort]).call("sort", given, CALL)).value == (1, 2, 3)
    assert given == {"items": (3, 1, 2)}


async def test_a_model_cannot_fill_in_the_context() -> None:
    """Host-owned: an argument of its name is overwritten."""
    seen: list[Any] = []

    @tool(effect="pure")
    def asks(context: CallContext) -> None:
        seen.append(context)

    await local_tools([asks]).call("asks", {"context": "mine"}, CALL)
    assert isinstance(seen[0], CallContext)


async def test_plain_functions_leave_the_loop_alone() -> None:
    """Two functions that wait for each other need two threads, none of them the loop's."""
    meeting = threading.Barrier(2, timeout=10)

    @tool(effect="pure")
    def meets() -> Any:
        meeting.wait()
        return threading.get_ident()

    tools = local_tools([meets])
    threads: list[Any] = []

    async def one() -> None:
        threads.append((await tools.call("meets", {}, CALL)).value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        tasks.start_soon(one)
    assert threading.get_ident() not in threads
    assert len(set(threads)) == 2


async def test_a_stuck_function_is_left_behind() -> None:
    """RUN-11: the caller is not held; the function's late reports and result go nowhere."""
    started, release, done = threading.Event(), threading.Event(), threading.Event()
    reports: list[Any] = []

    @tool(effect="world_write")
    def stuck(context: CallContext) -> None:
        started.set()
        release.wait(10)
        try:
            context.progress("late")
        finally:
            done.set()

    tools = local_tools([stuck])
    with pytest.raises(AdapterError) as caught:
        await tools.call("stuck", {}, CallContext(timeout_s=0.2, progress=reports.append))
    assert (caught.value.code, caught.value.executed) == ("deadline_exceeded", "maybe")
    assert started.is_set()
    release.set()
    assert await anyio.to_thread.run_sync(done.wait, 10)
    assert reports == []


async def test_stuck_functions_of_one_set_do_not_stop_another() -> None:
    """Design invariant 10: each set has its own threads."""
    release = threading.Event()

    @tool(effect="pure")
    def stuck() -> None:
        release.wait(10)

    @tool(effect="pure")
    def fine() -> int:
        return 1

    stuck_tools, fine_tools = local_tools([stuck]), local_tools([fine])
    try:
        with anyio.move_on_after(0.2):
            async with anyio.create_task_group() as tasks:
                for _ in range(MAX_THREADS + 1):
                    tasks.start_soon(stuck_tools.call, "stuck", {}, CALL)
        with anyio.fail_after(5):
            assert (await fine_tools.call("fine", {}, CALL)).value == 1
    finally:
        release.set()


async def test_progress_is_checked_where_it_is_made() -> None:
    """Invariant 8: the author sees the fault, in the line that makes it."""

    @tool(effect="pure")
    async def reports(context: CallContext) -> str:
        try:
            context.progress({1, 2})
        except PurraError as error:
            return error.code
        return ""

    assert (await local_tools([reports]).call("reports", {}, CALL)).value == "invalid_value"


async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    """Invariant 4: a stray `CancelledError` must not silently end the kernel's task."""

    @tool(effect="pure")
    async def strays() -> None:
        raise asyncio.CancelledError

    with pytest.raises(AdapterError) as caught:
        await local_tools([strays]).call("strays", {}, CALL)
    assert caught.value.detail["type"] == "CancelledError"


async def test_a_bug_of_ours_is_not_blamed_on_the_adapter() -> None:
    @tool(effect="pure")
    async def broken() -> None:
        raise KernelBug("x")

    with pytest.raises(KernelBug):
        await local_tools([broken]).call("broken", {}, CALL)


class OddModel:
    """A model whose `generate` gives whatever it was made with."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def profile(self) -> Any:
        return {"window": 10, "output_limit": 0}

    def generate(self, request: ModelRequest, context: CallContext) -> Any:
        return self._stream


class Stream:
    """An async iterator that is no generator, and has no `aclose`."""

    def __init__(self, *items: Any) -> None:
        self._items = list(items)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        if not self._items:
            raise StopAsyncIteration
        return self._items.pop(0)


async def collect(model: Any) -> list[Chunk]:
    wrapped = local_model(model)
    return [chunk async for chunk in wrapped.generate(ModelRequest(()), CALL)]


async def test_any_async_iterator_is_a_stream() -> None:
    assert await collect(OddModel(Stream(Content("a"), Finish("stop")))) == [
        Content("a"),
        Finish("stop"),
    ]
    assert await local_model(OddModel(None)).profile() == ModelProfile(10, 0)


async def test_what_is_no_stream_or_no_chunk_is_refused() -> None:
    with pytest.raises(AdapterError) as caught:
        await collect(OddModel([Content("a")]))
    assert caught.value.code == "internal"
    with pytest.raises(AdapterError, match="str is no chunk") as caught:
        await collect(OddModel(Stream("text")))
    assert caught.value.code == "contract_violation"
    with pytest.raises(AdapterError, match=r"chunk\.text: a lone surrogate at character 1"):
        await collect(OddModel(Stream(Content("a\ud800"))))


async def test_leaving_the_loop_closes_the_object() -> None:
    """MOD-011: also when the stream breaks its contract."""
    closed: list[str] = []

    async def stream() -> AsyncIterator[Any]:
        try:
            yield Content("a")
            yield "no chunk"
        finally:
            closed.append("closed")

    with pytest.raises(AdapterError):
        await collect(OddModel(stream()))
    assert closed == ["closed"]


class OddStore:
    """A store that answers with whatever it was made with, or raises it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def commit(self, *_: Any) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    read = get = scan = now = blob_put = blob_get = commit

    async def watch(self, prefix: str) -> Any:
        yield ""
        yield self._answer


APPEND = Commit((Append("s", 0, (1,)),), ("s", "k"))
DOCUMENT = Document("a", {"x": 1}, 1)


async def test_a_store_is_held_to_its_contract() -> None:
    """Fail closed: a page that is too long, a document of another key, a receipt with a hole."""
    good = local_store(OddStore(Receipt({"s": 1}, {})))
    assert await good.commit(APPEND) == Receipt({"s": 1}, {})
    assert (await local_store(OddStore((DOCUMENT, None))).get(["a", "b"]))[0] == DOCUMENT
    page = local_store(OddStore(Page((1, 2), 2, False)))
    assert (await page.read("s", 0, 2)).records == (1, 2)
    scan = local_store(OddStore(ScanPage((DOCUMENT,), False)))
    assert (await scan.scan(Scan("a"))).documents == (DOCUMENT,)
    for answer, ask, path in (
        (Receipt({}, {}), lambda store: store.commit(APPEND), "receipt.heads"),
        (Receipt({"s": -1}, {}), lambda store: store.commit(APPEND), "receipt.heads"),
        (Page((1, 2), 2, False), lambda store: store.read("s", 0, 1), "page.records"),
        ((DOCUMENT,), lambda store: store.get(["b"]), "documents"),
        ((), lambda store: store.get(["b"]), "documents"),
        (ScanPage((DOCUMENT,), False), lambda store: store.scan(Scan("b")), "scan.documents"),
        (-1, lambda store: store.now(), "now"),
        (5, lambda store: store.blob_put(None), "digest"),
        (b"abc", lambda store: store.blob_get("d", 0, 2), "blob"),
        ("abc", lambda store: store.blob_get("d", 0, 3), "blob"),
    ):
        with pytest.raises(AdapterError) as caught:
            await ask(local_store(OddStore(answer)))  # type: ignore[no-untyped-call]
        assert caught.value.code == "contract_violation"
        assert caught.value.message.startswith(path)


async def test_a_stores_own_refusals_pass_and_its_bugs_do_not() -> None:
    """Codes that the kernel decides by stay what they are."""
    for error in (StoreError("conflict", "x"), PurraError("invalid_value", "x")):
        with pytest.raises(PurraError) as caught:
            await local_store(OddStore(error)).commit(APPEND)
        assert caught.value is error
    with pytest.raises(AdapterError) as failed:
        await local_store(OddStore(OSError("disk"))).commit(APPEND)
    assert (failed.value.code, failed.value.detail["type"]) == ("internal", "OSError")


async def test_watch_items_are_checked() -> None:
    seen = []
    with pytest.raises(AdapterError, match="watch: text expected"):
        async for name in local_store(OddStore(5)).watch("run/"):
            seen.append(name)
    assert seen == [""]
