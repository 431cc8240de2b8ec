"""Watching: the first wake-up at once, none too early, none missed."""

from __future__ import annotations

from contextlib import aclosing

import anyio

from purra.contracts.store import ANY, Append, Commit, Drop, Put, Seal
from tests.conformance.store_subject import Subject, refusal, wakes_for

_PROMISE_S = 0.25
_SLACK_S = 0.25
"""For a machine that runs other things; a store that polls once a second still fails."""


async def check_first_wake_comes_at_once(s: Subject) -> None:
    """Contract, watch: look before you wait."""
    async with aclosing(s.store.watch(s.name("run"))) as watch:
        with anyio.fail_after(1):
            assert await anext(watch) in ("", s.name("run"))


async def check_every_change_is_told(s: Subject) -> None:
    """STO-020: appends, documents, deletes, seals and drops."""
    name, doc = s.name("run"), s.name("doc")
    async with aclosing(s.store.watch(s.ns)) as watch:
        await anext(watch)
        await s.append("run", 1)
        await wakes_for(watch, name)
        await s.put("doc", 1)
        await wakes_for(watch, doc)
        await s.put("doc", 2, 1)
        await wakes_for(watch, doc)
        await s.delete("doc", 2)
        await wakes_for(watch, doc)
        await s.drop("run")
        await wakes_for(watch, name)
        await s.seal("run")
        await wakes_for(watch, name)
        op = Append(s.name("other"), ANY, (1,))
        await s.store.commit(Commit((op, Put(doc, 1, 0)), key=(s.name("other"), "k")))
        await wakes_for(watch, doc)


async def check_a_wake_is_never_too_early(s: Subject) -> None:
    """STO-020: whoever was told can read it."""
    seen = 0
    async with aclosing(s.store.watch(s.name("run"))) as watch, anyio.create_task_group() as tasks:

        async def write() -> None:
            for n in range(50):
                await s.append("run", n, key=f"{n}")

        tasks.start_soon(write)
        with anyio.fail_after(10):
            while seen < 50:
                await anext(watch)
                head = (await s.store.read(s.name("run"), 0, 1)).head
                assert head >= seen
                seen = head


async def check_peers_are_told_in_time(s: Subject) -> None:
    """STO-020: also of commits through another opening of the data, within 250 ms."""
    peer = await s.peer()
    late: list[float] = []
    async with aclosing(s.store.watch(s.name("inbox"))) as watch:
        await anext(watch)
        for n in range(5):
            op = Append(s.name("inbox"), ANY, (n,))
            await peer.commit(Commit((op,), key=(s.name("inbox"), f"peer:{n}")))
            start = anyio.current_time()
            await wakes_for(watch, s.name("inbox"))
            late.append(anyio.current_time() - start)
            assert (await s.store.read(s.name("inbox"), 0, 10)).head == n + 1
    assert sorted(late)[len(late) // 2] <= _PROMISE_S
    assert max(late) <= _PROMISE_S + _SLACK_S


async def check_watchers_do_not_disturb_each_other(s: Subject) -> None:
    """Contract, watch: each prefix by itself; closing one leaves the others."""
    await s.append("a", 1)
    async with aclosing(s.store.watch(s.name("a"))) as first:
        await anext(first)
        async with aclosing(s.store.watch(s.name("b"))) as second:
            await anext(second)
            async with aclosing(s.store.watch("")) as everything:
                await anext(everything)
                await s.append("b", 1)
                await wakes_for(second, s.name("b"))
                await wakes_for(everything, s.name("b"))
        await s.append("a", 2)
        await wakes_for(first, s.name("a"))
    async with aclosing(s.store.watch(s.name("a"))) as third:
        with anyio.fail_after(1):
            await anext(third)


async def check_a_slow_watcher_misses_nothing(s: Subject) -> None:
    """Contract, watch: many changes may be told as one; the last one is told."""
    async with aclosing(s.store.watch(s.ns)) as watch:
        await anext(watch)
        ops = [Put(s.name(f"doc{n}"), n, 0) for n in range(1500)]
        for start in range(0, 1500, 500):
            await s.store.commit(Commit(tuple(ops[start : start + 500])))
        await s.append("last", 1)
        await wakes_for(watch, s.name("last"))


async def check_closing_a_waiting_watcher(s: Subject) -> None:
    """Contract, watch: endless, until its reader stops, whatever it is doing."""
    async with aclosing(s.store.watch(s.name("run"))) as watch:
        await anext(watch)
        with anyio.move_on_after(0.02) as scope:
            while True:
                await anext(watch)
        assert scope.cancelled_caught
    await s.append("run", 1)


async def check_malformed_prefix_is_refused(s: Subject) -> None:
    """Contract, NAME_BYTES."""
    async with aclosing(s.store.watch("x" * 1025)) as watch:
        await refusal(anext(watch), "invalid_argument")


async def check_sealing_ends_no_watch(s: Subject) -> None:
    """RUN-08: a watcher learns that its stream was sealed by looking, and goes on."""
    async with aclosing(s.store.watch(s.name("run"))) as watch:
        await anext(watch)
        name = s.name("run")
        ops = (Append(name, ANY, ("end",)), Seal(name), Drop(s.name("out")))
        await s.store.commit(Commit(ops, key=(name, "k")))
        await wakes_for(watch, name)
        assert (await s.store.read(name, 0, 1)).sealed
        await s.drop("run")
        await wakes_for(watch, name)
