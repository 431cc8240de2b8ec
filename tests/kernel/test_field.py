"""Faults from the field that are about a run: what is asked again, what is kept, who decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict

import anyio
import pytest

import purra
from purra.adapters import local_model, local_tools
from purra.contracts.call import CallContext
from purra.contracts.model import Content, Finish, Reasoning, Usage
from purra.contracts.policy import PolicyDecision, PolicyRequest
from purra.contracts.store import Append, Commit
from purra.errors import AdapterError, PurraError, StoreError
from purra.limits import PARALLEL_CALLS, SESSION_RUNS
from purra.runs.bindings import Adapters
from purra.stores.memory import MemoryStore
from tests.kernel.parts import CountingStore, ScriptModel, ask, kinds, say
from tests.kernel.test_tools import Box, play, results, wait_ended

HERE = pytest.mark.anyio
INBOX = purra.Agent("a", "1", approvals="inbox", limits=purra.RunLimits(write_batch="serial"))


class Bill(TypedDict):
    """What is to be paid."""

    total: int


@HERE
async def test_a_later_request_holds_whole_turns_and_no_reasoning() -> None:
    """K20: a turn of a session is kept as a pair or not at all; reasoning never comes back to a
    model, so it cannot come without its partner."""
    steps = [[Reasoning("hidden thought"), *say(f"answer {n}")] for n in range(SESSION_RUNS + 3)]
    model = ScriptModel(*steps)
    async with purra.Kernel(model=model) as kernel:
        for number in range(len(steps)):
            await (await kernel.submit(f"question {number}", session="s")).wait()
    seen = [(message.role, message.content) for message in model.requests[-1].messages]
    last = len(steps) - 1
    turns = range(last - SESSION_RUNS, last)
    pairs = [
        each for n in turns for each in (("user", f"question {n}"), ("assistant", f"answer {n}"))
    ]
    assert seen == [*pairs, ("user", f"question {last}")]
    assert "hidden thought" not in repr(model.requests)


@HERE
async def test_an_answer_that_is_no_value_is_not_repaired_behind_ones_back() -> None:
    """K22: an agent without tools is asked once; no request holds a tool's message, and whoever
    wants a value is told."""
    model = ScriptModel(say('{"total": "much"}'))
    async with purra.Kernel(model=model) as kernel:
        result = await (await kernel.submit("go")).wait()
    with pytest.raises(PurraError, match="output_invalid"):
        purra.Output(Bill).of(result)
    assert [message.role for message in model.requests[0].messages] == ["user"]
    assert (len(model.requests), model.requests[0].tools) == (1, ())


@HERE
async def test_an_output_that_is_always_wrong_ends_the_run() -> None:
    """K35: by its budget, with the code of its cause, long before the window is full."""
    wrong = ask(("answer", '{"total": "much"}'))
    model = ScriptModel(*[wrong] * 50, window=100_000)
    async with purra.Kernel(model=model, tools=[purra.Output(Bill)]) as kernel:
        run = await kernel.submit("go")
        result = await run.wait()
        events = [event async for event in run.events()]
    assert result.error is not None and result.error["code"] == "invalid_tool_arguments_shape"
    assert len(model.requests) == 4
    decided = [event.data["allowed"] for event in events if event.kind == "recovery.decided"]
    assert decided == [True, True, True, False]


@HERE
async def test_a_failed_read_takes_nothing_from_those_beside_it() -> None:
    """K32, TOOL-25: what is in flight is waited for and kept, what has not begun is told so, and
    the results keep the order of the calls."""
    begun, failed = anyio.Event(), anyio.Event()
    count = 0

    async def beside(_: CallContext) -> str:
        nonlocal count
        count += 1
        if count == PARALLEL_CALLS - 1:
            begun.set()
        await failed.wait()
        await anyio.sleep(0)
        return "kept"

    async def fails(_: CallContext) -> str:
        await begun.wait()
        failed.set()
        raise ValueError

    names = [f"read{number}" for number in range(PARALLEL_CALLS + 3)]
    box = Box(**{name: fails if number == 1 else beside for number, name in enumerate(names)})
    model = ScriptModel(ask(*((name, "{}") for name in names)), say("ok"))
    events, result = await play(model, box)
    assert result.status == "completed"
    assert sorted(box.ran) == sorted(names[:PARALLEL_CALLS])
    codes = {name: code for name, code, _ in results(events)}
    late = dict.fromkeys(names[PARALLEL_CALLS:], "tool_batch_aborted")
    assert codes == {**dict.fromkeys(names[:PARALLEL_CALLS], ""), "read1": "internal", **late}
    told = [message for message in model.requests[1].messages if message.role == "tool"]
    assert [message.content == "kept" for message in told] == [codes[name] == "" for name in names]


@HERE
@pytest.mark.parametrize(
    "text", ["see /etc/hosts", "password: hunter2", "sk-0123456789abcdef", "a@b.example", "***"]
)
async def test_what_a_tool_says_reaches_the_model_unchanged(text: str) -> None:
    """K40: nothing on the way guesses what might be secret; arguments, too, are what was asked."""
    asked: list[str] = []

    @purra.tool(effect="pure")
    async def find(what: str) -> dict[str, str]:
        """Finds."""
        asked.append(what)
        return {"found": what}

    model = ScriptModel(ask(("find", json.dumps({"what": text}))), say(text))
    async with purra.Kernel(model=model, tools=[find]) as kernel:
        result = await (await kernel.submit(text)).wait()
    assert asked == [text] and result.text == text
    assert json.loads(model.requests[1].messages[-1].content) == {"found": text}


def _burners(ran: list[str]) -> list[Any]:
    @purra.tool(effect="external_write")
    async def note() -> str:
        """Notes."""
        ran.append("note")
        return "noted"

    @purra.tool(effect="irreversible")
    async def burn() -> str:
        """Burns."""
        ran.append("burn")
        return "burnt"

    return [note, burn]


@HERE
@pytest.mark.parametrize("resumed", ["warm", "cold"])
async def test_a_pause_repeats_nothing_and_a_resume_needs_nothing_that_was_in_memory(
    resumed: str,
) -> None:
    """K41, K44, K61: an effect, then a person's word, given to another kernel than the one that
    goes on: one effect each, and the model is asked the same, whatever a process still knows."""
    ran: list[str] = []
    steps = [ask(("note", "{}"), text="first"), ask(("burn", "{}"), text="then"), say("done")]
    model, store = ScriptModel(*steps), MemoryStore()
    async with purra.Kernel(model=model, tools=_burners(ran), store=store, agent=INBOX) as one:
        run = await one.submit("go", session="s")
        assert (await run.wait()).status == "waiting"
        assert ran == ["note"]
        if resumed == "warm":
            await one.decide(run.id, "2.0", "approve", by="eve")
            state = await wait_ended(one, run.id)
    if resumed == "cold":
        async with purra.Kernel(store=store) as looker:
            await looker.decide(run.id, "2.0", "approve", by="eve")
        fresh = ScriptModel(*steps)
        fresh.requests += model.requests
        tools = _burners(ran)
        async with purra.Kernel(model=fresh, tools=tools, store=store, agent=INBOX) as two:
            await two.resume(run.id)
            state = await wait_ended(two, run.id)
        model = fresh
    assert (state.status, state.final_text, ran) == ("completed", "done", ["note", "burn"])
    last = model.requests[2]
    said = [(message.role, message.content) for message in last.messages]
    assert said == [
        ("user", "go"),
        ("assistant", "first"),
        ("tool", "noted"),
        ("assistant", "then"),
        ("tool", "burnt"),
    ]
    assert len(model.requests) == 3 and last.tools == model.requests[0].tools


@HERE
async def test_a_resume_waits_for_the_policy_that_the_run_was_started_with() -> None:
    """K47: a call that is pending is not judged by a kernel that lacks a part: it is refused by the
    part's name, and whoever has it goes on."""
    ran: list[str] = []
    judged: list[str] = []

    class Rule:
        async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision:
            judged.append(request.tool)
            return PolicyDecision("ask")

    model, store = ScriptModel(ask(("note", "{}")), say("done")), MemoryStore()
    ports = Adapters(
        local_model(model),
        (local_tools(_burners(ran)),),
        policy=Rule(),
        names={"policy": "rules/rule"},
    )
    async with purra.Kernel.of(ports, store, INBOX) as one:
        run = await one.submit("go")
        assert (await run.wait()).status == "waiting" and judged == ["note"]
        await one.runs.tell(
            run.id,
            "decision:1.0",
            {
                "kind": "decision",
                "call": "1.0",
                "decision": "approve",
                "by": "eve",
            },
        )
    bare = Adapters(local_model(model), (local_tools(_burners(ran)),))
    async with purra.Kernel.of(bare, store, INBOX) as two:
        with pytest.raises(PurraError, match="policy differ") as caught:
            await two.resume(run.id)
        assert caught.value.code == "preset_mismatch" and ran == []
    async with purra.Kernel.of(ports, store, INBOX) as three:
        await three.resume(run.id)
        assert (await wait_ended(three, run.id)).status == "completed"
    assert ran == ["note"]


def _failing(error: Exception, times: int) -> Callable[[Commit], None]:
    left = times

    def fail(commit: Commit) -> None:
        nonlocal left
        records = [record for op in commit.ops if isinstance(op, Append) for record in op.records]
        told = any(record.get("kind") == "tool.call.completed" for record in records)
        if told and left:
            left -= 1
            raise error

    return fail


@HERE
async def test_a_receipt_outlives_a_store_that_was_away() -> None:
    """K52: the effect was done, the store was between two instances: the receipt is kept and stored
    before the model is asked again."""
    ran: list[str] = []
    store = CountingStore()
    gone = AdapterError("crashed", "killed", origin="instance", executed="maybe")
    store.before_commit = _failing(gone, 3)
    model = ScriptModel(ask(("note", "{}")), say("done"))
    async with purra.Kernel(model=model, tools=_burners(ran), store=store) as kernel:
        run = await kernel.submit("go")
        with anyio.fail_after(10):
            result = await run.wait()
        order = kinds([event async for event in run.events()])
    assert (result.status, ran) == ("completed", ["note"])
    assert [effect["effect_state"] for effect in result.effects] == ["committed"]
    assert order.count("tool.call.completed") == order.count("tool.call.claimed") == 1
    assert model.requests[1].messages[-1].content == "noted"


@HERE
async def test_a_receipt_that_no_store_took_is_asked_for_and_nothing_runs_again() -> None:
    """K52: where the store says no for good, the run goes no further; taken up later, it is blocked
    by name until somebody says what became of the effect."""
    ran: list[str] = []
    store = CountingStore()
    store.before_commit = _failing(StoreError("storage", "the disk is full"), 1)
    model = ScriptModel(ask(("note", "{}")), say("done"))
    async with purra.Kernel(model=model, tools=_burners(ran), store=store) as one:
        run = await one.submit("go")
        with pytest.raises(PurraError, match="disk is full"):
            await run.wait()
    assert (ran, len(model.requests)) == (["note"], 1)
    async with purra.Kernel(model=model, tools=_burners(ran), store=store) as two:
        again = await two.resume(run.id)
        assert (await again.wait()).status == "blocked"
        await two.reconcile(run.id, "1.0", "committed", "it is noted")
        assert (await wait_ended(two, run.id)).status == "completed"
    assert ran == ["note"]


@HERE
async def test_a_conversation_is_never_shortened_to_fit() -> None:
    """K55: nothing is dropped unseen; what does not fit the window is said, and not asked."""
    long = Box(read="word " * 3000)
    model = ScriptModel(*[ask(("read", "{}"))] * 8, window=3000)
    _, result = await play(model, long)
    assert result.error is not None and result.error["code"] == "context_overflow"
    assert 2 < len(model.requests) < 8
    for number, request in enumerate(model.requests):
        roles = [message.role for message in request.messages]
        assert roles == ["user", *["assistant", "tool"] * number]


def _versioned(version: str, ran: list[str], during: Callable[[], Any] | None = None) -> Any:
    async def look() -> str:
        ran.append(version)
        if during is not None:
            await during()
        return version

    look.__doc__ = f"Looks, as {version}."
    return purra.tool(effect="pure")(look)


@HERE
async def test_a_catalog_changes_between_runs_and_never_within_one() -> None:
    """K77: tools are swapped in the middle of a call and again between two rounds: the run keeps
    what it was offered, whoever begins later has all of the new, and nobody has some of each."""
    ran: list[str] = []
    model = ScriptModel(ask(("look", "{}")), ask(("look", "{}")), say("one"), *[say("two")] * 2)
    released: list[str] = []
    kernel: purra.Kernel

    def ports(version: str, during: Callable[[], Any] | None = None) -> Adapters:
        tools = local_tools([_versioned(version, ran, during), _versioned_twin(version)])
        return Adapters(local_model(model), (tools,))

    async def swap() -> None:
        version = f"v{kernel.epoch + 1}"
        await kernel.rebind(ports(version), lambda: released.append(version))

    kernel = purra.Kernel.of(ports("v1", swap), MemoryStore(), purra.Agent("a", "1"))
    async with kernel:
        assert (await (await kernel.submit("go")).wait()).text == "one"
        await (await kernel.submit("go")).wait()
    offered = [{offer.description for offer in request.tools} for request in model.requests]
    first, last = offered[0], offered[-1]
    assert offered == [first, first, first, last]
    assert ran == ["v1", "v1"]
    versions = [text.rstrip(".").rsplit(" ", 1)[1] for text in last]
    assert first != last and len(versions) == 2 and len(set(versions)) == 1


def _versioned_twin(version: str) -> Any:
    async def twin() -> str:
        return version

    twin.__doc__ = f"Is beside, as {version}."
    return purra.tool(effect="pure")(twin)


@HERE
async def test_what_a_run_has_spent_is_the_sum_of_its_attempts() -> None:
    """K85: each once, failed and superseded ones too, and a takeover counts nothing anew."""
    store = MemoryStore()
    failed = [Usage(10, 1), AdapterError("overloaded", "later", retry_after_ms=1)]
    model = ScriptModel(
        failed, [*ask(("look", "{}"))[:-2], Usage(20, 2), Finish("tool_calls", "")], [anyio.Event()]
    )
    tools = [_versioned("v", [])]
    async with purra.Kernel(model=model, tools=tools, store=store) as one:
        run = await one.submit("go")
        async for event in run.events():
            if event.kind == "stream.opened" and event.data["attempt"] == 3:
                break
    last = ScriptModel([Content("done"), Usage(40, 4), Finish("stop", "")])
    async with purra.Kernel(model=last, tools=tools, store=store) as two:
        result = await (await two.resume(run.id)).wait()
        events = [event async for event in two.runs.events(run.id, follow=False)]
    opened = [event.data for event in events if event.kind == "stream.opened"]
    assert [each["attempt"] for each in opened] == [1, 2, 3, 4]
    assert result.usage == {
        "input_tokens": 10 + 20 + 40,
        "output_tokens": 1 + 2 + opened[2]["max_tokens"] + 4,  # what it did not say is all it had
        "unreported_attempts": 1,
    }
