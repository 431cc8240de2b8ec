"""What a run was started with holds it: versions, components, whoever brings a word."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import purra
import purra.kernel
from purra.errors import PurraError
from purra.stores.memory import MemoryStore
from tests.kernel.parts import CountingStore, ScriptModel, ask, kinds, say


def burner(ran: list[str]) -> Any:
    @purra.tool(effect="irreversible")
    async def burn() -> str:
        """Burns."""
        ran.append("burn")
        return "burnt"

    return burn


@pytest.mark.anyio
@pytest.mark.parametrize("version", [0, 2, "1"])
async def test_an_unknown_snapshot_is_refused_and_never_guessed(
    monkeypatch: pytest.MonkeyPatch, version: Any
) -> None:
    """PRE-07: older or newer, by its own code, before anything is called or written."""
    store = CountingStore()
    monkeypatch.setattr(purra.kernel, "SNAPSHOT", version)
    async with purra.Kernel(model=ScriptModel([anyio.Event()]), store=store) as one:
        run = await one.submit("go")
    monkeypatch.undo()
    model = ScriptModel()
    async with purra.Kernel(model=model, store=store) as two:
        before = (await store.read(f"run/{run.id}", 0, 100)).head
        with pytest.raises(PurraError, match=f"snapshot version {version}") as caught:
            await two.resume(run.id)
        assert caught.value.code == "agent_preset_snapshot_unsupported"
        assert (await store.read(f"run/{run.id}", 0, 100)).head == before
    assert model.requests == []


@pytest.mark.anyio
async def test_a_decision_does_not_go_around_what_the_run_was_started_with() -> None:
    """PRE-06, PRE-09: a kernel of another revision hands a person's word on, and does not go on
    with the run itself; one of the same revision does."""
    store, ran = MemoryStore(), list[str]()
    first = purra.Agent("a", "1", approvals="inbox")
    asking = ScriptModel(ask(("burn", "{}")))
    async with purra.Kernel(model=asking, tools=[burner(ran)], store=store, agent=first) as one:
        run = await one.submit("go")
        assert (await run.wait()).status == "waiting"
    other = purra.Agent("a", "2", approvals="inbox")
    model = ScriptModel()
    async with purra.Kernel(model=model, tools=[burner(ran)], store=store, agent=other) as two:
        assert await two.decide(run.id, "1.0", "approve", by="eve")
        with anyio.fail_after(5):
            while await two.runs.due(10) != (run.id,):
                await anyio.sleep(0.001)
        assert (await two.runs.show(run.id)).owner == ""
    assert (ran, model.requests) == ([], [])
    answering = ScriptModel(say("ok"))
    async with purra.Kernel(model=answering, tools=[burner(ran)], store=store, agent=first) as one:
        assert (await (await one.resume(run.id)).wait()).text == "ok"
    assert ran == ["burn"]


@pytest.mark.anyio
async def test_a_preset_is_of_the_agent_and_not_of_what_carries_it() -> None:
    """PRE-13: store, clock, approvals, sessions and tokens are the kernel's, and change no
    fingerprint; what the agent is told does."""

    async def started(agent: purra.Agent, store: MemoryStore) -> dict[str, Any]:
        async with purra.Kernel(model=ScriptModel(say("ok")), store=store, agent=agent) as kernel:
            run = await kernel.submit("go")
            (first, *_) = [event async for event in run.events()]
            return {name: first.data[name] for name in ("fingerprint", "components")}

    plain = await started(purra.Agent("a", "1"), MemoryStore())
    limits = purra.RunLimits(deadline_s=5, max_tokens=9_000)
    other = purra.Agent("a", "1", session_policy="refuse", approvals="inbox", limits=limits)
    assert await started(other, CountingStore()) == plain
    assert set(plain["components"]) == {"agent", "prompt", "limits", "tools"}
    told = purra.Agent("a", "1", prompt=(purra.PromptSection("x", 0, "Be brief."),))
    assert (await started(told, MemoryStore()))["fingerprint"] != plain["fingerprint"]


@pytest.mark.anyio
async def test_a_plain_run_has_no_parts_of_a_planned_one() -> None:
    """PRE-11: no planner, task or admission of a plan is made where none was asked for."""
    async with purra.Kernel(model=ScriptModel(say("ok"))) as kernel:
        run = await kernel.submit("go")
        seen = kinds([event async for event in run.events()])
    assert set(seen) == {
        "run.started",
        "run.owned",
        "context.assembled",
        "stream.opened",
        "model.round",
        "output.promoted",
        "run.completed",
    }
