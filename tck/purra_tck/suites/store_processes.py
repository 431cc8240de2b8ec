"""STO-006, 017, 020, 021: what several processes see of each other."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import anyio

from purra.contracts.store import ANY, Append, Op, Put
from purra.errors import StoreError
from purra_tck.checks import Checks
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, refused, woken
from purra_tck.suites.store_history import Event, faults
from purra_tck.verdict import Case, RuleViolation

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

WRITERS: Final = 8
EACH: Final = 25
WAKE_S: Final = 0.25
"""The promise of clause 18.9."""
PATIENCE_S: Final = 3.0
SAMPLES: Final = 7
PROCESSES: Final = 8
OPS: Final = 500
MIX_S: Final = 6.0
"""Longest time for the mix of operations; a slow store does fewer of them."""
MIX_OPS: Final = 24
"""Fewest operations of each process that are worth a verdict."""


@CHECKS.rule("STO-006")
@judged
async def nobody_sees_a_gap_that_closes(case: Case, subject: StoreSubject) -> None:
    """A reader that has seen n + 1 never looks at n again. If n appears later, it is lost to it."""
    crowd = await subject.others(4)
    reader = await subject.client()
    given: dict[int, Any] = {}
    writing = WRITERS

    async def write(writer: int) -> None:
        nonlocal writing
        client = crowd[writer % len(crowd)]
        try:
            for n in range(EACH):
                records = tuple([writer, n, part] for part in range(1 + (writer + n) % 2))
                head = await client.append("run", *records, durable=n % 10 == 0)
                for back, record in enumerate(reversed(records)):
                    given[head - back] = record
        finally:
            writing -= 1

    seen: list[Any] = []

    async def tail() -> None:
        while True:
            last = writing == 0
            page = await reader.read("run", len(seen), 50)
            seen.extend(page.records)
            beyond = len(seen) - page.head
            if beyond > 0:
                raise RuleViolation(f"no record beyond the head {page.head}", f"{beyond} records")
            if last and beyond == 0:
                return
            await anyio.sleep(0)  # a store in this process may answer without letting others run

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tail)
        for writer in range(WRITERS):
            tasks.start_soon(write, writer)
    case.equal(sorted(given), list(range(1, len(given) + 1)), "the numbers that writers were given")
    case.saw(f"a reader followed {len(seen)} records of {WRITERS} writers")
    for number, record in enumerate(seen, 1):
        if record != given[number]:
            raise RuleViolation(
                f"record {number} = {given[number]}, as its writer was told",
                f"the reader that followed along saw {record} there: "
                "a later number was visible before an earlier one",
            )
    case.equal(len(seen), len(given), "records that the reader saw")
    whole = await crowd[0].records("run")
    case.require(whole == seen, "the same records at the end", f"{len(whole)}, not {len(seen)}")


@CHECKS.rule("STO-017")
@judged
async def a_cancel_reaches_who_works(case: Case, subject: StoreSubject) -> None:
    """Whoever cancels a run is seldom the process that works on it."""
    subject.need_processes()
    worker, caller, witness = await subject.clients(3)
    case.equal(await worker.claim("lease", "w", 10**7), 1, "the term of the lease holder")
    bound_s = WAKE_S + _slack_s(subject)
    inbox = worker.name("inbox")
    cancel = {"kind": "cancel", "reason": "enough"}
    async with aclosing(worker.store.watch(inbox)) as watch:
        await woken(watch, inbox, PATIENCE_S, "the beginning of a watch")
        sent_s = time.monotonic()
        await caller.append("inbox", cancel, key="cancel", durable=True)
        await _seen_by(worker, watch, inbox, 1, "a cancel by another process")
        took_s = time.monotonic() - sent_s
    case.require(
        took_s <= bound_s,
        f"a durable cancel visible to the lease holder within {bound_s * 1000:.0f} ms",
        f"visible after {took_s * 1000:.0f} ms",
    )
    case.equal(await caller.append("inbox", cancel, key="cancel"), 1, "a cancel sent again")
    for client in (worker, caller, witness):
        found = await client.records("inbox")
        case.equal(found, [cancel], "the inbox, from each of three processes")
    await worker.opening.kill()
    heir = await subject.client()
    found = await heir.records("inbox")
    case.equal(found, [cancel], "the inbox, after the death of the lease holder")


def _slack_s(subject: StoreSubject) -> float:
    """For a machine that does other things; a store that looks once a second still fails."""
    return WAKE_S + 8 * subject.latency_s


async def _seen_by(
    client: Client, watch: AsyncGenerator[str, None], name: str, head: int, what: str
) -> None:
    """Returns when the watcher, woken, could read up to `head`.

    Raises `RuleViolation` if it is not woken, or only before it could read anything new.
    """
    early = 0
    with anyio.move_on_after(PATIENCE_S):
        async for told in watch:
            if told in ("", name):
                page = await client.store.read(name, head - 1, 1)
                if page.head >= head and page.records:
                    return
                early += 1
        raise RuleViolation(f"a watch that goes on until it is closed ({what})", "it ended")
    observed = "no wake-up came"
    if early:
        observed = f"{early} wake-ups came before it could be read, and none after"
    raise RuleViolation(f"a wake-up when {what} can be read, not before", observed)


@CHECKS.rule("STO-020")
@judged
async def watchers_elsewhere_are_woken(case: Case, subject: StoreSubject) -> None:
    """Everything that waits in a kernel waits for this: too early means it looks and goes back to
    sleep, too late that it stands still.
    """
    crowd = await subject.others(2)
    here, there = crowd[0], crowd[-1]
    late_s: list[float] = []
    for number in range(1, SAMPLES + 1):
        late_s.append(await _one_wake(case, here, there, number))
    bound_s = WAKE_S + _slack_s(subject)
    case.require(
        statistics.median(late_s) <= bound_s,
        f"a wake-up within {bound_s * 1000:.0f} ms",
        f"median {statistics.median(late_s) * 1000:.0f} ms of {len(late_s)}",
    )
    await _every_change(case, here, there)
    await _many_at_once(case, here, there)
    await _apart(case, here)
    if subject.storage.processes:
        await _missed(case, here, there)


async def _one_wake(case: Case, here: Client, there: Client, number: int) -> float:
    """Time from the acknowledgement until the slower of two watchers could read it."""
    name = here.name("run")
    ends_s: list[float] = []
    ready = 0
    both = anyio.Event()

    async def follow(client: Client) -> None:
        nonlocal ready
        async with aclosing(client.store.watch(name)) as watch:
            await woken(watch, name, PATIENCE_S, "the beginning of a watch")
            ready += 1
            if ready == 2:
                both.set()
            await _seen_by(client, watch, name, number, "an append by another process")
            ends_s.append(time.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, here)
        tasks.start_soon(follow, there)
        await both.wait()
        case.equal(await here.append("run", number), number, "the head after an append")
        done_s = time.monotonic()
    return max(ends_s) - done_s


async def _every_change(case: Case, here: Client, there: Client) -> None:
    run, doc = here.name("seen"), here.name("doc")
    async with aclosing(there.store.watch(here.ns + "/")) as watch:
        await woken(watch, run, PATIENCE_S, "the beginning of a watch")
        await here.append("seen", 1)
        await woken(watch, run, PATIENCE_S, "an append")
        await here.put("doc", 1)
        await woken(watch, doc, PATIENCE_S, "a put")
        await here.put("doc", 2, 1)
        await woken(watch, doc, PATIENCE_S, "a second put")
        await here.delete("doc", 2)
        await woken(watch, doc, PATIENCE_S, "a delete")
        await here.drop("seen")
        await woken(watch, run, PATIENCE_S, "a drop")
        await here.seal("seen")
        await woken(watch, run, PATIENCE_S, "a seal")
    case.saw("each kind of change was told")


async def _many_at_once(case: Case, here: Client, there: Client) -> None:
    """A watcher that does not keep up may be told less often, but the last change is told."""
    async with aclosing(there.store.watch(here.ns + "/")) as watch:
        await woken(watch, "", PATIENCE_S, "the beginning of a watch")
        for start in range(0, 1500, 500):
            ops = [Put(here.name(f"many/{n}"), n, 0) for n in range(start, start + 500)]
            await here.commit(*ops)
        await here.append("last", 1)
        await woken(watch, here.name("last"), PATIENCE_S, "an append after 1500 puts")
    case.saw("the last of many changes was told")


async def _apart(case: Case, here: Client) -> None:
    """Watches do not disturb each other; one that waits can be closed."""
    async with aclosing(here.store.watch(here.name("a"))) as first:
        await woken(first, here.name("a"), PATIENCE_S, "the beginning of a watch")
        async with aclosing(here.store.watch(here.name("b"))) as second:
            await woken(second, here.name("b"), PATIENCE_S, "the beginning of a second watch")
            await here.append("b", 1)
            await woken(second, here.name("b"), PATIENCE_S, "an append, to the second watch")
            with anyio.move_on_after(0.02):  # it waits now, and is closed while it does
                await woken(second, "no such name", PATIENCE_S, "nothing")
        await here.append("a", 1)
        await woken(first, here.name("a"), PATIENCE_S, "an append after another watch was closed")
    bad = here.store.watch("x" * 1025)
    async with aclosing(bad):
        await refused(case, anext(bad), "invalid_argument", "a watch of a prefix of 1025 bytes")


async def _missed(case: Case, here: Client, there: Client) -> None:
    """What happened while the watcher's process stood still is told when it goes on."""
    name = here.name("missed")
    async with aclosing(there.store.watch(name)) as watch:
        await woken(watch, name, PATIENCE_S, "the beginning of a watch")
        there.opening.pause()
        try:
            await here.append("missed", 1)
            await here.append("missed", 2)
        finally:
            there.opening.resume()
        await _seen_by(there, watch, name, 2, "an append while the watcher's process was paused")
    case.saw("a paused process was told afterwards")


@CHECKS.rule("STO-021")
@judged
async def many_processes_see_one_history(case: Case, subject: StoreSubject) -> None:
    """Appends, puts, reads and refusals of all processes fit one order, and that order fits time.

    It has to hold for whoever looks at the store from outside, not only for each client by itself.
    """
    subject.need_processes()
    crowd = await subject.clients(PROCESSES)
    log: dict[str, list[Event]] = {"run": [], "doc": []}
    until_s = time.monotonic() + MIX_S
    counts: list[int] = []

    async def work(number: int) -> None:
        mix = _Mix(crowd[number], f"p{number}", random.Random(case.seed * 100 + number), log)
        done = 0
        while done < OPS and (done < MIX_OPS or time.monotonic() < until_s):
            await mix.one(done)
            done += 1
        counts.append(done)

    async with anyio.create_task_group() as tasks:
        for number in range(PROCESSES):
            tasks.start_soon(work, number)
    kinds = [event.kind for events in log.values() for event in events]
    told = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    case.saw(f"{PROCESSES} processes, {sum(counts)} operations: {told}")
    last = await crowd[0].records("run")
    for what, wrong in (
        ("appends", faults(log["run"], last)),
        ("puts", faults(log["doc"])),
    ):
        case.require(
            not wrong,
            f"{what} and what was seen of them fit one order of events",
            f"{len(wrong)} do not: {'; '.join(wrong[:3])}" if wrong else f"{what} fit",
        )
    found = await crowd[0].doc("doc")
    writes = [event for event in log["doc"] if event.kind == "wrote"]
    final = max(writes, key=lambda event: event.place)
    observed = found and (found.revision, found.value)
    case.equal(observed, (final.place, final.value), "the document at the end")


class _Mix:
    """One client's part of the history."""

    def __init__(
        self, client: Client, name: str, chance: random.Random, log: dict[str, list[Event]]
    ) -> None:
        self._client = client
        self._name = name
        self._chance = chance
        self._log = log
        self._head = 0
        self._revision = 0

    async def one(self, number: int) -> None:
        value = [self._name, number]
        kind = self._chance.choice(("any", "head", "put", "put", "read", "get", "both"))
        sent_s = time.monotonic()
        if kind == "read":
            after = max(self._head - 1, 0)
            page = await self._client.read("run", after, 100)
            count = after + len(page.records)
            last = page.records[-1] if page.records else None
            self._head = max(count, self._head)
            if count == page.head:
                self._note("run", "read", sent_s, page.head, last)
        elif kind == "get":
            found = await self._client.doc("doc")
            self._revision = found.revision if found else 0
            self._note("doc", "read", sent_s, self._revision, found and found.value)
        else:
            await self._write(kind, value, sent_s)

    async def _write(self, kind: str, value: list[Any], sent_s: float) -> None:
        run, doc = self._client.name("run"), self._client.name("doc")
        ops: list[Op] = []
        if kind != "put":
            ops.append(Append(run, self._head if kind == "head" else ANY, (value,)))
        if kind in ("put", "both"):
            ops.append(Put(doc, value, self._revision))
        try:
            receipt = await self._client.commit(*ops)
        except StoreError as error:
            if error.code != "conflict":
                raise
            if error.detail.get("stream") == run:
                self._head = error.detail["head"]
                self._note("run", "refused", sent_s, self._head)
            else:
                self._revision = error.detail["revision"]
                self._note("doc", "refused", sent_s, self._revision)
            return
        if run in receipt.heads:
            self._head = receipt.heads[run]
            self._note("run", "wrote", sent_s, self._head, value)
        if doc in receipt.revisions:
            self._revision = receipt.revisions[doc]
            self._note("doc", "wrote", sent_s, self._revision, value)

    def _note(self, what: str, kind: Any, sent_s: float, place: int, value: Any = None) -> None:
        event = Event(kind, self._name, sent_s, time.monotonic(), place, value)
        self._log[what].append(event)
