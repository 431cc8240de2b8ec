"""STO-011 to 015, 018: documents, their revisions and lives, leases and fences."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

import anyio

from purra.contracts.store import ANY, Append, Commit, Delete, Document, Op, Put, Scan, Seal, Touch
from purra.errors import AdapterError, StoreError
from purra_tck.checks import Checks
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, part, refused, shown
from purra_tck.verdict import Case, RuleViolation, Untestable

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

PROCESSES: Final = 4
RACERS: Final = 16
TRIES: Final = 4
"""How often a life is doubled before the machine counts as too slow to judge the store on."""
FAR_MS: Final = 1_000_000
MANY: Final = 20_000
FEW: Final = 20
SCANS: Final = 25
SCAN_GROWTH: Final = 3.0
"""A scan of a thousand times the documents may take this much longer. One that looks at each takes
thirty times as long where that is cheapest, in memory."""
SCAN_FLOOR_S: Final = 0.0005
"""Below this a scan is as good as free, whatever the ratio."""


@CHECKS.rule("STO-011")
@judged
async def a_stale_revision_is_a_conflict(case: Case, subject: StoreSubject) -> None:
    """Two who read one revision must not both write the next; the loser is told where it stands."""
    crowd = await subject.others(PROCESSES)
    a = crowd[0]
    key = a.name("doc")
    for n in range(3):
        case.equal(await a.put("doc", n, n), n + 1, f"the revision after {n + 1} puts")
    for revision in (0, 1, 2, 4):
        call = crowd[-1].put("doc", "x", revision)
        now = {"key": key, "revision": 3}
        await refused(case, call, "conflict", f"a put at revision {revision} of 3", now)
    await refused(case, a.delete("doc", 2), "conflict", "a delete at revision 2 of 3", now)
    await refused(case, a.touch("doc", 2, 9), "conflict", "a touch at revision 2 of 3", now)
    call = a.append("run", "x", require={key: 2})
    await refused(case, call, "conflict", "a commit that requires revision 2 of 3", now)
    await a.delete("doc", 3)
    case.equal(await a.doc("doc"), None, "a deleted document")
    absent = {"key": key, "revision": 0}
    for revision in (3, 4):
        call = a.put("doc", "x", revision)
        await refused(case, call, "conflict", f"a put at {revision} of what is deleted", absent)
    await refused(case, a.delete("doc", 3), "conflict", "a second delete", absent)
    case.equal(await a.put("doc", "new", 0), 4, "the revision of a document that was deleted")
    ops: tuple[Op, ...] = (Put(key, "b", 4), Touch(key, 5, FAR_MS), Delete(key, 5), Put(key, 1, 0))
    receipt = await a.commit(*ops)
    case.equal(dict(receipt.revisions), {key: 6}, "the receipt of ops that see each other")
    await _absence(case, a)
    found = await a.docs("gone", "doc", "gone", "doc")
    case.equal([d and d.revision for d in found], [None, 6, None, 6], "documents in asked order")
    for round_number in range(3):
        await _race_for_a_revision(case, crowd, round_number)


async def _absence(case: Case, a: Client) -> None:
    """`require` of 0: the key must be absent."""
    doc = a.name("gone")
    await a.append("run", "a", require={doc: 0})
    await a.put("gone", 1)
    call = a.append("run", "b", require={doc: 0})
    await refused(case, call, "conflict", "a commit that requires an absence that is none")
    await a.delete("gone", 1)
    call = a.append("run", "c", require={doc: 1})
    await refused(case, call, "conflict", "a commit that requires what was deleted")
    case.equal(await a.records("run"), ["a"], "the records of the commits that were refused")
    for bad in ({doc: -1}, {doc: True}, {"": 1}):
        call = a.append("run", "d", require=bad)
        await refused(case, call, "invalid_argument", f"a commit that requires {shown(bad)}")


async def _race_for_a_revision(case: Case, crowd: list[Client], round_number: int) -> None:
    key = f"raced{round_number}"
    await crowd[0].put(key, "start")
    won: list[int] = []
    lost: list[Any] = []

    async def race(n: int) -> None:
        client = crowd[n % len(crowd)]
        try:
            await client.put(key, n, 1)
        except StoreError as error:
            lost.append((error.code, error.detail.get("revision")))
        else:
            won.append(n)

    async with anyio.create_task_group() as tasks:
        for n in range(RACERS):
            tasks.start_soon(race, n)
    case.equal(len(won), 1, f"winners among {RACERS} who replace one revision")
    case.equal(lost, [("conflict", 2)] * (RACERS - 1), "what the losers are told")
    found = await crowd[-1].doc(key)
    case.equal(found and (found.value, found.revision), (won[0], 2), "the document of the winner")


@CHECKS.rule("STO-012")
@judged
async def a_lease_has_one_owner(case: Case, subject: StoreSubject) -> None:
    """The lease is what keeps two kernels from working on one run."""
    subject.need_processes()
    crowd = await subject.clients(PROCESSES)
    a, b = crowd[0], crowd[1]
    case.equal(await a.claim("lease", "a", FAR_MS), 1, "the term of the first claim")
    case.equal(await b.claim("lease", "b", FAR_MS), 0, "the term of a claim by another process")
    taken = {"key": a.name("lease"), "revision": 1}
    call = b.put("lease", {"owner": "b"}, 0, FAR_MS)
    await refused(case, call, "conflict", "a put by another process as if there were none", taken)
    seen = await b.doc("lease")
    case.equal(seen and part(seen.value, "owner"), "a", "the owner that another process sees")
    await a.append("run", "mine", require=a.fence(lease=1))
    for round_number in range(3):
        key = f"free{round_number}"
        terms: list[int] = []

        async def take(client: Client, key: str = key, terms: list[int] = terms) -> None:
            terms.append(await client.claim(key, str(client.opening.pid), FAR_MS))

        async with anyio.create_task_group() as tasks:
            for n in range(RACERS):
                tasks.start_soon(take, crowd[n % len(crowd)])
        case.equal(sorted(terms), [0] * (RACERS - 1) + [1], "terms of those who claim at once")
    await a.delete("lease", 1)
    case.equal(await b.claim("lease", "b", FAR_MS), 2, "the term after a release")
    case.equal(await a.claim("lease", "a", FAR_MS), 0, "the term of who released it, too late")


@CHECKS.rule("STO-013")
@judged
async def a_life_ends_in_time(case: Case, subject: StoreSubject) -> None:
    """Not before, or two work at once; not never, or a dead owner keeps its run for good."""
    a = await subject.client()
    life_ms = subject.life_ms
    for number in range(TRIES):
        if await _one_life(case, subject, a, f"lease{number}", life_ms):
            break
        life_ms *= 2
    else:
        raise Untestable(f"no dozen calls fit into {life_ms / 2:g} ms: the machine is too busy")
    key = f"lease{number}"
    name = a.name(key)
    await refused(
        case,
        a.touch(key, 1, FAR_MS),
        "conflict",
        "a touch of a lapsed document",
        {"key": name, "revision": 1, "lapsed": True},
    )
    call = a.append("run", "late", require={name: 1})
    await refused(case, call, "lapsed", "a fence that has lapsed", {"key": name, "revision": 1})
    case.equal(await a.records("run"), ["owned"], "the records of the run")
    case.equal(await a.put(key, {"owner": "b"}, 1, FAR_MS), 2, "the term of the takeover")
    call = a.touch(key, 1, FAR_MS)
    taken = {"key": name, "revision": 2}
    await refused(case, call, "conflict", "a touch by who lost the lease", taken)
    found = await a.doc(key)
    case.require(
        found is not None and (found.lapsed, part(found.value, "owner")) == (False, "b"),
        "the new owner's lease, alive",
        shown(found),
    )
    await a.put("wake", None, 0, 1)
    await subject.until(a, await a.store.now() + 1)
    await a.delete("wake", 1)
    case.equal(await a.doc("wake"), None, "a lapsed document that was deleted")
    await _endless(case, subject, a)


async def _one_life(case: Case, subject: StoreSubject, a: Client, key: str, life_ms: int) -> bool:
    """A lease from its beginning to its lapse. False if the machine was too slow to judge it."""
    name = a.name(key)
    before_ms = await a.store.now()
    await a.put(key, {"owner": "a"}, 0, life_ms)
    first = await a.doc(key)
    after_ms = await a.store.now()
    if first is None:
        raise RuleViolation("the document that was put", "none")
    case.require(
        before_ms + life_ms <= first.expires_ms <= after_ms + life_ms,
        f"an end {life_ms} ms after the commit",
        f"{first.expires_ms - before_ms} ms after it began",
    )
    try:
        await a.append("run", "owned", require={name: 1}, key="owned")
        revision = await a.touch(key, 1, life_ms)
    except StoreError as error:
        if await a.store.now() >= first.expires_ms:
            return False
        raise RuleViolation(
            "a lease that its owner can use and touch while it lives", f"{error.code}: {error}"
        ) from error
    second = await a.doc(key)
    lapsed = await a.scan(lapsed_only=True)
    if await a.store.now() >= first.expires_ms:
        return False
    case.equal(revision, 1, "the revision after a touch")
    case.require(
        second is not None and (second.revision, second.lapsed) == (1, False),
        "revision 1, alive, after a touch",
        shown(second),
    )
    case.equal([d.key for d in lapsed], [], "lapsed documents, none having lapsed")
    expires_ms = second.expires_ms if second else 0
    case.require(
        expires_ms >= first.expires_ms, "an end that a touch puts off", f"{first}, then {second}"
    )
    await _watch_the_end(case, subject, a, key, expires_ms)
    return True


async def _watch_the_end(
    case: Case, subject: StoreSubject, a: Client, key: str, expires_ms: int
) -> None:
    """Looks again and again: alive before the end, lapsed after it, by the store's own clock."""
    looks = 0
    while True:
        before_ms = await a.store.now()
        found = await a.doc(key)
        after_ms = await a.store.now()
        looks += 1
        if found is None:
            raise RuleViolation("a document that stays readable as lapsed", "none")
        if after_ms < expires_ms:
            case.require(
                not found.lapsed, f"alive {expires_ms - after_ms} ms before its end", "lapsed"
            )
        if before_ms >= expires_ms:
            case.require(
                found.lapsed,
                f"lapsed at its end, {expires_ms}: takeover after TTL",
                f"alive {before_ms - expires_ms} ms after it, after {looks} looks",
            )
            value = (part(found.value, "owner"), found.revision, found.expires_ms)
            case.equal(value, ("a", 1, expires_ms), "the lapsed document")
            return
        left_ms = expires_ms - after_ms
        await subject.until(a, after_ms + (1 if left_ms < 10 else left_ms // 2))


async def _endless(case: Case, subject: StoreSubject, a: Client) -> None:
    life_ms = subject.life_ms
    await a.put("plain", 1)
    await a.put("freed", 1, 0, 4 * life_ms)
    await a.touch("freed", 1, 0)
    await a.put("short", 1, 0, life_ms)
    end_ms = await a.store.now() + life_ms
    await subject.until(a, end_ms + 1)
    ends = [d and (d.lapsed, d.expires_ms) for d in await a.docs("plain", "freed")]
    case.equal(ends, [(False, 0), (False, 0)], "documents without an end")
    lapsed = [d.key for d in await a.scan("short", lapsed_only=True)]
    case.equal(lapsed, [a.name("short")], "what has lapsed beside them")


@CHECKS.rule("STO-014")
@judged
async def only_the_owner_releases(case: Case, subject: StoreSubject) -> None:
    """Whoever does not know the present term can neither end a lease nor lengthen it."""
    crowd = await subject.others(2)
    a, b = crowd[0], crowd[-1]
    life_ms = subject.life_ms
    case.equal(await a.claim("lease", "a", FAR_MS), 1, "the term of the first claim")
    name = a.name("lease")
    mine = {"key": name, "revision": 1}
    for revision in (2, 7):
        what = f"at term {revision} of 1"
        await refused(case, b.delete("lease", revision), "conflict", f"a release {what}", mine)
        put = b.put("lease", {"owner": ""}, revision)
        await refused(case, put, "conflict", f"a release by a put {what}", mine)
        await refused(case, b.touch("lease", revision, 1), "conflict", f"a touch {what}", mine)
    fenced = b.commit(Delete(name, 1), require=b.fence(lease=2))
    await refused(case, fenced, "conflict", "a release behind another's fence", mine)
    found = await a.doc("lease")
    case.equal(
        found and (part(found.value, "owner"), found.revision), ("a", 1), "the lease after it"
    )
    await a.append("run", "mine", require=a.fence(lease=1))
    await a.delete("lease", 1)
    case.equal(await b.claim("lease", "b", life_ms), 2, "the term of the next claim")
    theirs = {"key": name, "revision": 2}
    ops: dict[str, Op] = {
        "a release": Delete(name, 1),
        "a put": Put(name, {"owner": ""}, 1),
        "a touch": Touch(name, 1, 1),
    }
    for what, op in ops.items():
        await refused(case, a.commit(op), "conflict", f"{what} with an old term", theirs)
    await subject.until(b, await b.store.now() + life_ms)
    for what, op in ops.items():
        what = f"{what} with an old term of a lapsed lease"
        await refused(case, a.commit(op), "conflict", what, theirs)
    case.equal(await a.claim("lease", "a", FAR_MS), 3, "the term of the takeover")


@CHECKS.rule("STO-015")
@judged
async def an_old_term_writes_nothing(case: Case, subject: StoreSubject) -> None:
    """A paused owner does not know that it was replaced. Nothing but the store can stop its writes,
    also those that were on their way when it was paused.
    """
    a, b = await subject.others(2)
    life_ms = subject.life_ms
    case.equal(await a.claim("lease", "a", life_ms), 1, "the term of the first claim")
    await a.put("doc", "kept")
    await a.put("other", "kept", 0, FAR_MS)
    end_ms = await a.store.now() + life_ms
    paused = subject.storage.processes
    if paused:
        a.opening.pause()
    refusals: dict[str, str] = {}
    try:
        async with anyio.create_task_group() as tasks:
            if paused:
                for what, ops in _writes(a, "paused").items():
                    tasks.start_soon(_try_write, a, what, ops, refusals)
            await subject.until(b, end_ms + 1)
            if not paused:
                call = a.append("run", "late", require=a.fence(lease=1))
                await refused(case, call, "lapsed", "a write under a lapsed lease")
            case.equal(await b.claim("lease", "b", FAR_MS), 2, "the term of the takeover")
            await b.append("run", "theirs", require=b.fence(lease=2))
            if paused:
                a.opening.resume()
    finally:
        if paused:
            a.opening.resume()
    for what, ops in _writes(a, "late").items():
        await _try_write(a, what, ops, refusals)
    case.saw(f"{len(refusals)} writes of the old term, {'paused' if paused else 'in one process'}")
    for what, told in refusals.items():
        case.equal(told, "conflict 2", f"the refusal of {what} under term 1 of 2")
    case.equal(await b.records("run"), ["theirs"], "the records of the run")
    found = [d and d.value for d in await b.docs("doc", "other", "new")]
    case.equal(found, ["kept", "kept", None], "the documents beside it")
    page = await b.store.read(b.name("out"), 0, 1)
    case.equal(page.sealed, False, "whether the old owner sealed a stream")
    await b.delete("lease", 2)
    call = b.append("run", "late", require=b.fence(lease=2))
    await refused(case, call, "conflict", "a write after the release")
    case.equal(await a.claim("lease", "a", FAR_MS), 3, "the term after a release")
    case.equal(await a.append("run", "mine", require=a.fence(lease=3)), 2, "the head under term 3")


def _writes(a: Client, tag: str) -> dict[str, tuple[Op, ...]]:
    """One of each kind of write, by what it is."""
    return {
        f"an append ({tag})": (Append(a.name("run"), ANY, (tag,)),),
        f"a put ({tag})": (Put(a.name("doc"), tag, 1),),
        f"a birth ({tag})": (Put(a.name("new"), tag, 0),),
        f"a touch ({tag})": (Touch(a.name("other"), 1, 1),),
        f"a delete ({tag})": (Delete(a.name("doc"), 1),),
        f"a seal ({tag})": (Seal(a.name("out")),),
        f"an empty commit ({tag})": (),
        f"a heartbeat ({tag})": (Touch(a.name("lease"), 1, FAR_MS),),
    }


async def _try_write(a: Client, what: str, ops: tuple[Op, ...], told: dict[str, str]) -> None:
    try:
        await a.commit(*ops, require=a.fence(lease=1))
    except StoreError as error:
        told[what] = f"{error.code} {error.detail.get('revision')}"
    except AdapterError as error:
        told[what] = f"{error.code}: {error}"
    else:
        told[what] = "it was done"


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
    for name in reversed(names):
        await a.put("k" + name, name)
    everything = ["k" + name for name in names]
    for limit in (1, 3, 100):
        found = await _keys(a, "k", limit=limit)
        case.equal(found, everything, f"keys in the order of their bytes, {limit} on a page")
        back = await _keys(a, "k", limit=limit, reverse=True)
        case.equal(back, everything[::-1], f"the same backwards, {limit} on a page")
    for prefix in names:
        expected = ["k" + name for name in names if name.startswith(prefix)]
        case.equal(await _keys(a, "k" + prefix), expected, f"keys that begin with k{prefix!r}")
    for after, reverse, expected in (
        ("ka/", False, everything[3:]),
        ("ka/", True, ["ka", "k0", "k"]),
        ("kab", False, everything[6:]),
        ("j", True, []),
        ("l", False, []),
    ):
        found = await _keys(a, "k", after=after, reverse=reverse)
        case.equal(found, expected, f"keys {'before' if reverse else 'after'} {after!r}")
    for bad in (Scan(a.ns, limit=0), Scan("x" * 1025), Scan(a.ns, "x" * 1025)):
        await refused(case, a.store.scan(bad), "invalid_argument", f"the scan {shown(bad)}")
    await refused(case, a.store.get([""]), "invalid_argument", "a get of an empty name")
    for n in range(5):
        await a.put(f"large{n}", "x" * (1024 * 1024))
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
    """The same scan over few and over many live documents, on a storage of its own."""
    own = subject.apart()
    a = await own.client()
    for n in range(FEW):
        await a.put(f"c/due{n}", n, 0, 1)
    await _fill(a, 0, FEW)
    await own.until(a, await a.store.now() + 2)
    few_s = await _scan_time(case, a)
    await _fill(a, FEW, MANY)
    many_s = await _scan_time(case, a)
    case.require(
        many_s <= max(SCAN_GROWTH * few_s, few_s + SCAN_FLOOR_S),
        f"a scan for {FEW} lapsed ones at most {SCAN_GROWTH:g} times as long beside {MANY} others "
        f"as beside {FEW}: a cost independent of what has not lapsed",
        f"{few_s * 1000:.2f} ms beside {FEW}, {many_s * 1000:.2f} ms beside {MANY}",
    )


async def _fill(a: Client, first: int, end: int) -> None:
    for start in range(first, end, 1000):
        names = (a.name(f"c/live{n}") for n in range(start, min(start + 1000, end)))
        await a.store.commit(Commit(tuple(Put(name, 1, 0, FAR_MS * 100) for name in names)))


async def _scan_time(case: Case, a: Client) -> float:
    """The quickest quarter of several: what the store needs when nobody else is in its way."""
    times_s: list[float] = []
    for _ in range(SCANS):
        began_s = time.perf_counter()
        found = await a.scan("c/", limit=FEW, lapsed_only=True)
        times_s.append(time.perf_counter() - began_s)
        if len(found) != FEW:
            case.equal(len(found), FEW, "documents that have lapsed")
    return statistics.mean(sorted(times_s)[: SCANS // 4])
