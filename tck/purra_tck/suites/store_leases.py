"""STO-012 to 015: leases: one owner, a life that ends, a term that fences."""

from __future__ import annotations

from typing import Final

import anyio

from purra.contracts.store import ANY, Append, Delete, Op, Put, Seal, Touch
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
