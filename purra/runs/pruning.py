"""Removing runs that have ended: their journals, drafts, inboxes and leases (tables, store keys).

What a store keeps by contract stays: that a stream existed, its head and its seal, so that no
number is used twice; and blobs, which have no owner. A session's record of a run goes when the last
run of the session goes, because the records are one stream; until then later runs still see them.

Every step is one commit that names what it has seen, so whoever works on the store meanwhile loses
nothing: a run that somebody has just submitted in a session keeps the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from purra.contracts.store import Commit, Delete, Drop, Op, Store
from purra.errors import PurraError, StoreError
from purra.journal.events import TERMINAL, event_from_value
from purra.runs import directory, keys, wakes
from purra.runs.directory import RunInfo
from purra.runs.reader import documents, head_of

__all__ = ["ENDED", "EndedRun", "ended_runs", "forget_sessions", "prune"]

ENDED: Final = ("completed", "failed", "canceled")
"""Statuses of runs that have ended: no other is ever removed."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run and when it ended, by its last owner's clock."""

    info: RunInfo
    ended_ms: int


async def ended_runs(
    store: Store, statuses: Collection[str] = ENDED, before_ms: int | None = None
) -> AsyncIterator[EndedRun]:
    """Runs that ended so, before `before_ms` (None: whenever), oldest first."""
    async for lease in documents(store, keys.journal("")):
        info = directory.info(lease)
        if info.status not in ENDED or info.status not in statuses:
            continue
        ended_ms = await _ended_ms(store, info.run)
        if ended_ms is not None and (before_ms is None or ended_ms < before_ms):
            yield EndedRun(info, ended_ms)


async def prune(store: Store, run: str) -> bool:
    """Removes a run, durably. False if it is not there any more.

    Raises `PurraError(invalid_argument)` if it has not ended.
    """
    lease, wake = await store.get([keys.lease(run), keys.wake(run)])
    if lease is None:
        return False
    if await _ended_ms(store, run) is None:
        hint = "only what has ended can be removed; `purra runs cancel` ends it"
        raise PurraError("invalid_argument", "has not ended", where=f"run {run}", hint=hint)
    streams = (keys.journal(run), keys.output(run), keys.inbox(run))
    ops: list[Op] = [Drop(stream) for stream in streams]
    ops += [Delete(lease.key, lease.revision), *wakes.taken(wake)]
    return await _done(store, Commit(tuple(ops), durable=True))


async def forget_sessions(store: Store, sessions: Iterable[str]) -> tuple[str, ...]:
    """Removes the records of those sessions that have no run any more, durably; which those are."""
    names = [session for session in sorted(set(sessions)) if session]
    turns = await store.get([keys.turn(session) for session in names]) if names else ()
    # Only now: a run that joins later changes the turn, and then that session's commit is refused.
    alive = {directory.info(lease).session async for lease in documents(store, keys.journal(""))}
    forgotten = []
    for session, turn in zip(names, turns, strict=True):
        if turn is None or session in alive:
            continue
        ops = (Drop(keys.session(session)), Delete(turn.key, turn.revision))
        if await _done(store, Commit(ops, durable=True)):
            forgotten.append(session)
    return tuple(forgotten)


async def _ended_ms(store: Store, run: str) -> int | None:
    """When the run's last event happened, if that has ended it."""
    stream = keys.journal(run)
    head = await head_of(store, stream)
    page = await store.read(stream, max(head - 1, 0), 1)
    if not page.sealed or not page.records:
        return None
    last = event_from_value(page.records[-1])
    return last.at_ms if last.kind in TERMINAL else None


async def _done(store: Store, commit: Commit) -> bool:
    """False if something has changed since it was looked at."""
    try:
        await store.commit(commit)
    except StoreError as error:
        if error.code != "conflict":
            raise
        return False
    return True
