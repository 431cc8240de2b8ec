"""The smallest runs, end to end in one process: what is journaled, in how few commits."""

from __future__ import annotations

import anyio
import pytest

import purra
from purra.contracts.store import Append
from purra.errors import PurraError
from purra.journal.events import Event
from purra.runs.result import Result
from tests.kernel.parts import CountingStore, ScriptModel, ask, kinds, say


@purra.tool(effect="pure")
async def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


async def play(kernel: purra.Kernel, prompt: str = "go") -> tuple[list[Event], Result]:
    async with kernel:
        run = await kernel.submit(prompt)
        events = [event async for event in run.events()]
        return events, await run.wait()


@pytest.mark.anyio
async def test_a_direct_answer_is_final_and_costs_one_model_call() -> None:
    """OUT-04, OUT-05: a round without calls is the answer; the text stands once in the journal."""
    model = ScriptModel(say("Hello."))
    events, result = await play(purra.Kernel(model=model))
    assert (result.status, result.text) == ("completed", "Hello.")
    assert len(model.requests) == 1
    assert kinds(events) == [
        "run.started",
        "run.owned",
        "context.assembled",
        "stream.opened",
        "model.round",
        "output.promoted",
        "run.completed",
    ]


@pytest.mark.anyio
async def test_a_one_tool_run_costs_two_model_calls_and_five_commits() -> None:
    """Issue A, done when: two model calls, at most 6 commits besides delta batches."""
    store = CountingStore()
    model = ScriptModel(ask(("double", '{"n": 21}'), text="I count."), say("42"))
    events, result = await play(purra.Kernel(model=model, tools=[double], store=store))
    assert result.text == "42"
    assert len(model.requests) == 2
    journal = [
        commit
        for commit in store.commits
        if any(isinstance(op, Append) and op.stream == f"run/{result.run}" for op in commit.ops)
    ]
    assert len(journal) == 5
    assert [commit.durable for commit in journal] == [True, False, False, False, True]
    assert kinds(events)[4:9] == [
        "model.round",
        "output.promoted",
        "tool.batch.admitted",
        "tool.call.claimed",
        "tool.call.completed",
    ]
    last = model.requests[1].messages
    assert [message.role for message in last] == ["user", "assistant", "tool"]
    assert last[2].content == "42"


@pytest.mark.anyio
async def test_events_replay_from_a_cursor_without_gap_or_duplicate() -> None:
    """RUN-03, RUN-05: replay equals live; a cursor that is no whole number is refused."""
    async with purra.Kernel(model=ScriptModel(say("a"))) as kernel:
        run = await kernel.submit("go")
        live = [event async for event in run.events()]
        assert [event.seq for event in live] == list(range(1, len(live) + 1))
        assert [event async for event in run.events(after=3)] == live[3:]
        stored = [event async for event in kernel.runs.events(run.id, follow=False)]
        assert stored == live
        with pytest.raises(PurraError, match="cursor"):
            _ = [event async for event in run.events(after=-1)]


@pytest.mark.anyio
@pytest.mark.parametrize("prompt", ["", "  ", 7, "\ud800"])
async def test_a_bad_prompt_creates_nothing(prompt: object) -> None:
    """RUN-01, JSON-03, API-06: one coded error and no row."""
    store = CountingStore()
    async with purra.Kernel(model=ScriptModel(), store=store) as kernel:
        store.commits.clear()
        with pytest.raises(PurraError) as caught:
            await kernel.submit(prompt)  # type: ignore[arg-type]
        assert caught.value.code in ("invalid_argument", "invalid_value")
        assert store.commits == []
        assert await kernel.runs.list() == ()


@pytest.mark.anyio
async def test_many_runs_at_once_do_not_mix() -> None:
    """RUN-19: isolated journals and answers in one process."""

    class Echo(ScriptModel):
        async def generate(self, request, context):  # type: ignore[no-untyped-def]
            await anyio.sleep(0)
            for chunk in say(request.messages[-1].content):
                yield chunk

    async with purra.Kernel(model=Echo()) as kernel:
        runs = [await kernel.submit(f"prompt {n}") for n in range(50)]
        results = [await run.wait() for run in runs]
    assert [result.text for result in results] == [f"prompt {n}" for n in range(50)]


@pytest.mark.anyio
async def test_a_closed_kernel_says_so() -> None:
    kernel = purra.Kernel(model=ScriptModel())
    with pytest.raises(PurraError) as caught:
        await kernel.submit("go")
    assert caught.value.code == "not_open"
