"""Streams: dense numbers, cursors, idempotency, seals, drops."""

from __future__ import annotations

import anyio

from purra import values
from purra.contracts.store import ANY, Append, Commit, Drop, Put, Receipt, Seal, op_to_value
from tests.conformance.store_subject import Subject, refusal


async def check_sequence_is_dense_from_one(s: Subject) -> None:
    """RUN-03, STO-004: numbers are dense from 1, and a refused append burns none."""
    assert await s.append("run", {"n": 1}, expect=0) == 1
    assert await s.append("run", {"n": 2}, {"n": 3}, expect=1) == 3
    for expect in (0, 1, 2, 4, 5):
        detail = await refusal(s.append("run", {"n": 0}, expect=expect, key="late"), "conflict")
        assert detail == {"stream": s.name("run"), "head": 3}
    assert await s.append("run", {"n": 4}, expect=3) == 4
    assert await s.records("run") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


async def check_expect_any_takes_the_head_as_it_is(s: Subject) -> None:
    """STO-004: anyone authorised appends to an inbox without knowing its head."""
    for n in range(3):
        assert await s.append("inbox", n, expect=ANY) == n + 1
    assert await s.records("inbox") == [0, 1, 2]


async def check_pages_join_to_the_whole(s: Subject) -> None:
    """RUN-05, STO-005: `after` gives what comes later, in order, whatever the page size."""
    await s.append("run", *range(7))
    for limit in range(1, 9):
        joined: list[int] = []
        while len(joined) < 7:
            page = await s.store.read(s.name("run"), len(joined), limit)
            assert 1 <= len(page.records) <= limit
            assert (page.head, page.sealed) == (7, False)
            joined += page.records
        assert joined == list(range(7))


async def check_read_at_and_beyond_the_head(s: Subject) -> None:
    """STO-007: nothing beyond the head, which is told; the same of an unknown stream."""
    await s.append("run", "a", "b")
    for after in (2, 3, 10**12):
        page = await s.store.read(s.name("run"), after, 10)
        assert (page.records, page.head, page.sealed) == ((), 2, False)
    page = await s.store.read(s.name("nothing"), 0, 10)
    assert (page.records, page.head, page.sealed) == ((), 0, False)


async def check_large_records_come_in_short_pages(s: Subject) -> None:
    """STO-022, contract Page: a page may be cut short, and reading on gives everything."""
    large = [f"{n}" * (1024 * 1024) for n in range(7)]
    for record in large:
        await s.append("run", record)
    assert await s.records("run") == large


async def check_limit_has_a_ceiling(s: Subject) -> None:
    """Contract, PAGE_ITEMS: a larger limit gives as many."""
    await s.append("run", *range(1200))
    assert len((await s.store.read(s.name("run"), 0, 5000)).records) == 1000
    assert await s.records("run") == list(range(1200))


async def check_same_key_gives_the_first_receipt(s: Subject) -> None:
    """RUN-06, STO-008: ten times the same commit is one, whatever has happened since."""
    ops = (Append(s.name("run"), ANY, ({"b": 1, "a": 2},)), Put(s.name("doc"), "v", 0))
    first: Receipt = await s.keyed("run", "k", *ops)
    assert first.heads == {s.name("run"): 1}
    assert first.revisions == {s.name("doc"): 1}
    await s.append("run", "later")
    await s.put("doc", "other", 1)
    await s.seal("run")
    same = (Append(s.name("run"), ANY, ({"a": 2, "b": 1},)), Put(s.name("doc"), "v", 0))
    for _ in range(10):
        again: Receipt = await s.keyed("run", "k", *same)
        assert (again.heads, again.revisions) == (first.heads, first.revisions)
    assert await s.records("run") == [{"b": 1, "a": 2}, "later"]


async def check_same_key_racing_is_one_row(s: Subject) -> None:
    """STO-008: 32 callers at once with one key: one record, one receipt."""
    receipts: list[Receipt] = []

    async def call() -> None:
        receipts.append(await s.keyed("run", "k", Append(s.name("run"), ANY, ("x",))))

    async with anyio.create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(call)
    assert [dict(r.heads) for r in receipts] == [{s.name("run"): 1}] * 32
    assert await s.records("run") == ["x"]


async def check_same_key_with_other_ops_is_a_conflict(s: Subject) -> None:
    """RUN-06, STO-009: nothing is written, and the first digest is told."""
    op = Append(s.name("run"), 0, ("x",))
    await s.keyed("run", "k", op)
    others = (
        (Append(s.name("run"), 0, ("y",)),),
        (Append(s.name("run"), 1, ("x",)),),
        (op, Seal(s.name("run"))),
        (Append(s.name("run"), 0, (1,)),),
        (),
    )
    for ops in others:
        detail = await refusal(s.keyed("run", "k", *ops), "conflict")
        assert detail == {"stream": s.name("run"), "digest": values.digest([op_to_value(op)])}
    assert await s.records("run") == ["x"]
    page = await s.store.read(s.name("run"), 0, 1)
    assert not page.sealed


async def check_integers_floats_and_booleans_are_other_ops(s: Subject) -> None:
    """RUN-06, JSON-10: 1, 1.0 and true are three values; -0.0 and 0.0 are one."""
    await s.keyed("run", "one", Append(s.name("run"), ANY, (1,)))
    for other in (1.0, True, "1"):
        await refusal(s.keyed("run", "one", Append(s.name("run"), ANY, (other,))), "conflict")
    await s.keyed("run", "zero", Append(s.name("run"), ANY, (0.0, "-0.0")))
    await s.keyed("run", "zero", Append(s.name("run"), ANY, (-0.0, "-0.0")))
    await refusal(s.keyed("run", "zero", Append(s.name("run"), ANY, (0.0, "0.0"))), "conflict")


async def check_keys_are_scoped_by_stream(s: Subject) -> None:
    """STO-010: the same text in another stream is another key; also of a stream never used."""
    await s.keyed("a", "k", Append(s.name("a"), ANY, ("a",)))
    await s.keyed("b", "k", Append(s.name("a"), ANY, ("b",)))
    await s.keyed("c", "k", Put(s.name("doc"), 1, 0))
    assert await s.records("a") == ["a", "b"]
    await refusal(s.keyed("b", "k", Append(s.name("a"), ANY, ("c",))), "conflict")
    assert (await s.store.read(s.name("c"), 0, 1)).head == 0


async def check_a_refused_commit_leaves_its_key_unused(s: Subject) -> None:
    """STO-004: a refusal is not a receipt."""
    await refusal(s.append("run", "x", expect=5, key="k"), "conflict")
    assert await s.append("run", "x", expect=0, key="k") == 1


async def check_sealed_stream_takes_no_append(s: Subject) -> None:
    """RUN-08, STO-016: after the terminal commit nothing is added, whatever it expects."""
    name = s.name("run")
    await s.keyed("run", "end", Append(name, 0, ("terminal",)), Seal(name), Seal(s.name("inbox")))
    for expect in (ANY, 0, 1, 7):
        detail = await refusal(s.append("run", "x", expect=expect, key=f"{expect}"), "sealed")
        assert detail == {"stream": name, "head": 1}
    detail = await refusal(s.append("inbox", "cancel"), "sealed")
    assert detail == {"stream": s.name("inbox"), "head": 0}
    page = await s.store.read(name, 0, 10)
    assert (page.records, page.head, page.sealed) == (("terminal",), 1, True)
    await s.seal("run")
    await refusal(s.keyed("x", "y", Append(name, ANY, ("z",)), Put(s.name("d"), 1, 0)), "sealed")
    assert await s.store.get([s.name("d")]) == (None,)


async def check_append_after_seal_in_one_commit_is_sealed(s: Subject) -> None:
    """Contract, order of checks, 5: an op sees what those before it did."""
    name = s.name("run")
    ops = (Append(name, 0, ("a",)), Seal(name), Append(name, 1, ("b",)))
    assert await refusal(s.keyed("run", "k", *ops), "sealed") == {"stream": name, "head": 1}
    page = await s.store.read(name, 0, 10)
    assert (page.records, page.head, page.sealed) == ((), 0, False)


async def check_drop_keeps_head_and_seal(s: Subject) -> None:
    """OUT-05: the records go, the numbers do not come back."""
    await s.append("out", "a", "b", "c")
    await s.drop("out")
    page = await s.store.read(s.name("out"), 0, 10)
    assert (page.records, page.head, page.sealed) == ((), 3, False)
    assert await s.append("out", "d", expect=3) == 4
    for after in (0, 2, 3):
        assert (await s.store.read(s.name("out"), after, 10)).records == ("d",)
    await s.seal("out")
    await s.drop("out")
    page = await s.store.read(s.name("out"), 0, 10)
    assert (page.records, page.head, page.sealed) == ((), 4, True)
    await refusal(s.append("out", "e"), "sealed")


async def check_drop_and_append_in_one_commit(s: Subject) -> None:
    """Contract, order of checks, 5: in their order, both ways round."""
    name = s.name("out")
    await s.append("out", "a", "b")
    await s.keyed("out", "1", Append(name, 2, ("c",)), Drop(name), Append(name, 3, ("d",)))
    page = await s.store.read(name, 0, 10)
    assert (page.records, page.head) == (("d",), 4)
    await s.keyed("out", "2", Append(name, ANY, ("e", "f")), Drop(name))
    page = await s.store.read(name, 0, 10)
    assert (page.records, page.head) == ((), 6)


async def check_receipts_survive_a_drop(s: Subject) -> None:
    """RUN-06: a key outlives the records that it added."""
    first: Receipt = await s.keyed("out", "k", Append(s.name("out"), 0, ("a",)))
    await s.drop("out")
    again: Receipt = await s.keyed("out", "k", Append(s.name("out"), 0, ("a",)))
    assert again.heads == first.heads
    assert (await s.store.read(s.name("out"), 0, 10)).head == 1


async def check_several_streams_in_one_commit(s: Subject) -> None:
    """RUN-07: the journal, the inbox and the session change together or not at all."""
    a, b = s.name("a"), s.name("b")
    ops = (Append(a, 0, (1,)), Append(b, 0, (2,)), Append(a, 1, (3, 4)))
    receipt: Receipt = await s.keyed("a", "1", *ops)
    assert receipt.heads == {a: 3, b: 1}
    ops = (Append(a, 3, (5,)), Append(b, 7, (6,)))
    assert await refusal(s.keyed("a", "2", *ops), "conflict") == {"stream": b, "head": 1}
    assert await s.records("a") == [1, 3, 4]
    assert await s.records("b") == [2]


async def check_concurrent_appends_are_all_there(s: Subject) -> None:
    """STO-006, STO-028: callers at once neither lose a record nor share a number."""
    heads: list[int] = []

    async def call(n: int) -> None:
        heads.append(await s.append("run", n, key=f"call:{n}"))

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(call, n)
    assert sorted(heads) == list(range(1, 41))
    assert sorted(await s.records("run")) == list(range(40))


async def check_data_outlives_the_store(s: Subject) -> None:
    """STO-007, STO-010: cursors, keys, seals and revisions are the same after a reopening."""
    await s.append("run", "a", "b", key="k")
    await s.seal("run")
    await s.put("doc", {"v": 1})
    await s.delete("doc", 1)
    store = await s.reopen()
    page = await store.read(s.name("run"), 1, 10)
    assert (page.records, page.head, page.sealed) == (("b",), 2, True)
    op = Append(s.name("run"), ANY, ("a", "b"))
    receipt = await store.commit(Commit((op,), key=(s.name("run"), "k")))
    assert receipt.heads == {s.name("run"): 2}
    receipt = await store.commit(Commit((Put(s.name("doc"), 2, 0),)))
    assert receipt.revisions == {s.name("doc"): 2}
