"""STO-011: documents and their revisions."""

from __future__ import annotations

from typing import Any, Final

import anyio

from purra.contracts.store import Delete, Op, Put, Touch
from purra.errors import StoreError
from purra_tck.checks import Checks
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, refused, shown
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

PROCESSES: Final = 4
RACERS: Final = 16
FAR_MS: Final = 1_000_000


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
