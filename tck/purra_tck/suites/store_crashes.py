"""STO-001, 002, 019, 027, 028: what a death leaves, and what was promised to survive it."""

from __future__ import annotations

import random
import time
from typing import Any, Final

import anyio

from purra.contracts.store import Append, Commit, Delete, Drop, Op, Put, Seal, Touch
from purra.errors import AdapterError
from purra_tck.checks import Checks
from purra_tck.faults.points import Points, Record, unflushed
from purra_tck.faults.tracing import SystemCall
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, part, refused, shown
from purra_tck.verdict import Case, RuleViolation, Untestable

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

POINTS: Final = 7
"""Kill points of one commit that are tried: its first, its last, and some between."""
KILLS: Final = 4
"""Kills at a moment of chance, among commits that follow each other closely."""
BURST: Final = 24
LONGEST_S: Final = 0.006
CALLERS: Final = 64
SHARING: Final = 6
"""How many times the commits of one caller `CALLERS` callers must get through."""
FAR_MS: Final = 10_000_000


@CHECKS.rule("STO-001")
@judged
async def a_commit_is_whole_or_not_there(case: Case, subject: StoreSubject) -> None:
    """Killed before each kind of write or flush of a commit, and at moments of chance.

    A run whose status says done while its events do not is worse than one that is lost.
    """
    subject.need_processes()
    chance = random.Random(case.seed)
    victim = await subject.client()
    steps = 0
    for steps in range(1, 3):
        await _step(victim, steps - 1)
    with Record(victim.opening.pid) as record:
        await _step(victim, steps, durable=True)
    steps += 1
    labels = record.points
    case.saw(f"a commit has {len(labels)} points: {shown(labels)} {record.refused}")
    for number in _sample(chance, len(labels)):
        point = await _killed_at(victim, number, steps)
        victim = await subject.client()
        steps = await _steps(case, victim, steps, steps + 1, f"killed before {point}")
    for _ in range(KILLS):
        acknowledged, after_s = await _killed_in_a_burst(chance, victim, steps)
        victim = await subject.client()
        when = f"killed {after_s * 1000:.2f} ms into a burst"
        steps = await _steps(case, victim, acknowledged, steps + BURST, when)


def _sample(chance: random.Random, count: int) -> list[int]:
    if count <= POINTS:
        return list(range(1, count + 1))
    return sorted({1, count, *chance.sample(range(2, count), POINTS - 2)})


async def _killed_at(victim: Client, number: int, steps: int) -> str:
    """Kills the victim at a point of its next step; gives the label."""
    points = Points(victim.opening.pid or 0, number)
    points.arm()
    try:
        await _step(victim, steps, durable=True)
    except AdapterError:
        pass  # it died, as it should
    finally:
        points.disarm()
    if victim.opening.alive():
        await victim.opening.kill()
    return points.reached or "its answer"


async def _killed_in_a_burst(
    chance: random.Random, victim: Client, steps: int
) -> tuple[int, float]:
    """Kills the victim among many steps; gives how many were acknowledged, and the delay."""
    acknowledged = steps
    begun = anyio.Event()
    after_s = chance.uniform(0, LONGEST_S)

    async def send(number: int) -> None:
        nonlocal acknowledged
        try:
            await _step(victim, number, durable=number % 5 == 0)
        except AdapterError:
            return
        acknowledged = max(acknowledged, number + 1)
        begun.set()

    async with anyio.create_task_group() as tasks:
        for number in range(steps, steps + BURST):
            tasks.start_soon(send, number)
        await begun.wait()
        await anyio.sleep(after_s)  # the moment of the kill
        await victim.opening.kill()
    return acknowledged, after_s


async def _step(client: Client, number: int, *, durable: bool = False) -> None:
    """Two streams, a document replaced, another born and an older one deleted: all or nothing."""
    record = {"step": number, "text": "x" * (number % 7 * 700)}
    ops: list[Op] = [
        Append(client.name("run"), number, (record,)),
        Append(client.name("audit"), number, (number,)),
        Put(client.name("status"), number + 1, number),
        Put(client.name(f"step/{number}"), number, 0),
    ]
    if number:
        ops.append(Delete(client.name(f"step/{number - 1}"), 1))
    key = (client.name("run"), f"seq:{number}")
    receipt = await client.commit(*ops, key=key, durable=durable)
    heads = {client.name("run"): number + 1, client.name("audit"): number + 1}
    if dict(receipt.heads) != heads:
        raise RuleViolation(f"the receipt of step {number}: {heads}", shown(receipt.heads))


async def _steps(case: Case, client: Client, least: int, most: int, when: str) -> int:
    """How many steps are there. Demands that each is there as a whole."""
    run = [part(record, "step") for record in await client.records("run")]
    audit = await client.records("audit")
    status, *marks = await client.docs("status", *(f"step/{n}" for n in range(most + 1)))
    told = (status.value, status.revision) if status else (0, 0)
    left = [n for n, mark in enumerate(marks) if mark]
    count = len(run)
    whole = (
        run == audit == list(range(count))
        and told == (count, count)
        and left == ([count - 1] if count else [])
    )
    case.require(
        whole and least <= count <= most,
        f"{least} to {most} whole commits, {when}: before or after, nothing between",
        f"{count} events, {len(audit)} in the second stream, status {told}, marks {left}",
    )
    if count:
        await _step(client, count - 1)  # its key gives the first receipt again
        case.equal(await client.head("run"), count, f"the head after a repeated key, {when}")
    return count


@CHECKS.rule("STO-002")
@judged
async def what_was_acknowledged_survives(case: Case, subject: StoreSubject) -> None:
    """The kernel acts on an acknowledgement. The process that gave it may die the moment after."""
    subject.need_processes()
    a = await subject.client()
    await a.append("full", 1, 2)
    await a.put("old", 1)
    await a.put("lease", 1, 0, FAR_MS)
    writes: list[tuple[str, Op, bool]] = [
        ("an append", Append(a.name("run"), 0, ("x",)), False),
        ("a durable append", Append(a.name("run"), 1, ("y",)), True),
        ("a put", Put(a.name("new"), "v", 0), False),
        ("a touch", Touch(a.name("lease"), 1, 0), False),
        ("a delete", Delete(a.name("old"), 1), False),
        ("a drop", Drop(a.name("full")), False),
        ("a seal", Seal(a.name("run")), False),
    ]
    expected = {"full": [1, 2], "run": [], "new": None, "lease": FAR_MS, "old": 1, "sealed": False}
    for (what, op, durable), change in zip(writes, _CHANGES, strict=True):
        await a.commit(op, durable=durable)
        await a.opening.kill()
        expected |= change
        a = await subject.client()
        case.equal(
            await _kept(a), expected, f"what is there after {what} and SIGKILL of the writer"
        )


_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"run": ["x"]},
    {"run": ["x", "y"]},
    {"new": "v"},
    {"lease": 0},
    {"old": None},
    {"full": []},
    {"sealed": True},
)


async def _kept(a: Client) -> dict[str, Any]:
    new, lease, old = await a.docs("new", "lease", "old")
    page, full = await a.read("run", 0), await a.read("full", 0)
    return {
        "full": list(full.records),
        "run": list(page.records),
        "new": new and new.value,
        "lease": lease and (FAR_MS if lease.expires_ms else 0),
        "old": old and old.value,
        "sealed": page.sealed,
    }


@CHECKS.rule("STO-019")
@judged
async def what_is_unknown_stays_unknown(case: Case, subject: StoreSubject) -> None:
    """An effect was claimed and its owner died. Only a person may say what became of it; a store
    that tidies up at its start would let it happen twice.
    """
    subject.need_processes()
    a = await subject.client()
    claim = {"kind": "tool.call.claimed", "call": "c1", "effect": "world_write"}
    ops = (Append(a.name("run"), 0, (claim,)), Put(a.name("claim/c1"), {"owner": "a"}, 0))
    await a.commit(*ops, durable=True)
    await a.put("claim/lease", {"owner": "a"}, 0, subject.life_ms)
    end_ms = await a.store.now() + subject.life_ms
    await a.opening.kill()
    for opening in range(2):
        b = await subject.client()
        await subject.until(b, end_ms + 1)
        when = f"at opening {opening + 1} after the death of the owner"
        case.equal(await b.records("run"), [claim], f"the journal {when}")
        mark, lease = await b.docs("claim/c1", "claim/lease")
        case.equal(mark and (mark.value, mark.revision, mark.lapsed),
                   ({"owner": "a"}, 1, False), f"the claim {when}")  # fmt: skip
        case.equal(lease and (lease.revision, lease.lapsed), (1, True), f"the lease {when}")
        call = b.put("claim/c1", {"owner": "b"}, 0)
        await refused(case, call, "conflict", f"a second claim of the effect {when}")
        await b.opening.kill()
    b = await subject.client()
    case.equal(await b.put("claim/c1", {"decided": "committed"}, 1), 2, "the decided claim")


@CHECKS.rule("STO-027")
@judged
async def what_is_durable_was_flushed(case: Case, subject: StoreSubject) -> None:
    """Loss of power cannot be tried; that the files were flushed before the answer can be seen."""
    subject.need_processes()
    a = await subject.client()
    await a.append("run", "first", durable=True)
    plan = [(True,), (True, True), (False, True), (False, False, True)]
    written = 1
    seen = 0
    for kinds in plan:
        with Record(a.opening.pid) as record:
            for durable in kinds:
                await a.append("run", {"n": written, "pad": "x" * 3000}, durable=durable)
                written += 1
        if record.refused:
            raise Untestable(f"the process cannot be traced: {record.refused}", "run it as root")
        case.equal(await a.head("run"), written, "the head after what was acknowledged")
        seen += len(record.points)
        left = unflushed(record.calls, _answers)
        case.require(
            not left,
            f"everything written is flushed when a durable commit is acknowledged ({kinds})",
            f"written and not flushed: {', '.join(left)}; it did {shown(record.points)}",
        )
        flushed = any(call.name.startswith(("fsync", "fdatasync", "msync", "sync"))
                      for call in record.calls)  # fmt: skip
        if seen:
            case.require(
                flushed, "a flush before a durable commit is acknowledged", shown(record.points)
            )
    if not seen:
        raise Untestable("its files are not on this machine: nothing was written", "")
    await a.append("run", "not flushed")
    await a.opening.kill()
    b = await subject.client()
    case.equal(await b.head("run"), written + 1, "the head after SIGKILL, the last not durable")


def _answers(call: SystemCall) -> bool:
    return call.path.startswith("socket:") or call.name.startswith("send")


@CHECKS.rule("STO-028")
@judged
async def callers_share_a_flush(case: Case, subject: StoreSubject) -> None:
    """A flush is the dearest part of a commit. Commits that wait at the same time need only one."""
    subject.need_processes()
    a = await subject.client()
    count = 0

    async def one() -> None:
        nonlocal count
        count += 1
        name = a.name(f"run{count}")
        op = Append(name, 0, (count,))
        await a.store.commit(Commit((op,), key=(name, "k"), durable=True))

    async def together(callers: int, rounds: int) -> float:
        began_s = time.perf_counter()
        for _ in range(rounds):
            async with anyio.create_task_group() as tasks:
                for _ in range(callers):
                    tasks.start_soon(one)
        return callers * rounds / (time.perf_counter() - began_s)

    await together(CALLERS, 1)
    alone, crowd = await together(1, 24), await together(CALLERS, 4)
    for number in (1, count // 2, count):
        case.equal(await a.records(f"run{number}"), [number], f"what caller {number} wrote")
    case.saw(f"{alone:.0f} commits/s of one caller, {crowd:.0f} of {CALLERS}")
    if crowd >= SHARING * alone:
        return
    with Record(a.opening.pid) as record:
        await together(CALLERS, 1)
    flushes = sum(call.name in ("fsync", "fdatasync", "msync") for call in record.calls)
    case.require(
        not record.refused and flushes * SHARING <= CALLERS,
        f"{CALLERS} callers get through {SHARING} times the commits of one, or share their flushes",
        f"{crowd / alone:.1f} times; {flushes} flushes for {CALLERS} commits {record.refused}",
    )
