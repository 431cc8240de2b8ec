"""`resume` gives the one handle on a run that goes on here, so that whoever decides can wait."""

from __future__ import annotations

import anyio
import pytest

import purra
from purra.errors import PurraError
from purra.stores.memory import MemoryStore
from tests.kernel.parts import ScriptModel, ask, say


@purra.tool(effect="pure", approval="required")
def double(n: int) -> int:
    """Twice a number, if a person agrees."""
    return 2 * n


@pytest.mark.anyio
async def test_a_run_that_goes_on_here_has_one_handle() -> None:
    gate = anyio.Event()
    model = ScriptModel([gate, *say("First.")], say("Second."))
    async with purra.Kernel(model=model) as kernel:
        run = await kernel.submit("One", session="s")
        queued = await kernel.submit("Two", session="s")
        assert await kernel.resume(run.id) is run
        assert await kernel.resume(queued.id) is queued
        gate.set()
        assert ((await run.wait()).text, (await queued.wait()).text) == ("First.", "Second.")
        ended = await kernel.resume(queued.id)
        assert ended is not queued
        assert (await ended.wait()).text == "Second."


@pytest.mark.anyio
async def test_whoever_decides_can_wait_for_the_result() -> None:
    model = ScriptModel(ask(("double", '{"n": 21}')), say("It is 42."))
    agent = purra.Agent("held", "1", approvals="inbox")
    async with purra.Kernel(model=model, tools=[double], agent=agent) as kernel:
        run = await kernel.submit("What is twice 21?")
        assert (await run.wait()).status == "waiting"
        assert await kernel.decide(run.id, "1.0", "approve", by="ada")
        again = await kernel.resume(run.id)
        assert again is not run
        assert (await again.wait()).text == "It is 42."


@pytest.mark.anyio
async def test_a_run_of_another_kernel_is_not_given() -> None:
    """Invariant 13."""
    gate = anyio.Event()
    store = MemoryStore()
    async with (
        purra.Kernel(model=ScriptModel([gate, *say("Yes.")]), store=store) as mine,
        purra.Kernel(model=ScriptModel(), store=store) as other,
    ):
        run = await mine.submit("Well?")
        with pytest.raises(purra.PurraError) as caught:
            await other.resume(run.id)
        assert caught.value.code == "ownership_lost"
        gate.set()
        assert (await run.wait()).text == "Yes."


@pytest.mark.anyio
async def test_a_run_whose_kernel_closed_before_it_began_is_told() -> None:
    """API-02: nobody waits for ever; the run itself is in the store, to be resumed."""
    async with purra.Kernel(model=ScriptModel(say("late"))) as kernel:
        run = await kernel.submit("go")
    with anyio.fail_after(5), pytest.raises(PurraError) as refused:
        await run.wait()
    assert refused.value.code == "not_open"
