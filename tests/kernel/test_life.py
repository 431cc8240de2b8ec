"""Cancel, deadline, sessions, takeover: the life of a run around its steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.model import Chunk, Content, ModelProfile, ModelRequest
from purra.contracts.store import Commit, Page, Seal
from purra.errors import PurraError
from purra.journal.events import Event
from purra.runs.run import Run
from purra.stores.memory import MemoryStore
from purra.worker import work
from tests.kernel.parts import CountingStore, ScriptModel, StillClock, ask, kinds, say


async def reached(run: Run, kind: str) -> Event:
    async for event in run.events():
        if event.kind == kind:
            return event
    raise AssertionError(f"{kind} never came")


@pytest.mark.anyio
async def test_cancel_ends_a_model_call_and_voids_its_drafts() -> None:
    """RUN-10, K53: idempotent, bounded, and a no-op once the run has ended."""
    never = anyio.Event()
    model = ScriptModel([Content("half"), never])
    async with purra.Kernel(model=model) as kernel:
        run = await kernel.submit("go")
        await reached(run, "stream.opened")
        with anyio.fail_after(2):
            assert await run.cancel()
            assert (await run.wait()).status == "canceled"
        events = [event async for event in run.events()]
        assert not await run.cancel()
    assert kinds(events)[-3:] == ["inbox.taken", "attempt.superseded", "run.canceled"]


@pytest.mark.anyio
async def test_an_inbox_entry_is_taken_in_once_however_many_look() -> None:
    """RUN-10: whoever writes from this process looks at once, and so does the watch; an entry that
    both find would count twice, and the next one would be passed over."""

    class Dawdling(MemoryStore):
        async def read(self, stream: str, after: int, limit: int) -> Page:
            page = await super().read(stream, after, limit)
            for _ in range(5):
                await anyio.sleep(0)
            return page

    model = ScriptModel([anyio.Event()])
    async with purra.Kernel(model=model, store=Dawdling()) as kernel:
        run = await kernel.submit("go")
        await reached(run, "stream.opened")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(run.cancel)
        assert (await run.wait()).status == "canceled"
        events = [event async for event in run.events()]
    taken = [event.data["entry"] for event in events if event.kind == "inbox.taken"]
    assert taken == [1, 2, 3]


@pytest.mark.anyio
async def test_cancel_during_tools_gives_every_call_a_result() -> None:
    """TOOL-26, K53: claimed, waiting and unclaimed calls alike; history stays valid."""
    never = anyio.Event()

    @purra.tool(effect="world_read")
    async def stuck() -> str:
        """Waits."""
        await never.wait()
        return ""

    model = ScriptModel(ask(*[("stuck", "{}")] * 12))
    async with purra.Kernel(model=model, tools=[stuck]) as kernel:
        run = await kernel.submit("go")
        await reached(run, "tool.call.claimed")
        with anyio.fail_after(2):
            await run.cancel()
            assert (await run.wait()).status == "canceled"
        events = [event async for event in run.events()]
    done = [event.data["call"] for event in events if event.kind == "tool.call.completed"]
    assert sorted(done) == sorted(f"1.{n}" for n in range(12))


@pytest.mark.anyio
async def test_a_write_that_ignores_cancel_is_unknown_and_the_run_still_ends() -> None:
    """RUN-11: within the grace the run is canceled, and says what it does not know."""
    never = anyio.Event()

    class Deaf:
        async def catalog(self):  # type: ignore[no-untyped-def]
            from purra.contracts.tool import declare

            return [declare("write", "w", {"type": "object"}, "external_write")]

        async def call(self, name: str, arguments: object, context: CallContext) -> None:
            await never.wait()

    model = ScriptModel(ask(("write", "{}")))
    async with purra.Kernel(model=model, tools=[Deaf()]) as kernel:  # type: ignore[list-item]
        run = await kernel.submit("go")
        await reached(run, "tool.call.claimed")
        with anyio.fail_after(5):
            await run.cancel()
            result = await run.wait()
    assert result.status == "canceled"
    assert [effect["effect_state"] for effect in result.effects] == ["unknown"]


@pytest.mark.anyio
async def test_cancelling_one_run_leaves_the_next_of_its_session_alone() -> None:
    """K64, RUN-10: a cancel belongs to a run."""
    model = ScriptModel([anyio.Event()], say("second"))
    async with purra.Kernel(model=model) as kernel:
        first = await kernel.submit("one", session="s")
        await reached(first, "stream.opened")
        second = await kernel.submit("two", session="s")
        await first.cancel()
        assert (await first.wait()).status == "canceled"
        assert (await second.wait()).text == "second"
        assert not await kernel.cancel(first.id)


@pytest.mark.anyio
async def test_the_deadline_is_absolute_and_survives_a_takeover() -> None:
    """RUN-12: now >= deadline ends the run with its own code; resuming does not restart it."""
    store, clock = MemoryStore(), StillClock()
    agent = purra.Agent("a", "1", limits=purra.RunLimits(deadline_s=10))
    first = purra.Kernel(model=ScriptModel([anyio.Event()]), store=store, agent=agent)
    first.clock = clock
    async with first:
        run = await first.submit("go")
        await reached(run, "stream.opened")
    clock.pass_ms(6_000)
    second = purra.Kernel(model=ScriptModel([anyio.Event()]), store=store, agent=agent)
    second.clock = clock
    async with second:
        again = await second.resume(run.id)
        await reached(again, "attempt.superseded")
        clock.pass_ms(3_999)
        await anyio.wait_all_tasks_blocked()
        assert not (await second.runs.state(run.id)).ended
        clock.pass_ms(1)
        result = await again.wait()
    assert result.error is not None and result.error["code"] == "run_deadline_exceeded"


@pytest.mark.anyio
async def test_runs_of_a_session_are_serial_and_see_each_other() -> None:
    """RUN-20, STR-03, invariant 13: queued in order, each with the answers before it."""
    model = ScriptModel(*[say(f"answer {n}") for n in range(4)])
    async with purra.Kernel(model=model) as kernel:
        runs = [await kernel.submit(f"question {n}", session="s") for n in range(4)]
        for run in runs:
            await run.wait()
    seen = [message.content for message in model.requests[3].messages]
    expected = [text for n in range(3) for text in (f"question {n}", f"answer {n}")]
    assert seen == [*expected, "question 3"]


@pytest.mark.anyio
async def test_a_busy_session_is_refused_where_the_agent_says_so() -> None:
    """RUN-20 `refuse`: `session_busy`, and nothing is created."""
    agent = purra.Agent("a", "1", session_policy="refuse")
    async with purra.Kernel(model=ScriptModel([anyio.Event()]), agent=agent) as kernel:
        run = await kernel.submit("one", session="s")
        with pytest.raises(PurraError) as caught:
            await kernel.submit("two", session="s")
        assert caught.value.code == "session_busy"
        assert [info.run for info in await kernel.runs.list()] == [run.id]


@pytest.mark.anyio
async def test_a_run_is_taken_up_where_its_journal_ends() -> None:
    """RUN-15, REC-04: the attempt is superseded, one new one is charged, the answer is whole."""
    store = MemoryStore()
    async with purra.Kernel(model=ScriptModel([Content("ha"), anyio.Event()]), store=store) as one:
        run = await one.submit("go")
        await reached(run, "stream.opened")
    async with purra.Kernel(model=ScriptModel(say("whole")), store=store) as two:
        again = await two.resume(run.id)
        result = await again.wait()
        events = [event async for event in again.events()]
    assert (result.status, result.text) == ("completed", "whole")
    assert "attempt.superseded" in kinds(events)
    assert result.usage["unreported_attempts"] == 1


@pytest.mark.anyio
async def test_drift_is_refused_by_the_name_of_the_component() -> None:
    """PRE-06, PRE-09, K59: nothing is called, the run stands as it was."""
    store = MemoryStore()
    async with purra.Kernel(model=ScriptModel([anyio.Event()]), store=store) as one:
        run = await one.submit("go")
        await reached(run, "stream.opened")
    other = purra.Agent("agent", "2")
    model = ScriptModel()
    async with purra.Kernel(model=model, store=store, agent=other) as two:
        with pytest.raises(PurraError, match="agent differ") as caught:
            await two.resume(run.id)
    assert caught.value.code == "preset_mismatch"
    assert model.requests == []


@pytest.mark.anyio
async def test_a_run_that_somebody_works_on_is_not_taken() -> None:
    """RUN-17: one owner at a time."""
    store = MemoryStore()
    async with (
        purra.Kernel(model=ScriptModel([anyio.Event()]), store=store) as one,
        purra.Kernel(model=ScriptModel(), store=store) as two,
    ):
        run = await one.submit("go")
        with pytest.raises(PurraError) as caught:
            await two.resume(run.id)
        assert caught.value.code == "ownership_lost"
        assert await two.cancel(run.id)  # its owner finds it in the inbox
        with anyio.fail_after(2):
            assert (await run.wait()).status == "canceled"


@pytest.mark.anyio
async def test_cancel_of_a_run_without_an_owner_ends_it_here() -> None:
    """Issue A: the command takes the lease; no model is needed for that."""
    store = MemoryStore()
    async with purra.Kernel(model=ScriptModel([anyio.Event()]), store=store) as one:
        run = await one.submit("go")
        await reached(run, "stream.opened")
    async with purra.Kernel(store=store) as looker:
        assert await looker.cancel(run.id, by="op")
        async for event in looker.runs.events(run.id, follow=True):
            last = event
    assert last.kind == "run.canceled"
    assert "op" in last.data["error"]["message"]


@pytest.mark.anyio
async def test_an_owner_that_lost_the_lease_writes_nothing_more() -> None:
    """RUN-17, K58, STO-015: every commit of a stale owner is refused."""
    store, release = MemoryStore(), anyio.Event()
    model = ScriptModel([release, *say("late")])
    async with purra.Kernel(model=model, store=store) as one:
        run = await one.submit("go")
        await reached(run, "stream.opened")
        lease = await one.runs.lease(run.id)
        from purra.contracts.store import Commit, Put

        await store.commit(Commit((Put(lease.key, {**lease.value}, lease.revision, 15_000),)))
        release.set()
        with pytest.raises(PurraError) as caught:
            await run.wait()
        assert caught.value.code == "ownership_lost"
        assert "late" not in repr([e async for e in one.runs.events(run.id, follow=False)])


@pytest.mark.anyio
async def test_a_worker_takes_up_what_is_due() -> None:
    """HITL-05, STO-018: a decision brought by a kernel that cannot go on makes the run due."""
    store = MemoryStore()
    agent = purra.Agent("a", "1", approvals="inbox")

    @purra.tool(effect="irreversible")
    async def burn() -> str:
        """Burns."""
        return "burnt"

    model = ScriptModel(ask(("burn", "{}")), say("done"))
    async with purra.Kernel(model=model, tools=[burn], store=store, agent=agent) as kernel:
        run = await kernel.submit("go")
        assert (await run.wait()).status == "waiting"
        async with purra.Kernel(store=store) as looker, anyio.create_task_group() as tasks:
            assert await looker.decide(run.id, "1.0", "approve", by="eve")
            taken: list[tuple[str, object]] = []
            tasks.start_soon(work, kernel, lambda run_id, error: taken.append((run_id, error)))
            with anyio.fail_after(5):
                async for event in looker.runs.events(run.id, follow=True):
                    last = event
            tasks.cancel_scope.cancel()
    assert last.kind == "run.completed"
    assert taken == [(run.id, None)]


@pytest.mark.anyio
async def test_a_run_that_joins_the_queue_while_another_ends_is_not_lost() -> None:
    """RUN-07, RUN-20: the terminal commit looks again when the turn changed under it."""
    from purra.contracts.store import Append
    from tests.kernel.parts import CountingStore

    store = CountingStore()
    joined: list[object] = []

    def joins_first(commit: Commit) -> None:
        ends = any(isinstance(op, Append) and op.stream == "session/s" for op in commit.ops)
        if ends and not joined:
            turn = store._slots["session/s/turn"]
            joined.append(turn)
            value = {"run": turn.value["run"], "queue": ["later"]}
            store._slots["session/s/turn"] = type(turn)(value, turn.last_revision + 1, 0, True)

    store.before_commit = joins_first
    async with purra.Kernel(model=ScriptModel(say("one")), store=store) as kernel:
        run = await kernel.submit("go", session="s")
        assert (await run.wait()).status == "completed"
        (turn,) = await store.get(["session/s/turn"])
        assert turn is not None and turn.value == {"run": "later", "queue": ()}
        (wake,) = await store.get(["wake/later"])
        assert wake is not None and wake.expires_ms
    assert joined


@pytest.mark.anyio
async def test_a_deadline_fires_once_however_long_the_end_takes() -> None:
    """RUN-12: while a deaf write has its grace, nothing more is said of the time."""
    clock = StillClock()
    agent = purra.Agent("a", "1", limits=purra.RunLimits(deadline_s=10))

    @purra.tool(effect="external_write")
    async def deaf() -> str:
        """Waits."""
        await anyio.Event().wait()
        return ""

    kernel = purra.Kernel(model=ScriptModel(ask(("deaf", "{}"))), tools=[deaf], agent=agent)
    kernel.clock = clock
    async with kernel:
        run = await kernel.submit("go")
        await reached(run, "tool.call.claimed")
        clock.pass_ms(10_000)
        result = await run.wait()
        events = [event async for event in run.events()]
    assert result.error is not None and result.error["code"] == "run_deadline_exceeded"
    assert kinds(events).count("timer.fired") == 1


@pytest.mark.anyio
async def test_a_model_that_keeps_its_cancellation_does_not_keep_the_run() -> None:
    """RUN-11: whatever the adapter does with it, the stream is not read on."""

    class Stubborn:
        async def profile(self) -> ModelProfile:
            return ModelProfile(8192, 512)

        async def generate(
            self, request: ModelRequest, context: CallContext
        ) -> AsyncIterator[Chunk]:
            while True:
                try:
                    await anyio.Event().wait()
                except BaseException:  # the fault that is tried here
                    yield Content("still here ")

    async with purra.Kernel(model=Stubborn()) as kernel:
        run = await kernel.submit("go")
        await reached(run, "stream.opened")
        with anyio.fail_after(2):
            await run.cancel()
            assert (await run.wait()).status == "canceled"


@pytest.mark.anyio
async def test_a_lease_that_went_with_the_end_is_not_lost() -> None:
    """RUN-07, K58: the last commit releases the lease; a heartbeat that is refused just then must
    not turn a completed run into a lost one."""
    store = CountingStore()
    kernel = purra.Kernel(model=ScriptModel(say("done")), store=store)

    def beat(commit: Commit) -> None:
        if any(isinstance(op, Seal) for op in commit.ops):
            for held in list(kernel._heartbeat._held.values()):
                asyncio.get_running_loop().call_soon(held.lost)

    store.before_commit = beat
    async with kernel:
        run = await kernel.submit("go")
        assert (await run.wait()).text == "done"
