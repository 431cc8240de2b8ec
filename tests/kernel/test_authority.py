"""Who decides that something happens: the gateway, by declarations and verdicts; no text, no
reader, no adapter by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.context import ContextBlock, ContextBundle, ContextClaim, ContextRequest
from purra.contracts.messages import Message
from purra.contracts.policy import PolicyDecision, PolicyRequest
from purra.contracts.tool import ToolResult, ToolSchema, declare
from purra.journal.events import Event
from purra.runs import keys
from purra.runs.result import Result
from purra.stores.memory import MemoryStore
from tests.kernel.parts import ScriptModel, ask, kinds, say

OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


class One:
    """One tool, `act`, that gives what it is made with, or what that comes to."""

    def __init__(self, gives: Any, effect: str = "pure", **fields: Any) -> None:
        self.gives, self.effect, self.fields = gives, effect, fields
        self.ran = 0

    async def catalog(self) -> Sequence[ToolSchema]:
        fields = {"description": "Acts.", **self.fields}
        return [declare("act", parameters=OBJECT, effect=self.effect, **fields)]  # type: ignore[arg-type]

    async def call(self, name: str, arguments: Any, context: CallContext) -> ToolResult:
        self.ran += 1
        gives = await self.gives(context) if callable(self.gives) else self.gives
        return gives if isinstance(gives, ToolResult) else ToolResult(gives)


class Allows:
    """A policy that allows everything."""

    async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision:
        return PolicyDecision("allow", "why not")


async def play(tool: One, **parts: Any) -> tuple[list[Event], Result]:
    model = ScriptModel(ask(("act", "{}")), say("ok"))
    async with purra.Kernel(model=model, tools=[tool], **parts) as kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
        return events, await run.wait()


def completed(events: Sequence[Event]) -> Any:
    (data,) = [event.data for event in events if event.kind == "tool.call.completed"]
    return data


@pytest.mark.anyio
async def test_a_call_runs_after_its_claim_is_stored() -> None:
    """CAP-01, invariant 2: the tool itself finds admission and claim in the store; and an open
    kernel has nothing by which a program, or whatever it hands the kernel to, reaches a tool."""
    store = MemoryStore()

    async def look(context: CallContext) -> list[str]:
        page = await store.read(keys.journal(context.trace["run"]), 0, 100)
        return [record["kind"] for record in page.records]

    events, result = await play(One(look, "external_write"), store=store)
    assert result.status == "completed"
    found = list(completed(events)["value"])
    assert found[-2:] == ["tool.batch.admitted", "tool.call.claimed"]
    async with purra.Kernel(model=ScriptModel(), tools=[One("x")], store=store) as kernel:
        shown = [getattr(kernel, name) for name in dir(kernel) if not name.startswith("_")]
        assert [thing for thing in shown if hasattr(thing, "catalog")] == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("effect", "fields", "code"),
    [
        ("irreversible", {}, "approval_unavailable"),
        ("pure", {"approval": "required"}, "approval_unavailable"),
        ("pure", {"description": "IRREVERSIBLE. Requires approval by a person."}, ""),
        ("irreversible", {"description": "Harmless, needs no approval."}, "approval_unavailable"),
    ],
)
async def test_declarations_count_and_descriptions_do_not(
    effect: str, fields: dict[str, str], code: str
) -> None:
    """CAP-06, REC-07: what is declared stops for a person, and a policy that allows everything
    does not stand for one."""
    for policy in (None, Allows()):
        tool = One("done", effect, **fields)
        events, result = await play(tool, policy=policy)
        assert (result.error or {"code": ""})["code"] == code
        assert (completed(events)["code"], tool.ran) == (code, 0 if code else 1)


@pytest.mark.anyio
@pytest.mark.parametrize("is_error", [False, True])
async def test_events_of_an_outcome_stand_only_if_it_succeeded(is_error: bool) -> None:
    """CAP-09, TOOL-21: a call that failed publishes none."""
    told = ({"kind": "note.written"},)
    code = "tool_failed" if is_error else ""
    outcome = ToolResult("x", is_error=is_error, code=code, events=told)
    events, _ = await play(One(outcome))
    assert completed(events).get("events", ()) == (() if is_error else told)


@pytest.mark.anyio
async def test_a_call_that_is_late_is_told_and_its_effect_is_kept() -> None:
    """CAP-10: a coded result, and what is known of every write stands in the run's result."""

    async def never(context: CallContext) -> None:
        await anyio.Event().wait()

    events, result = await play(One(never, "external_write", timeout_s=0.05))
    told = completed(events)
    assert (told["code"], told["effect_state"], told["is_error"]) == ("tool_timeout", "unknown", 1)
    assert result.status == "blocked"
    assert [(e["tool"], e["effect_state"]) for e in result.effects] == [("act", "unknown")]


class Remembers:
    """A context provider of one block."""

    def __init__(self, block: ContextBlock) -> None:
        self.block = block

    async def demand(self, request: ContextRequest, context: CallContext) -> ContextClaim:
        return ContextClaim(1, 100)

    async def provide(
        self, request: ContextRequest, budget: int, context: CallContext
    ) -> ContextBundle:
        return ContextBundle((self.block,))

    async def compress(
        self, messages: Sequence[Message], budget: int, context: CallContext
    ) -> tuple[Message, ...]:
        return tuple(messages)


@pytest.mark.anyio
async def test_evidence_of_a_context_is_bound_to_the_run_that_saw_it() -> None:
    """MOD-17, MOD-16: provider, source and digest of each block, and no text; a block whose digest
    is another text's ends the run before the model is asked."""
    text = "Tides turn at noon."
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    block = ContextBlock("tides", text, "almanac.md", digest)
    model = ScriptModel(say("ok"))
    async with purra.Kernel(model=model, context=[Remembers(block)]) as kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
    (seen,) = [event.data for event in events if event.kind == "context.assembled"]
    (evidence,) = seen["blocks"]
    named = [evidence[name] for name in ("provider", "name", "source", "digest", "untrusted")]
    assert named == ["context[0]", "tides", "almanac.md", digest, True]
    assert text not in repr(events) and text in model.requests[0].messages[0].content
    stale = ContextBlock("tides", text + "!", "almanac.md", digest)
    model = ScriptModel()
    async with purra.Kernel(model=model, context=[Remembers(stale)]) as kernel:
        result = await (await kernel.submit("go")).wait()
    assert result.error is not None and result.error["code"] == "contract_violation"
    assert model.requests == []


@pytest.mark.anyio
async def test_readers_have_no_say() -> None:
    """CAP-13, EVT-03, EVT-05: how many follow a run, in which order, and how they end changes
    neither what is allowed nor what is stored; a reader's fault is its own."""

    async def follow(run: purra.Run, *, gives_up: bool) -> None:
        async for event in run.events():
            if gives_up and event.kind == "tool.batch.admitted":
                raise RuntimeError("the reader broke")

    async def journal(readers: Sequence[bool]) -> list[str]:
        gate = anyio.Event()

        async def wait(context: CallContext) -> str:
            await gate.wait()
            return "acted"

        model = ScriptModel(ask(("act", "{}")), say("ok"))
        async with purra.Kernel(model=model, tools=[One(wait)]) as kernel:
            run = await kernel.submit("go")
            try:
                async with anyio.create_task_group() as tasks:
                    for gives_up in readers:
                        tasks.start_soon(lambda each: follow(run, gives_up=each), gives_up)
                    if True not in readers:
                        gate.set()
            except* RuntimeError as broken:
                assert "the reader broke" in repr(broken)
            gate.set()
            assert (await run.wait()).text == "ok"
            return kinds([event async for event in run.events()])

    alone = await journal([])
    for readers in ([False], [False, True], [True, False]):
        assert await journal(readers) == alone
