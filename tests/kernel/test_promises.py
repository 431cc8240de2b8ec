"""Promises that no other file of this folder is about: order, readers, keys, allowances, faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.store import Append, Commit, Receipt
from purra.contracts.tool import ToolResult, ToolSchema, declare
from purra.errors import PurraError, StoreError
from purra.journal.recovery import RULES, ruling
from purra.journal.state import Failure
from purra.runs import feed
from purra.stores.memory import MemoryStore
from tests.kernel.parts import CountingStore, ScriptModel, ask, kinds, say

OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


class Keyed:
    """A write tool that honours its key; its first call never ends."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.never = anyio.Event()

    async def catalog(self) -> Sequence[ToolSchema]:
        return [declare("pay", "Pays.", OBJECT, "external_write", idempotency="required")]

    async def call(self, name: str, arguments: Any, context: CallContext) -> ToolResult:
        self.keys.append(context.idempotency_key)
        if len(self.keys) == 1:
            await self.never.wait()
        return ToolResult("paid")


@pytest.mark.anyio
async def test_a_lost_write_that_honours_its_key_is_dispatched_again_with_it() -> None:
    """TOOL-17, CAP-05: claimed again under the same key, by the new owner, and the run goes on."""
    store, box = MemoryStore(), Keyed()
    model = ScriptModel(ask(("pay", "{}")), say("done"))
    async with purra.Kernel(model=model, tools=[box], store=store) as one:
        run = await one.submit("go")
        async for event in run.events():
            if event.kind == "tool.call.claimed":
                break
        while not box.keys:
            await anyio.sleep(0)
    async with purra.Kernel(model=model, tools=[box], store=store) as two:
        result = await (await two.resume(run.id)).wait()
    assert result.status == "completed"
    assert len(box.keys) == 2 and len(set(box.keys)) == 1 and box.keys[0]
    assert [effect["effect_state"] for effect in result.effects] == ["committed"]


@pytest.mark.anyio
async def test_commentary_of_a_round_stands_before_its_tool_events() -> None:
    """OUT-01, OUT-03, OUT-12: one order, that of the journal; text is promoted once, as one
    thing."""

    @purra.tool(effect="pure")
    async def look() -> str:
        """Looks."""
        return "seen"

    model = ScriptModel(ask(("look", "{}"), text="I look."), say("seen"))
    async with purra.Kernel(model=model, tools=[look]) as kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
    promoted = [(e.data["round"], e.data["as"]) for e in events if e.kind == "output.promoted"]
    assert promoted == [(1, "commentary"), (2, "final")]
    order = kinds(events)
    assert order.index("output.promoted") < order.index("tool.batch.admitted")


@pytest.mark.anyio
async def test_a_reader_that_fell_behind_reads_the_rest_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OUT-13, K67: what is kept for readers is bounded, and nobody waits for the slowest."""
    monkeypatch.setattr(feed, "SUBSCRIBER_EVENTS", 3)
    async with purra.Kernel(model=ScriptModel(say("a"))) as kernel:
        run = await kernel.submit("go")
        slow = run.events()
        first = await anext(slow)
        await run.wait()
        rest = [event async for event in slow]
    assert [event.seq for event in (first, *rest)] == list(range(1, len(rest) + 2))


@pytest.mark.anyio
async def test_the_allowance_is_the_smaller_of_ceiling_and_room() -> None:
    """MOD-11: the resolved number goes to the model, and its source to the journal."""
    for window, source in ((8192, "profile"), (900, "room")):
        model = ScriptModel(say("ok"), window=window, output_limit=512)
        async with purra.Kernel(model=model) as kernel:
            run = await kernel.submit("x" * 400)
            opened = [e.data async for e in run.events() if e.kind == "stream.opened"]
        assert opened[0]["source"] == source
        assert opened[0]["max_tokens"] == model.requests[0].max_tokens <= 512


@pytest.mark.anyio
async def test_decisions_on_one_batch_come_in_any_order() -> None:
    """HITL-06: several calls wait under their own ids, and each is decided for itself."""
    ran: list[str] = []

    def burner(name: str) -> Any:
        async def burn() -> str:
            """Burns."""
            ran.append(name)
            return name

        burn.__name__ = name
        return purra.tool(effect="irreversible")(burn)

    model = ScriptModel(ask(("one", "{}"), ("two", "{}")), say("ok"))
    limits = purra.RunLimits(write_batch="serial")
    agent = purra.Agent("a", "1", approvals="inbox", limits=limits)
    tools = [burner("one"), burner("two")]
    async with purra.Kernel(model=model, tools=tools, agent=agent) as kernel:
        run = await kernel.submit("go")
        assert (await run.wait()).status == "waiting"
        assert [call.id for call in await kernel.runs.asked(run.id)] == ["1.0", "1.1"]
        await kernel.decide(run.id, "1.1", "approve")
        await kernel.decide(run.id, "1.0", "approve")
        async for _ in kernel.runs.events(run.id, follow=True):
            pass
    assert ran == ["one", "two"]


def test_a_cause_without_a_rule_has_no_second_chance() -> None:
    """REC-02, REC-05: nothing is tried again that no rule names, and no write is."""
    for code in ("model_output_truncated", "effect_unknown", "tool_timeout", "policy_denied"):
        assert code not in RULES
        fact = ruling(Failure(code, "m", 1), 0, 0)
        assert (fact.data["action"], fact.data["allowed"]) == ("stop", False)


class Broken(CountingStore):
    """A store whose medium fails at the n-th commit of a journal."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    async def commit(self, commit: Commit) -> Receipt:
        appends = [op.stream for op in commit.ops if isinstance(op, Append)]
        if any(stream.count("/") == 1 for stream in appends):
            self._left -= 1
            if self._left == 0:
                raise StoreError("storage", "the disk is full", detail={"errno": 28})
        return await super().commit(commit)


@pytest.mark.anyio
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_what_cannot_be_stored_is_never_shown(at: int) -> None:
    """RUN-23, EVT-02, RUN-04, K65: the caller gets the error, readers end, and nothing unstored
    was seen."""
    store = Broken(at)
    async with purra.Kernel(model=ScriptModel(say("secret answer")), store=store) as kernel:
        if at == 1:
            with pytest.raises(StoreError):
                await kernel.submit("go")
            assert await kernel.runs.list() == ()
            return
        run = await kernel.submit("go")
        with anyio.fail_after(5):
            seen = [event async for event in run.events()]
            with pytest.raises(PurraError) as caught:
                await run.wait()
        assert caught.value.code == "storage"
        stored = await store.read(f"run/{run.id}", 0, 100)
    assert [event.seq for event in seen] == list(range(1, stored.head + 1))
    assert "secret answer" not in repr(seen)


@pytest.mark.anyio
async def test_resuming_twice_at_once_gives_one_owner() -> None:
    """TOOL-15, K43: two kernels, one run: one takes it, the other is told."""
    store = MemoryStore()
    async with purra.Kernel(model=ScriptModel([anyio.Event()]), store=store) as first:
        run = await first.submit("go")
        async for event in run.events():
            if event.kind == "stream.opened":
                break
    outcomes: list[str] = []

    async def take(kernel: purra.Kernel) -> None:
        try:
            await kernel.resume(run.id)
            outcomes.append("taken")
        except PurraError as error:
            outcomes.append(error.code)

    never = [anyio.Event()]
    async with (
        purra.Kernel(model=ScriptModel(never), store=store) as two,
        purra.Kernel(model=ScriptModel(never), store=store) as three,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(take, two)
        tasks.start_soon(take, three)
    assert sorted(outcomes) == ["ownership_lost", "taken"]
