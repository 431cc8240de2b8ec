"""How a model's stream may end, and what the ledger makes of it."""

from __future__ import annotations

from typing import Any

import pytest

import purra
from purra.contracts.model import Content, Finish, Reasoning, ToolCallFragment, Usage
from purra.errors import AdapterError
from purra.journal.events import Event
from purra.runs.result import Result
from tests.kernel.parts import CountingStore, ScriptModel, ask, kinds, say


@purra.tool(effect="external_write")
async def fire() -> str:
    """Never runs in these tests."""
    raise AssertionError("a call of a bad round ran")


async def play(model: ScriptModel, **parts: Any) -> tuple[list[Event], Result]:
    async with purra.Kernel(model=model, tools=[fire], **parts) as kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
        return events, await run.wait()


FIRE = ToolCallFragment(0, "c", "fire", "{}")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([Content("half"), Finish("length", "max")], "model_output_truncated"),
        ([FIRE, Finish("length", "max")], "tool_call_truncated"),
        ([FIRE, Finish("filtered")], "model_output_filtered"),
        ([FIRE, Finish("other", "MALFORMED_X")], "model_finish_unknown"),
        ([FIRE, Finish("stop")], "contract_violation"),
        ([Content("x"), Finish("tool_calls")], "contract_violation"),
        ([Content("x"), Finish("stop"), Content("y")], "contract_violation"),
        ([Content("x"), Finish("stop"), Finish("stop")], "contract_violation"),
    ],
)
async def test_a_bad_end_fails_closed(chunks: list[Any], code: str) -> None:
    """OBS-06, MOD-04, MOD-05, MOD-06, MOD-08, K04, K11, K13, K14: no tool, no text, no second
    try."""
    model = ScriptModel(chunks)
    events, result = await play(model)
    assert result.status == "failed" and result.text == ""
    assert result.error is not None and result.error["code"] == code
    assert "model.round" not in kinds(events)
    assert len(model.requests) == 1


@pytest.mark.anyio
async def test_an_interrupted_stream_is_tried_again_only_if_nothing_was_seen() -> None:
    """MOD-07, REC-04, K19: two tries at most, never after visible text, never joined."""
    cut = AdapterError("crashed", "exit 9", origin="instance")
    model = ScriptModel([cut], [Reasoning("hm"), cut], say("whole"))
    events, result = await play(model)
    assert (result.status, result.text) == ("completed", "whole")
    codes = [event.data["code"] for event in events if event.kind == "attempt.failed"]
    assert codes == ["upstream_stream_interrupted"] * 2
    model = ScriptModel([Content("ha"), cut])
    _, result = await play(model)
    assert result.error is not None and result.error["code"] == "upstream_stream_interrupted"
    assert len(model.requests) == 1


@pytest.mark.anyio
async def test_a_stream_without_a_finish_was_interrupted() -> None:
    """MOD-07: an end without a reason is never `stop`."""
    model = ScriptModel([Content("ha")])
    _, result = await play(model)
    assert result.error is not None and result.error["code"] == "upstream_stream_interrupted"


@pytest.mark.anyio
async def test_malformed_and_empty_rounds_are_tried_once_more() -> None:
    """MOD-09, REC-09, K07: each cause has its own budget of one."""
    twins = [ToolCallFragment(i, "same", "fire", "{}") for i in range(2)]
    model = ScriptModel([*twins, Finish("tool_calls")], [Finish("stop")], say("ok"))
    _, result = await play(model)
    assert result.text == "ok"
    model = ScriptModel([Finish("stop")], [Finish("stop")])
    _, result = await play(model)
    assert result.error is not None and result.error["code"] == "empty_response"


@pytest.mark.anyio
async def test_reasoning_is_in_no_message_and_no_event() -> None:
    """STR-04, OUT-02: diagnostic only; it is in the output stream under its own kind and nowhere
    else."""
    model = ScriptModel([Reasoning("SECRET"), *ask(("fire", "["))], say("ok"))
    async with purra.Kernel(model=model, tools=[fire]) as kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
        shown = [record async for record in run.output()]
        all_of_it = [record async for record in run.output(diagnostic=True)]
    assert "SECRET" not in repr(events) + repr(shown) + repr(model.requests)
    assert "SECRET" in repr(all_of_it)


@pytest.mark.anyio
async def test_drafts_are_committed_before_they_are_shown_and_promoted_after() -> None:
    """OUT-05, RUN-04: provisional text; the journal holds each round's text once."""
    store = CountingStore()
    model = ScriptModel([Content("a"), Content("b"), *say("c")])
    async with purra.Kernel(model=model, store=store) as kernel:
        run = await kernel.submit("go")
        await run.wait()
        drafts = [record async for record in run.output()]
    assert "".join(draft["text"] for draft in drafts) == "abc"
    assert all(draft["provisional"] for draft in drafts)
    page = await store.read(f"run/{run.id}/out", 0, 100)
    assert [record["text"] for record in page.records] == [draft["text"] for draft in drafts]


@pytest.mark.anyio
async def test_rounds_are_limited_and_the_code_names_the_limit() -> None:
    """RUN-21."""
    model = ScriptModel(*[ask(("fire", "["))] * 2)
    agent = purra.Agent("a", "1", limits=purra.RunLimits(max_rounds=2))
    _, result = await play(model, agent=agent)
    assert result.error is not None and result.error["code"] == "max_rounds_exceeded"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("usage", "code"),
    [(Usage(60, 50), "max_tokens_exceeded"), (Usage(None, None), "usage_unreported")],
)
async def test_tokens_are_limited_and_unknown_usage_is_not_zero(usage: Usage, code: str) -> None:
    """MOD-13, MOD-14: with a budget, an attempt after unreported usage is refused."""
    bad = [FIRE, ToolCallFragment(1, "d", "nope", "{}"), usage, Finish("tool_calls")]
    agent = purra.Agent("a", "1", limits=purra.RunLimits(max_tokens=100))
    model = ScriptModel(bad, say("never"))
    _, result = await play(model, agent=agent)
    assert result.error is not None and result.error["code"] == code
    assert len(model.requests) == 1


@pytest.mark.anyio
async def test_a_prompt_that_does_not_fit_fails_before_any_call() -> None:
    """CTX-01, CTX-13: a code before the provider call, nothing trimmed."""
    model = ScriptModel(window=600)
    async with purra.Kernel(model=model) as kernel:
        result = await (await kernel.submit("x" * 4000)).wait()
    assert result.error is not None
    assert result.error["code"] == "fixed_reserves_exceed_window"
    assert model.requests == []


@pytest.mark.anyio
async def test_an_unknown_output_ceiling_fails_before_any_call() -> None:
    """MOD-12."""
    model = ScriptModel(output_limit=0)
    async with purra.Kernel(model=model) as kernel:
        result = await (await kernel.submit("go")).wait()
    assert result.error is not None
    assert result.error["code"] == "model_generation_limit_unknown"
