"""Tasks of a run and time limits: what they cancel, what they leave, what comes out of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from purra.runs.tasks import Tasks
from purra.time_limit import TimeLimit


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def kept(told: list[int]) -> None:
    """Keeps the first cancellation for itself and goes on."""
    try:
        await forever()
    except asyncio.CancelledError:
        told.append(1)
    try:
        await forever()
    finally:
        told.append(2)


@pytest.mark.anyio
async def test_leaving_the_block_ends_what_still_runs() -> None:
    """Structured: nothing that was started outlives the block."""
    ended: list[str] = []

    async def late(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async with Tasks() as tasks:
        tasks.start(late("a"))
        tasks.start(late("b"))
        await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]
    assert tasks.stopping


@pytest.mark.anyio
@pytest.mark.parametrize("asker", ["child", "outsider", "host"])
async def test_stop_ends_the_block_and_is_swallowed_by_it(asker: str) -> None:
    """Whoever asks; what comes after the block is not cancelled, and neither is its next await."""
    went_on = False
    tasks = Tasks()
    outsiders = []

    async def ask() -> None:
        tasks.stop()

    async with tasks:
        tasks.start(forever())
        if asker == "child":
            tasks.start(ask())
        elif asker == "outsider":
            outsiders.append(asyncio.create_task(ask()))
        else:
            tasks.stop()
        if asker != "host":
            await forever()
            went_on = True
    await asyncio.gather(*outsiders)
    task = asyncio.current_task()
    assert not went_on and task is not None and not task.cancelling()
    await asyncio.sleep(0)


@pytest.mark.anyio
async def test_a_bug_in_a_task_comes_out_and_stops_the_others() -> None:
    """A fault of ours is seen, not lost in a task that nobody looks at."""

    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with Tasks() as tasks:
            tasks.start(forever())
            tasks.start(broken())
            await forever()


@pytest.mark.anyio
async def test_a_cancellation_from_outside_is_not_swallowed() -> None:
    """Also when `stop` was asked at the same moment."""
    tasks = Tasks()
    told: list[int] = []

    async def work() -> None:
        async with tasks:
            tasks.start(kept(told))
            await forever()

    for both in (False, True):
        tasks = Tasks()
        told.clear()
        worker = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if both:
            tasks.stop()
        worker.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        worker.cancel()  # as a scope does: again and again, until it has ended
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert told == [1, 2]


@pytest.mark.anyio
async def test_what_is_started_too_late_does_not_run() -> None:
    """After `stop` nothing begins, and nothing is left un-awaited."""
    async with Tasks() as tasks:
        tasks.stop()
        tasks.start(forever())


@pytest.mark.anyio
async def test_an_anyio_scope_around_the_block_still_ends_it() -> None:
    """Kernels are closed by a scope: the two ways of cancelling fit into each other."""
    with anyio.move_on_after(0.01) as scope:
        async with Tasks() as tasks:
            tasks.start(forever())
            await forever()
    assert scope.cancelled_caught
    await asyncio.sleep(0)


@pytest.mark.anyio
async def test_a_limit_ends_its_block_and_nothing_else() -> None:
    """The block ends as if nothing had been raised; `expired` says so."""
    with TimeLimit(0.01) as limit:
        await forever()
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()
    with TimeLimit(60) as limit:
        await asyncio.sleep(0)
    assert not limit.expired
    with pytest.raises(KeyError), TimeLimit(60):
        raise KeyError


@pytest.mark.anyio
async def test_limits_inside_each_other_end_their_own_blocks() -> None:
    """The inner one is over first; the outer one goes on, and the other way round."""
    with TimeLimit(60) as outer:
        with TimeLimit(0.01) as inner:
            await forever()
        await asyncio.sleep(0)
    assert inner.expired and not outer.expired
    with TimeLimit(0.01) as outer:
        with TimeLimit(60) as inner:
            await forever()
        raise AssertionError("the outer block went on")
    assert outer.expired and not inner.expired


@pytest.mark.anyio
@pytest.mark.parametrize("move", ["put_off", "cut"])
async def test_a_limit_can_be_moved_and_only_in_its_direction(move: str) -> None:
    """MOD-22: a model that goes on talking is not silent; TOOL-20: a stop leaves the grace time."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with TimeLimit(0.02 if move == "put_off" else 60) as limit:
        if move == "put_off":
            limit.put_off(0.06)
            limit.put_off(0.001)
        else:
            limit.cut(0.06)
            limit.cut(60)
        await forever()
    assert limit.expired
    assert 0.06 <= loop.time() - began_s < 30
    limit.cut(0)  # a stop that comes too late finds nothing to end
    await asyncio.sleep(0)


@pytest.mark.anyio
async def test_a_block_that_keeps_its_cancellation_is_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K53: once is not enough for code that catches everything."""
    monkeypatch.setattr("purra.time_limit.AGAIN_S", 0.001)
    told: list[int] = []
    with TimeLimit(0.001) as limit:
        await kept(told)
    assert limit.expired and told == [1, 2]
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


@pytest.mark.anyio
async def test_a_limit_never_hides_a_cancellation_from_outside() -> None:
    """Both at once: the task ends."""
    limit = TimeLimit(60)

    async def work(end: Callable[[], Awaitable[None]]) -> None:
        with limit:
            await end()

    worker = asyncio.create_task(work(forever))
    await asyncio.sleep(0)
    limit.cut(0)
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker
