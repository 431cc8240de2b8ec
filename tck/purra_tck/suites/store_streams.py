"""STO-003 to 005, 007 to 010, 016: streams, keys and seals, and commits that are refused."""

from __future__ import annotations

import random
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any, Final

import anyio

from purra import values
from purra.contracts.store import (
    ANY,
    PAGE_ITEMS,
    TTL_MS,
    Append,
    Commit,
    Delete,
    Drop,
    Op,
    Project,
    Put,
    Receipt,
    Seal,
    Touch,
    op_to_value,
)
from purra.errors import PurraError
from purra_tck.checks import Checks
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, at_once, refused, shown, woken
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

RACERS: Final = 32
PROCESSES: Final = 4
WAKE_S: Final = 5.0
"""Patience where only the fact of a wake-up matters; its time is the matter of STO-020."""


@CHECKS.rule("STO-003")
@judged
async def a_refused_commit_leaves_nothing(case: Case, subject: StoreSubject) -> None:
    """Whatever op of a commit fails, and wherever it stands, the others must not have happened.

    Stores that write op by op pass every test that only looks at the error.
    """
    a = await subject.client()
    lease_ms = 1000 * subject.life_ms
    await a.append("full", 1, 2, 3)
    await a.append("sealed", "end")
    await a.seal("sealed")
    case.equal(await a.put("old", "kept"), 1, "the first revision of a document")
    await a.put("lease", {"owner": "a"}, 0, lease_ms)
    before = await _picture(a)
    for number, (what, bad, code) in enumerate(_bad_ops(a)):
        good = _good_ops(a)
        ends = (0, len(good)) if number % 6 == 0 else ()
        for place in (*ends, len(good) // 2):
            ops = (*good[:place], bad, *good[place:])
            call = a.commit(*ops, key=(a.name("run"), f"{what} at {place}"))
            await refused(case, call, code, f"a commit with {what} as op {place}")
            after = await _picture(a)
            case.require(
                after == before,
                f"nothing changed by a commit that was refused for {what} as op {place}",
                f"before {shown(before)}, after {shown(after)}",
            )
    await a.commit(*_good_ops(a), key=(a.name("run"), "a stale revision at 0"))
    found = await _picture(a)
    case.require(found != before, "the refused key can be used", f"unchanged: {shown(found)}")
    await _order_of_checks(case, a, subject)
    await _beside_each_other(case, a)


async def _beside_each_other(case: Case, a: Client) -> None:
    """Commits that wait together may be carried out together; each is judged by itself."""
    told: dict[str, str] = {}

    async def one(name: str, *ops: Op) -> None:
        try:
            receipt = await a.commit(*ops)
        except PurraError as error:
            told[name] = error.code
        else:
            told[name] = f"head {receipt.heads.get(a.name('beside'))}"

    bad = _bad_ops(a)
    async with anyio.create_task_group() as tasks:
        for number, (what, op, _) in enumerate(bad):
            good = Append(a.name("beside"), ANY, (number,))
            tasks.start_soon(one, f"good {number}", good)
            tasks.start_soon(one, what, Append(a.name("beside"), ANY, ("bad",)), op)
    expected = {what: code for what, _, code in bad}
    heads = [told[f"good {number}"] for number in range(len(bad))]
    numbers = sorted(int(head.removeprefix("head ")) for head in heads if head.startswith("head "))
    case.equal(numbers, list(range(1, len(bad) + 1)), "heads of commits beside refused ones")
    codes = {what: told[what] for what in expected}
    case.require(codes == expected, "each refused with its own code", shown(codes))
    records = sorted(map(str, await a.records("beside")))
    case.equal(records, sorted(map(str, range(len(bad)))), "records beside refused commits")


def _good_ops(a: Client) -> tuple[Op, ...]:
    return (
        Append(a.name("run"), ANY, ("x", {"y": 1})),
        Put(a.name("new"), "made", 0),
        Touch(a.name("lease"), 1, 0),
        Delete(a.name("old"), 1),
        Drop(a.name("full")),
        Seal(a.name("full")),
    )


def _bad_ops(a: Client) -> list[tuple[str, Op, str]]:
    """What is wrong, the op, the code."""
    doc, gone, run = a.name("lease"), a.name("gone"), a.name("run")
    deep: Any = 1
    for _ in range(values.MAX_DEPTH + 1):
        deep = [deep]
    return [
        ("a stale revision", Put(doc, "x", 7), "conflict"),
        ("a put of what is there as if it were not", Put(doc, "x", 0), "conflict"),
        ("a delete of nothing", Delete(gone, 1), "conflict"),
        ("a delete at a stale revision", Delete(doc, 2), "conflict"),
        ("a touch of nothing", Touch(gone, 1, 5), "conflict"),
        ("a stale head", Append(a.name("other"), 5, ("x",)), "conflict"),
        ("an append to a sealed stream", Append(a.name("sealed"), ANY, ("x",)), "sealed"),
        ("an unknown projector", Project("no such projector", None), "not_found"),
        ("a negative time to live", Put(gone, "x", 0, -1), "invalid_argument"),
        ("a time to live beyond the bound", Put(gone, "x", 0, TTL_MS + 1), "invalid_argument"),
        ("a fraction as time to live", Touch(doc, 1, 1.5), "invalid_argument"),  # type: ignore[arg-type]
        ("a touch without a revision", Touch(doc, 0, 5), "invalid_argument"),
        ("a delete without a revision", Delete(doc, 0), "invalid_argument"),
        ("a negative revision", Put(gone, "x", -1), "invalid_argument"),
        ("true as a head", Append(run, True, ("x",)), "invalid_argument"),
        ("a head below any", Append(run, -2, ("x",)), "invalid_argument"),
        ("an append of nothing", Append(run, ANY, ()), "invalid_argument"),
        ("an empty name", Seal(""), "invalid_argument"),
        ("a name that is no text", Drop(7), "invalid_argument"),  # type: ignore[arg-type]
        ("a name of 1025 bytes", Put("é" * 512 + "x", 1, 0), "invalid_argument"),
        ("a value that is not finite", Put(gone, [float("nan")], 0), "invalid_value"),
        ("a value outside int64", Append(run, ANY, (2**63,)), "invalid_value"),
        ("a value nested too deep", Put(gone, deep, 0), "invalid_value"),
    ]


async def _picture(a: Client) -> Any:
    """Everything that the ops above could have changed."""
    found: dict[str, Any] = {}

    async def look(stream: str) -> None:
        page = await a.store.read(a.name(stream), 0, 10)
        found[stream] = (page.records, page.head, page.sealed)

    async def documents() -> None:
        found[""] = await a.docs("new", "old", "lease", "gone")

    await at_once(documents(), *map(look, ("run", "full", "sealed", "other")))
    return found


async def _order_of_checks(case: Case, a: Client, subject: StoreSubject) -> None:
    """A known key goes before the fence, the fence before the seal, the seal before the ops."""
    run = a.name("ordered")
    first = Commit((Append(run, 0, ("x",)),), key=(run, "k"))
    await a.store.commit(first)
    await a.seal("ordered")
    await a.put("term", "a", 0, subject.life_ms)
    await subject.until(a, await a.store.now() + subject.life_ms)
    wrong = (Put(a.name("term"), 2, 9), Append(run, 9, ("y",)))
    bad, old = {a.name("term"): 7}, {a.name("term"): 1}
    again = await a.store.commit(Commit(first.ops, first.key, bad))
    case.equal(dict(again.heads), {run: 1}, "the receipt of a known key, whatever it requires")
    for what, commit, code in (
        ("a known key with other ops", Commit(wrong, first.key, bad), "conflict"),
        ("a wrong fence with more faults behind it", Commit(wrong, (run, "n"), bad), "conflict"),
        ("a lapsed fence with more faults behind it", Commit(wrong, (run, "n"), old), "lapsed"),
        ("a sealed stream behind a stale put", Commit(wrong, (run, "n")), "sealed"),
    ):
        detail = await refused(case, a.store.commit(commit), code, what)
        if code == "conflict":
            expected = {"stream", "digest"} if commit.key == first.key else {"key", "revision"}
            case.equal(set(detail), expected, f"what the refusal of {what} tells")


@CHECKS.rule("STO-004")
@judged
async def numbers_are_dense(case: Case, subject: StoreSubject) -> None:
    """A cursor is a number: one that was burnt is a record that a reader waits for forever."""
    a = await subject.client()
    chance = random.Random(case.seed)
    written: list[Any] = []
    for step in range(40):
        records = [f"{step}.{n}" for n in range(chance.randint(1, 4))]
        head = len(written)
        kind = chance.choice(("any", "head", "stale", "late", "undone"))
        if kind in ("any", "head"):
            expect = head if kind == "head" else ANY
            found = await a.append("run", *records, expect=expect)
            written += records
            case.equal(found, len(written), f"the head after {len(written)} records")
        elif kind == "undone":
            undone = (Append(a.name("run"), ANY, tuple(records)), Put(a.name("doc"), 1, 9))
            await refused(case, a.commit(*undone), "conflict", "an append beside a stale put")
        else:
            expect = head + 1 if kind == "late" else max(head - 1, 0)
            if expect == head:
                continue
            call = a.append("run", *records, expect=expect)
            detail = {"stream": a.name("run"), "head": head}
            await refused(case, call, "conflict", f"an append that expects {expect}", detail)
        case.equal(await a.head("run"), len(written), "the head: a refused append burns no number")
    case.equal(await a.records("run"), written, "the records")
    one, two = a.name("one"), a.name("two")
    ops = (Append(one, 0, (1,)), Append(two, 0, (2,)), Append(one, 1, (3, 4)))
    case.equal(dict((await a.commit(*ops)).heads), {one: 3, two: 1}, "heads of one commit")


@CHECKS.rule("STO-005")
@judged
async def pages_join_to_the_whole(case: Case, subject: StoreSubject) -> None:
    """`after = n` gives exactly what is above n. A reader that starts anew must miss nothing."""
    a = await subject.client()
    whole = [{"n": n, "pad": "x" * (n * 7)} for n in range(1, 14)]
    await a.append("other", "not this one")
    await a.append("run", *whole[:6])
    await a.append("run", *whole[6:])
    for after in range(len(whole) + 1):
        page = await a.read("run", after, 100)
        case.equal(list(page.records), whole[after:], f"records after {after}")
        case.equal((page.head, page.sealed), (13, False), "head and seal of the page")
    for limit in range(1, len(whole) + 2):
        joined: list[Any] = []
        while len(joined) < len(whole):
            page = await a.read("run", len(joined), limit)
            case.require(
                0 < len(page.records) <= limit,
                f"1 to {limit} records on a page after {len(joined)}",
                f"{len(page.records)} records",
            )
            joined += page.records
        case.equal(joined, whole, f"the pages of {limit} records, joined")
    await a.append("long", *range(PAGE_ITEMS + 200))
    page = await a.store.read(a.name("long"), 0, PAGE_ITEMS * 5)
    case.equal(len(page.records), PAGE_ITEMS, "records on a page of no matter what limit")
    large = [f"{n}" * (1024 * 1024) for n in range(5)]
    for record in large:
        await a.append("large", record)
    found = await a.records("large")
    case.require(
        found == large, "five records of 1 MiB, read on to the end", f"{[len(r) for r in found]}"
    )


@CHECKS.rule("STO-007")
@judged
async def cursors_are_numbers_that_stay(case: Case, subject: StoreSubject) -> None:
    """A cursor is the last number seen: valid over a reopening, and over what was dropped."""
    a = await subject.client()
    run = a.name("run")
    await a.append("run", "a", "b", "c")
    for after in (3, 4, 10**12):
        page = await a.store.read(run, after, 10)
        case.equal((page.records, page.head), ((), 3), f"records and head after {after} of 3")
    page = await a.store.read(a.name("nothing"), 0, 10)
    case.equal((page.records, page.head, page.sealed), ((), 0, False), "an unknown stream")
    bad: list[tuple[Any, Any, Any]] = [
        (run, -1, 10), (run, 1.5, 10), (run, "0", 10), (run, None, 10), (run, True, 10),
        (run, 0, 0), (run, 0, -1), (run, 0, 2.5), ("", 0, 10), (7, 0, 10),
    ]  # fmt: skip
    for stream, after, limit in bad:
        what = f"read({shown(stream)}, {after!r}, {limit!r})"
        await refused(case, a.store.read(stream, after, limit), "invalid_argument", what)
    a = await subject.reopened()
    case.equal(await a.records("run", 2), ["c"], "records after 2, reopened")
    await a.drop("run")
    page = await a.store.read(run, 0, 10)
    case.equal((page.records, page.head), ((), 3), "records and head after a drop")
    case.equal(await a.append("run", "d", expect=3), 4, "the head after a drop and an append")
    for after in (0, 2, 3):
        page = await a.store.read(run, after, 10)
        case.equal((page.records, page.head), (("d",), 4), f"records and head after {after}")
    case.equal(await a.records("run", 4), [], "records at the head")
    ops = (Append(run, 4, ("e",)), Drop(run), Append(run, 5, ("f",)))
    case.equal(dict((await a.commit(*ops)).heads), {run: 6}, "the head of append, drop, append")
    page = await a.store.read(run, 3, 10)
    case.equal((page.records, page.head), (("f",), 6), "what is left of append, drop, append")
    async with aclosing(a.store.watch(run)) as watch:
        await woken(watch, run, WAKE_S, "the beginning of a watch")
        await a.append("run", "g")
        await woken(watch, run, WAKE_S, "an append beyond the cursor")
        case.equal(await a.records("run", 6), ["g"], "records after the old head")


@CHECKS.rule("STO-008")
@judged
async def one_key_is_one_event(case: Case, subject: StoreSubject) -> None:
    """A retry must not be a second effect, also when it overtakes the first try."""
    crowd = await subject.others(PROCESSES)
    a = crowd[0]
    ops = (Append(a.name("run"), ANY, ({"b": 1, "a": 2},)), Put(a.name("doc"), "v", 0))
    key = (a.name("run"), "once")
    first = await a.commit(*ops, key=key)
    await a.append("run", "later")
    await a.put("doc", "other", 1)
    await a.seal("run")
    same = (Append(a.name("run"), ANY, ({"a": 2, "b": 1},)), Put(a.name("doc"), "v", 0))
    for n in range(10):
        again = await crowd[n % len(crowd)].commit(*same, key=key)
        case.equal(_plain(again), _plain(first), f"the receipt of try {n + 2}")
    case.equal(await a.records("run"), [{"b": 1, "a": 2}, "later"], "the records")

    for round_number in range(3):
        await _race_for_a_key(case, crowd, f"race{round_number}")
    a = await subject.reopened()
    case.equal(_plain(await a.commit(*same, key=key)), _plain(first), "the receipt, reopened")
    await a.drop("race0")
    case.equal(
        await a.append("race0", "x", key="k"),
        1,
        "the head in the first receipt, its records dropped",
    )
    case.equal(await a.records("race0"), [], "records of a repeated key after a drop")


async def _race_for_a_key(case: Case, crowd: list[Client], stream: str) -> None:
    heads: list[int] = []

    async def race(client: Client) -> None:
        heads.append(await client.append(stream, "x", key="k"))

    async with anyio.create_task_group() as tasks:
        for n in range(RACERS):
            tasks.start_soon(race, crowd[n % len(crowd)])
    case.equal(heads, [1] * RACERS, f"the heads that {RACERS} racers with one key are told")
    case.equal(await crowd[0].records(stream), ["x"], "one row of one key")


def _plain(receipt: Receipt) -> Any:
    return (dict(receipt.heads), dict(receipt.revisions))


@CHECKS.rule("STO-009")
@judged
async def one_key_is_one_payload(case: Case, subject: StoreSubject) -> None:
    """Somebody who used a key for something else must hear of it, not get another's receipt."""
    a = await subject.client()
    run, key = a.name("run"), (a.name("run"), "k")
    op = Append(run, 0, ("x",))
    await a.commit(op, key=key)
    first = {"stream": run, "digest": values.digest([op_to_value(op)])}
    others: list[tuple[str, tuple[Op, ...]]] = [
        ("another record", (Append(run, 0, ("y",)),)),
        ("another head", (Append(run, 1, ("x",)),)),
        ("another stream", (Append(a.name("b"), 0, ("x",)),)),
        ("one op more", (op, Seal(run))),
        ("no op", ()),
    ]
    for what, ops in others:
        call = a.commit(*ops, key=key)
        await refused(case, call, "conflict", f"a known key with {what}", first)
    page = await a.store.read(run, 0, 10)
    case.equal((page.records, page.head, page.sealed), (("x",), 1, False), "the stream after it")
    case.equal(await a.head("b"), 0, "the head of the other stream")
    await a.append("n", 1, key="one")
    for other in (1.0, True, "1", [1]):
        await refused(case, a.append("n", other, key="one"), "conflict", f"{other!r} for 1")
    await a.append("n", 0.0, "-0.0", key="zero")
    await a.append("n", -0.0, "-0.0", key="zero")
    await refused(case, a.append("n", 0.0, "0.0", key="zero"), "conflict", "'0.0' for '-0.0'")
    case.equal(await a.records("n"), [1, 0.0, "-0.0"], "the records of both keys")


@CHECKS.rule("STO-010")
@judged
async def keys_belong_to_their_stream(case: Case, subject: StoreSubject) -> None:
    """Two runs count alike: `seq:7` of one must not be taken for `seq:7` of the other."""
    a = await subject.client()
    await a.commit(Append(a.name("a"), ANY, ("a",)), key=(a.name("a"), "k"))
    await a.commit(Append(a.name("a"), ANY, ("b",)), key=(a.name("b"), "k"))
    await a.commit(Put(a.name("doc"), 1, 0), key=(a.name("c"), "k"))
    case.equal(await a.records("a"), ["a", "b"], "records under one text in two scopes")
    case.equal(await a.head("c"), 0, "the head of a stream that was only a scope")
    a = await subject.reopened()
    for scope, record in (("a", "a"), ("b", "b")):
        op = Append(a.name("a"), ANY, (record,))
        receipt = await a.commit(op, key=(a.name(scope), "k"))
        expected = {a.name("a"): 1 if scope == "a" else 2}
        case.equal(dict(receipt.heads), expected, f"the first receipt of scope {scope}, reopened")
    other = Append(a.name("a"), ANY, ("c",))
    call = a.commit(other, key=(a.name("b"), "k"))
    await refused(case, call, "conflict", "the key of scope b with other ops, reopened")
    call = a.store.commit(Commit((other,)))
    await refused(case, call, "invalid_argument", "an append without a key")
    for bad in (("", "k"), (a.name("b"), ""), (a.name("b"), "x" * 1025), (a.name("b"), 7)):
        call = a.store.commit(Commit((other,), bad))  # type: ignore[arg-type]
        await refused(case, call, "invalid_argument", f"the key {shown(bad[1])}")
    case.equal(await a.records("a"), ["a", "b"], "the records at the end")


@CHECKS.rule("STO-016")
@judged
async def what_has_ended_takes_nothing(case: Case, subject: StoreSubject) -> None:
    """The terminal commit seals: what comes late, from wherever, must not change what was told."""
    crowd = await subject.others(2)
    a, b = crowd[0], crowd[-1]
    run, out, inbox = a.name("run"), a.name("out"), a.name("inbox")
    await a.append("run", "begun")
    await a.append("out", "draft")
    ends = (Append(run, 1, ("end",)), Seal(run), Seal(inbox), Seal(out), Drop(out))
    await a.commit(*ends, key=(run, "seq:1"))
    for stream, head in (("run", 2), ("out", 1), ("inbox", 0)):
        detail = {"stream": a.name(stream), "head": head}
        for expect in (ANY, head, 0, 7):
            for client in (a, b):
                call: Awaitable[Any] = client.append(stream, "late", expect=expect)
                await refused(case, call, "sealed", f"a late append to the {stream}", detail)
        beside = (Put(a.name("doc"), 1, 0), Append(a.name(stream), ANY, ("late",)))
        await refused(case, b.commit(*beside), "sealed", f"a commit with a late append to {stream}")
    case.equal(await b.doc("doc"), None, "the document beside a late append")
    await b.seal("run", "inbox")
    page = await b.store.read(run, 0, 10)
    case.equal((page.records, page.sealed), (("begun", "end"), True), "the run")
    page = await b.store.read(out, 0, 10)
    case.equal((page.records, page.head, page.sealed), ((), 1, True), "the output stream")
    ops = (Append(a.name("x"), 0, (1,)), Seal(a.name("x")), Append(a.name("x"), 1, (2,)))
    call = a.commit(*ops)
    await refused(case, call, "sealed", "append, seal, append", {"stream": a.name("x"), "head": 1})
    page = await a.store.read(a.name("x"), 0, 1)
    case.equal((page.head, page.sealed), (0, False), "the stream of append, seal, append")
    a = await subject.reopened()
    await refused(case, a.append("run", "late"), "sealed", "a late append, reopened")
    again = await a.commit(*ends, key=(run, "seq:1"))
    case.equal(dict(again.heads), {run: 2}, "the receipt of the end, told again")
