"""STO-018: what has lapsed is found, and nothing else is paid for."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, Final

import anyio

from purra.contracts.store import Commit, Document, Put, Scan
from purra.errors import StoreError
from purra_tck.checks import Checks
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, at_once, refused, shown
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

PROCESSES: Final = 4
FAR_MS: Final = 1_000_000
MANY: Final = 20_000
FEW: Final = 20
SCANS: Final = 40
LEAST_SCANS: Final = 8
MEASURING_S: Final = 2.0
"""After so long `LEAST_SCANS` are enough: where a scan is slow, less noise is in each."""
SCAN_GROWTH: Final = 3.0
"""A scan of a thousand times the documents may take this much longer. One that looks at each takes
thirty times as long where that is cheapest, in memory."""
SCAN_FLOOR_S: Final = 0.0005
"""Below this a difference is noise, whatever the ratio."""


@CHECKS.rule("STO-018")
@judged
async def a_scan_finds_what_has_lapsed(case: Case, subject: StoreSubject) -> None:
    """Recovery asks for what has lapsed, often. It must get exactly that, and not pay for the rest.

    The order of plain scans is tried on the way: it is what pages rest on.
    """
    crowd = await subject.others(PROCESSES)
    a = crowd[0]
    await _order_of_scans(case, a)
    unit_ms = subject.life_ms
    for key, life_ms in (("e", 2), ("a", 2), ("c", 2), ("z", 1), ("live", 4000), ("gone", 1)):
        await a.put(f"l/{key}", key, 0, life_ms * unit_ms)
    await a.put("l/never", 1)
    await a.put("l/touched", 1, 0, unit_ms)
    await a.touch("l/touched", 1, 4000 * unit_ms)
    await a.delete("l/gone", 1)
    await subject.until(a, await a.store.now() + 2 * unit_ms + 1)
    known = [d for d in await a.docs("l/e", "l/a", "l/c", "l/z") if d]
    due = [d.key for d in sorted(known, key=lambda d: (d.expires_ms, d.key))]
    case.equal([due[0], len(due)], [a.name("l/z"), 4], "the document that lapsed first, of four")
    for limit in (1, 2, 3, 10):
        found = await a.scan("l/", limit=limit, lapsed_only=True)
        case.equal([d.key for d in found], due, f"what has lapsed, {limit} on a page")
        back = await a.scan("l/", limit=limit, lapsed_only=True, reverse=True)
        case.equal([d.key for d in back], due[::-1], f"the same backwards, {limit} on a page")
    case.require(
        all(d.lapsed and d.value == d.key[-1] for d in found), "whole documents", shown(found)
    )
    narrow = [d.key for d in await a.scan("l/c", lapsed_only=True)]
    case.equal(narrow, [a.name("l/c")], "what has lapsed of one prefix")
    for n, key in enumerate(("l/a", "l/c", "l/e", "l/z")):
        await _race_for_recovery(case, crowd, key, n)
    left = [d.key for d in await a.scan("l/", lapsed_only=True)]
    case.equal(left, [], "what has lapsed after all was taken over")
    await _lost_place(case, subject, a)
    await _cost(case, subject)


async def _lost_place(case: Case, subject: StoreSubject, a: Client) -> None:
    """Where the last one seen was taken meanwhile, the scan may repeat, but misses none."""
    for key in "abc":
        await a.put(f"p/{key}", 1, 0, 1)
    await subject.until(a, await a.store.now() + 2)
    page = await a.store.scan(Scan(a.name("p/"), limit=1, lapsed_only=True))
    first = page.documents[0].key.removeprefix(a.ns + "/")
    await a.put(first, 2, 1, FAR_MS)
    rest = await a.scan("p/", after=first, limit=10, lapsed_only=True)
    seen = sorted({first, *(d.key.removeprefix(a.ns + "/") for d in rest)})
    case.equal(seen, ["p/a", "p/b", "p/c"], "what a scan saw whose last one was taken")


async def _order_of_scans(case: Case, a: Client) -> None:
    names = ["", "0", "a", "a/b", "a0", "ab", "b", "\x7f", "\x80", "é", "\ud7ff", "\ue000", "😀"]
    await a.commit(*(Put(a.name("k" + name), name, 0) for name in reversed(names)))
    everything = ["k" + name for name in names]

    async def gives(what: str, expected: list[str], prefix: str = "k", **how: Any) -> None:
        case.equal(await _keys(a, prefix, **how), expected, what)

    calls: list[Coroutine[Any, Any, Any]] = [
        gives(
            f"keys that begin with k{prefix!r}",
            [k for k in everything if k[1:].startswith(prefix)],
            "k" + prefix,
        )
        for prefix in names
    ]
    for limit in (1, 3, 100):
        calls += [
            gives(f"keys in the order of their bytes, {limit} on a page", everything, limit=limit),
            gives(
                f"the same backwards, {limit} on a page",
                everything[::-1],
                limit=limit,
                reverse=True,
            ),
        ]
    for after, reverse, expected in (
        ("ka/", False, everything[3:]),
        ("ka/", True, ["ka", "k0", "k"]),
        ("kab", False, everything[6:]),
        ("j", True, []),
        ("l", False, []),
    ):
        what = f"keys {'before' if reverse else 'after'} {after!r}"
        calls.append(gives(what, expected, after=after, reverse=reverse))
    calls += [
        refused(case, a.store.scan(bad), "invalid_argument", f"the scan {shown(bad)}")
        for bad in (Scan(a.ns, limit=0), Scan("x" * 1025), Scan(a.ns, "x" * 1025))
    ]
    calls.append(refused(case, a.store.get([""]), "invalid_argument", "a get of an empty name"))
    await at_once(*calls)
    await at_once(*(a.put(f"large{n}", "x" * (1024 * 1024)) for n in range(5)))
    found = await _keys(a, "large")
    case.equal(found, [f"large{n}" for n in range(5)], "five documents of 1 MiB, read on")


async def _keys(a: Client, prefix: str, **how: Any) -> list[str]:
    return [found.key.removeprefix(a.ns + "/") for found in await a.scan(prefix, **how)]


async def _race_for_recovery(case: Case, crowd: list[Client], key: str, number: int) -> None:
    found: Document | None = await crowd[0].doc(key)
    revision = found.revision if found else 0
    terms: list[int] = []

    async def recover(client: Client) -> None:
        try:
            terms.append(await client.put(key, str(client.opening.pid), revision, FAR_MS))
        except StoreError as error:
            terms.append(-1 if error.code == "conflict" else -2)

    async with anyio.create_task_group() as tasks:
        for n in range(len(crowd) * 2):
            tasks.start_soon(recover, crowd[(n + number) % len(crowd)])
    expected = [-1] * (len(crowd) * 2 - 1) + [revision + 1]
    case.equal(sorted(terms), expected, "winners of one lapsed document (-1: conflict)")


async def _cost(case: Case, subject: StoreSubject) -> None:
    """The same scan over few and over many live documents, each on a storage of its own.

    Measured in turns, so that whatever else the machine does slows both, and by the quickest of
    each: what the store needs when nobody is in its way.
    """
    few, many = await _filled(subject, FEW), await _filled(subject, MANY)
    few_s = many_s = float("inf")
    began_s = time.monotonic()
    for number in range(SCANS):
        if number >= LEAST_SCANS and time.monotonic() - began_s > MEASURING_S:
            break
        few_s = min(few_s, await _scan_time(case, few))
        many_s = min(many_s, await _scan_time(case, many))
    case.require(
        many_s <= max(SCAN_GROWTH * few_s, few_s + SCAN_FLOOR_S),
        f"a scan for {FEW} lapsed ones at most {SCAN_GROWTH:g} times as long beside {MANY} others "
        f"as beside {FEW}: a cost independent of what has not lapsed",
        f"{few_s * 1000:.2f} ms beside {FEW}, {many_s * 1000:.2f} ms beside {MANY}",
    )


async def _filled(subject: StoreSubject, live: int) -> Client:
    own = subject.apart()
    a = await own.client()
    await a.commit(*(Put(a.name(f"c/due{n}"), n, 0, 1) for n in range(FEW)))
    for start in range(0, live, 1000):
        names = (a.name(f"c/live{n}") for n in range(start, min(start + 1000, live)))
        await a.store.commit(Commit(tuple(Put(name, 1, 0, FAR_MS * 100) for name in names)))
    await own.until(a, await a.store.now() + 2)
    return a


async def _scan_time(case: Case, a: Client) -> float:
    began_s = time.perf_counter()
    found = await a.scan("c/", limit=FEW, lapsed_only=True)
    took_s = time.perf_counter() - began_s
    if len(found) != FEW:
        case.equal(len(found), FEW, "documents that have lapsed")
    return took_s
