"""The executable specification with one hook changed: stores in the kit's process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio

from purra.contracts.store import (
    Append,
    Commit,
    Delete,
    Document,
    Page,
    Put,
    Receipt,
    Scan,
    ScanPage,
    Seal,
    Store,
    Touch,
)
from purra.errors import StoreError
from purra.stores.memory import MemoryStore
from purra.values import freeze

__all__ = [
    "AnyoneReleases",
    "BurnsSequence",
    "FirstWinsSilent",
    "FixedIds",
    "FullScan",
    "GlobalKeys",
    "IgnoresCursor",
    "JsonFloatKeys",
    "LateAppendOk",
    "NeverExpires",
    "NeverExpiresAnyoneReleases",
    "NotifyBeforeCommit",
    "OffsetCursor",
    "PrefixCommit",
    "RecoversLiveRun",
    "TouchBumpsRevision",
    "TruncatesBlob",
    "UnlockedKeys",
    "flaky",
]


class PrefixCommit(MemoryStore):
    """Carries a commit out op by op: what stands before the refused one stays."""

    async def commit(self, commit: Commit) -> Receipt:
        heads: dict[str, int] = {}
        revisions: dict[str, int] = {}
        for number, op in enumerate(commit.ops):
            key = commit.key and (commit.key[0], f"{commit.key[1]}#{number}")
            done = await super().commit(replace(commit, ops=(op,), key=key))
            heads.update(done.heads)
            revisions.update(done.revisions)
        return Receipt(heads, revisions)


class BurnsSequence(MemoryStore):
    """Takes the number before it looks whether the append may go on."""

    async def commit(self, commit: Commit) -> Receipt:
        try:
            return await super().commit(commit)
        except StoreError:
            for op in commit.ops:
                if isinstance(op, Append) and op.stream in self._streams:
                    self._streams[op.stream].dropped += 1
            raise


class IgnoresCursor(MemoryStore):
    """A journal that begins at the beginning, whatever the cursor says."""

    async def read(self, stream: str, after: int, limit: int) -> Page:
        await super().read(stream, after, limit)
        return await super().read(stream, 0, limit)


class OffsetCursor(MemoryStore):
    """Takes a cursor for a place among the records that are left."""

    async def read(self, stream: str, after: int, limit: int) -> Page:
        await super().read(stream, after, limit)
        page = await super().read(stream, 0, 10**6)
        return replace(page, records=page.records[after : after + limit])


class UnlockedKeys(MemoryStore):
    """Looks for the key, waits for something, and writes: two who come together both write."""

    async def commit(self, commit: Commit) -> Receipt:
        if commit.key in self._receipts:
            return await super().commit(commit)
        await anyio.sleep(0)
        known = self._receipts
        self._receipts = {}
        try:
            return await super().commit(commit)
        finally:
            self._receipts = {**known, **self._receipts}


class FirstWinsSilent(MemoryStore):
    """Gives the first receipt for a key, whatever is asked under it now."""

    def _first_receipt(self, key: tuple[str, str], ops: tuple[Any, ...]) -> Receipt:
        return self._receipts[key][1]


class GlobalKeys(MemoryStore):
    """Keeps the keys of all streams in one table."""

    async def commit(self, commit: Commit) -> Receipt:
        key = commit.key and ("all", commit.key[1])
        return await super().commit(replace(commit, key=key))


class NeverExpires(MemoryStore):
    """Writes down when a lease ends, and never looks at it again."""

    def _document(self, key: str, now_ms: int) -> Document | None:
        found = super()._document(key, now_ms)
        return found and replace(found, lapsed=False)


class TouchBumpsRevision(MemoryStore):
    """Carries a touch out as a put: the owner's heartbeat breaks its own fence."""

    async def commit(self, commit: Commit) -> Receipt:
        ops = tuple(
            Put(op.key, self._slots[op.key].value, op.expect, op.ttl_ms)
            if isinstance(op, Touch) and op.key in self._slots
            else op
            for op in commit.ops
        )
        return await super().commit(replace(commit, ops=ops))


class AnyoneReleases(MemoryStore):
    """Deletes a lease for whoever asks."""

    async def commit(self, commit: Commit) -> Receipt:
        ops = tuple(
            replace(op, expect=self._slots[op.key].revision)
            if isinstance(op, Delete) and op.key in self._slots and self._slots[op.key].present
            else op
            for op in commit.ops
        )
        return await super().commit(replace(commit, ops=ops))


class NeverExpiresAnyoneReleases(AnyoneReleases):
    """A lease store of a kind that public kits call conformant."""

    def _document(self, key: str, now_ms: int) -> Document | None:
        found = super()._document(key, now_ms)
        return found and replace(found, lapsed=False)


class LateAppendOk(MemoryStore):
    """Takes the word `seal` and does nothing about it."""

    async def commit(self, commit: Commit) -> Receipt:
        ops = tuple(op for op in commit.ops if not isinstance(op, Seal))
        return await super().commit(replace(commit, ops=ops))


class RecoversLiveRun(MemoryStore):
    """Looks for what will lapse, not for what has."""

    async def scan(self, scan: Scan) -> ScanPage:
        clock_ms = self._clock_ms
        if scan.lapsed_only:
            self._clock_ms = lambda: clock_ms() + 10**9
        try:
            return await super().scan(scan)
        finally:
            self._clock_ms = clock_ms


class FullScan(MemoryStore):
    """Looks at every document to find those that have lapsed."""

    async def scan(self, scan: Scan) -> ScanPage:
        if scan.lapsed_only:
            for key in self._slots:
                self._document(key, self._clock_ms())
        return await super().scan(scan)


class NotifyBeforeCommit(MemoryStore):
    """Wakes whoever waits, and writes then."""

    async def commit(self, commit: Commit) -> Receipt:
        for op in commit.ops:
            super()._tell([getattr(op, "stream", "") or getattr(op, "key", "")])
        await anyio.sleep(0.02)
        return await super().commit(commit)

    def _tell(self, names: Sequence[str]) -> None:
        """It has told already."""


class JsonFloatKeys(MemoryStore):
    """Stores what its JSON library makes of a value: 1.0 is 1."""

    async def commit(self, commit: Commit) -> Receipt:
        ops = tuple(
            replace(op, records=tuple(map(_without_floats, op.records)))
            if isinstance(op, Append)
            else op
            for op in commit.ops
        )
        return await super().commit(replace(commit, ops=ops))


def _without_floats(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value == value // 1 and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return freeze({key: _without_floats(item) for key, item in value.items()})
    return [_without_floats(item) for item in value] if isinstance(value, list) else value


class FixedIds(MemoryStore):
    """Keeps books under a name of its own, among everybody's documents."""

    async def commit(self, commit: Commit) -> Receipt:
        found = self._slots.get("store/last")
        await super().commit(Commit((Put("store/last", 1, found.revision if found else 0),)))
        return await super().commit(commit)


class TruncatesBlob(MemoryStore):
    """Keeps the first 64 KiB."""

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        digest = await super().blob_put(chunks)
        self._blobs[digest] = self._blobs[digest][:65536]
        return digest


class _RefusesAll(MemoryStore):
    async def commit(self, commit: Commit) -> Receipt:
        raise StoreError("conflict", "no", detail={"key": "x", "revision": 0})


def flaky() -> Callable[[Callable[[], int]], Store]:
    """Makes stores of which each tenth refuses everything."""
    number = itertools.count(1)

    def make(clock_ms: Callable[[], int]) -> Store:
        kind = _RefusesAll if next(number) % 10 == 0 else MemoryStore
        return kind(clock_ms)

    return make
