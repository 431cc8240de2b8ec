"""The store contract, executable: what `purra.store/1` means, in as little code as it takes.

A commit is judged first and applied after. The judging works on a draft: the heads, seals and
documents as they would be after the ops so far, laid over the real ones. What an op does is kept as
a list of changes, which run only when every op has been judged, and none of them can fail. So there
is no undo. Nothing awaits between the first check and the last change, which makes a commit atomic
for every task of the loop.

Rejected: copying the state and swapping it in (each commit would cost as much as the store is
large), and undoing the ops that came before a refused one (a second implementation of every op).
"""

from __future__ import annotations

import bisect
import copy
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio

from purra import values
from purra.contracts.clock import SystemClock
from purra.contracts.store import (
    ANY,
    PAGE_ITEMS,
    Append,
    Commit,
    Delete,
    Document,
    Drop,
    Op,
    Page,
    Project,
    Put,
    Receipt,
    Scan,
    ScanPage,
    Seal,
    Touch,
    op_to_value,
)
from purra.errors import StoreError
from purra.stores import shape

__all__ = ["MemoryStore", "Projector"]

Projector = Callable[[dict[str, Any], Any], None]
"""Called with a private copy of its own view and the payload of a `Project`; what it leaves in the
copy becomes the view if the commit succeeds. Raising aborts the commit (RUN-18)."""

_PENDING_NAMES: Final = 1024
"""Changed names that a slow watcher may leave unread; more become one "look again"."""


@dataclass(slots=True)
class _Stream:
    """`dropped`: how many records from the beginning are gone; their numbers stay used."""

    records: list[Any] = field(default_factory=list)
    dropped: int = 0
    sealed: bool = False

    @property
    def head(self) -> int:
        return self.dropped + len(self.records)


@dataclass(frozen=True, slots=True)
class _Slot:
    """What is under a key. A deleted document leaves its revision behind, so that it only grows."""

    value: Any
    last_revision: int
    expires_ms: int
    present: bool

    @property
    def revision(self) -> int:
        return self.last_revision if self.present else 0

    def lapsed(self, now_ms: int) -> bool:
        return self.present and 0 < self.expires_ms <= now_ms


_NOTHING: Final = _Slot(None, 0, 0, present=False)


class MemoryStore:
    """A `Store` that lives as long as this object, for tests and for kernels without a store.

    `clock_ms` gives milliseconds since 1970 (None = the machine's clock); `projectors` are called
    for `Project` ops, by name.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int] | None = None,
        projectors: Mapping[str, Projector] | None = None,
    ) -> None:
        self._clock_ms = clock_ms or SystemClock().wall_ms
        self._projectors = dict(projectors or {})
        self._streams: dict[str, _Stream] = {}
        self._slots: dict[str, _Slot] = {}
        self._ends = _Ends()
        self._receipts: dict[tuple[str, str], tuple[tuple[Op, ...], Receipt]] = {}
        self._views: dict[str, dict[str, Any]] = {name: {} for name in self._projectors}
        self._blobs: dict[str, bytes] = {}
        self._watchers: set[_Watcher] = set()

    async def commit(self, commit: Commit) -> Receipt:
        commit = shape.checked_commit(commit)
        if commit.key is not None and commit.key in self._receipts:
            return self._first_receipt(commit.key, commit.ops)
        draft = _Draft(self._streams, self._slots, self._ends, self._clock_ms())
        draft.require(commit.require)
        for op in commit.ops:
            if type(op) is Append:
                draft.refuse_sealed(op.stream)
        for op in commit.ops:
            if type(op) is Project:
                self._project(op, draft)
            else:
                draft.apply(op)
        receipt = draft.land()
        self._views.update(draft.views)
        if commit.key is not None:
            self._receipts[commit.key] = (commit.ops, receipt)
        self._tell(draft.names)
        return receipt

    async def read(self, stream: str, after: int, limit: int) -> Page:
        shape.require_page(stream, after, limit)
        found = self._streams.get(stream) or _Stream()
        start = max(after - found.dropped, 0)
        records = found.records[start : start + min(limit, PAGE_ITEMS)]
        return Page(tuple(records), found.head, found.sealed)

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        shape.require_keys(keys)
        now_ms = self._clock_ms()
        return tuple(self._document(key, now_ms) for key in keys)

    async def scan(self, scan: Scan) -> ScanPage:
        shape.require_scan(scan)
        now_ms = self._clock_ms()
        if scan.lapsed_only:
            ended = self._ends.until(now_ms)
        else:
            ended = [(0, key) for key, slot in self._slots.items() if slot.present]
        # Text compares by code points, which is the order of its UTF-8 bytes.
        rows = sorted(row for row in ended if row[1].startswith(scan.prefix))
        if scan.reverse:
            rows.reverse()
        last = self._place(scan, now_ms)
        if last is not None:
            rows = [row for row in rows if (row < last if scan.reverse else row > last)]
        limit = min(scan.limit, PAGE_ITEMS)
        documents = tuple(self._document(key, now_ms) for _, key in rows[:limit])
        return ScanPage(tuple(found for found in documents if found), more=len(rows) > limit)

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        shape.require_prefix(prefix, "prefix")
        watcher = _Watcher(prefix)
        self._watchers.add(watcher)
        try:
            yield ""
            while True:
                for name in await watcher.take():
                    yield name
        finally:
            self._watchers.discard(watcher)

    async def now(self) -> int:
        return self._clock_ms()

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        content = b"".join([chunk async for chunk in chunks])
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self._blobs[digest] = content
        return digest

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        shape.require_blob_range(offset, length)
        content = self._blobs.get(digest)
        if content is None:
            raise StoreError("not_found", "there is no such blob", detail={"digest": digest})
        return content[offset : offset + length]

    def view(self, projector: str) -> Mapping[str, Any]:
        """A copy of what `projector` has made so far. Raises KeyError for an unknown name."""
        return copy.deepcopy(self._views[projector])

    def _first_receipt(self, key: tuple[str, str], ops: tuple[Op, ...]) -> Receipt:
        first_ops, receipt = self._receipts[key]
        first = _digest(first_ops)
        if _digest(ops) == first:
            return receipt
        stream, text = key
        raise StoreError(
            "conflict",
            f"the key {text!r} was used for other ops",
            where=stream,
            detail={"stream": stream, "digest": first},
        )

    def _project(self, op: Project, draft: _Draft) -> None:
        projector = self._projectors.get(op.name)
        if projector is None:
            raise StoreError("not_found", f"no projector {op.name!r}", detail={"project": op.name})
        view = copy.deepcopy(draft.views.get(op.name, self._views[op.name]))
        try:
            projector(view, values.thaw(op.payload))
        except Exception as error:  # whatever the embedder's function raises aborts the commit
            raise StoreError(
                "storage",
                f"projector {op.name!r} failed",
                detail={"project": op.name, "type": type(error).__name__},
            ) from error
        draft.views[op.name] = view

    def _document(self, key: str, now_ms: int) -> Document | None:
        slot = self._slots.get(key, _NOTHING)
        if not slot.present:
            return None
        return Document(key, slot.value, slot.revision, slot.lapsed(now_ms), slot.expires_ms)

    def _place(self, scan: Scan, now_ms: int) -> tuple[int, str] | None:
        """Where `scan.after` stands in the order of the scan; None = start at the beginning."""
        if not scan.after:
            return None
        if not scan.lapsed_only:
            return (0, scan.after)
        slot = self._slots.get(scan.after, _NOTHING)
        return (slot.expires_ms, scan.after) if slot.lapsed(now_ms) else None

    def _tell(self, names: Sequence[str]) -> None:
        for watcher in self._watchers:
            watcher.tell(names)


class _Ends:
    """When each document with an end lapses, in order, so that a scan for lapsed ones costs nothing
    for those that have not (STO-018).
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []

    def move(self, key: str, before_ms: int, after_ms: int) -> None:
        """The end of `key` was `before_ms` and is `after_ms`; 0 = none."""
        if before_ms:
            del self._rows[bisect.bisect_left(self._rows, (before_ms, key))]
        if after_ms:
            bisect.insort(self._rows, (after_ms, key))

    def until(self, now_ms: int) -> list[tuple[int, str]]:
        """End and key of what has lapsed."""
        return self._rows[: bisect.bisect_left(self._rows, (now_ms + 1, ""))]


class _Draft:
    """One commit under judgement: the store as it would be, and the changes that make it so."""

    def __init__(
        self, streams: dict[str, _Stream], slots: dict[str, _Slot], ends: _Ends, now_ms: int
    ) -> None:
        self._streams = streams
        self._slots = slots
        self._ends = ends
        self._now_ms = now_ms
        self._heads: dict[str, int] = {}
        self._sealed: set[str] = set()
        self._new_slots: dict[str, _Slot] = {}
        self._changes: list[tuple[str, Callable[[_Stream], None]]] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.names: list[str] = []

    def require(self, revisions: Mapping[str, int]) -> None:
        for key, revision in revisions.items():
            slot = self._slot(key)
            if slot.revision != revision:
                raise _key_conflict(key, slot)
            if slot.lapsed(self._now_ms):
                raise StoreError(
                    "lapsed",
                    "the document has lapsed",
                    where=key,
                    detail={"key": key, "revision": slot.revision},
                )

    def refuse_sealed(self, stream: str) -> None:
        known = self._streams.get(stream)
        if stream in self._sealed or (known is not None and known.sealed):
            raise StoreError(
                "sealed",
                "the stream is sealed",
                where=stream,
                detail={"stream": stream, "head": self._head(stream)},
            )

    def apply(self, op: Op) -> None:
        _APPLY[type(op)](self, op)

    def land(self) -> Receipt:
        """Makes the draft true. Nothing in here can fail."""
        for name, change in self._changes:
            stream = self._streams.get(name)
            if stream is None:
                stream = self._streams[name] = _Stream()
            change(stream)
        for key, slot in self._new_slots.items():
            self._ends.move(key, self._slots.get(key, _NOTHING).expires_ms, slot.expires_ms)
        self._slots.update(self._new_slots)
        revisions = {key: slot.revision for key, slot in self._new_slots.items()}
        return Receipt(self._heads, revisions)

    def _append(self, op: Append) -> None:
        self.refuse_sealed(op.stream)
        head = self._head(op.stream)
        if op.expect not in (ANY, head):
            raise StoreError(
                "conflict",
                f"the head is {head}, not {op.expect}",
                where=op.stream,
                detail={"stream": op.stream, "head": head},
            )
        self._heads[op.stream] = head + len(op.records)
        self._change(op.stream, lambda stream: stream.records.extend(op.records))

    def _put(self, op: Put) -> None:
        slot = self._expected(op)
        new = _Slot(op.value, slot.last_revision + 1, self._expiry(op.ttl_ms), present=True)
        self._write(op.key, new)

    def _touch(self, op: Touch) -> None:
        slot = self._expected(op)
        if slot.lapsed(self._now_ms):
            raise _key_conflict(op.key, slot, lapsed=True)
        self._write(op.key, replace(slot, expires_ms=self._expiry(op.ttl_ms)))

    def _delete(self, op: Delete) -> None:
        slot = self._expected(op)
        self._write(op.key, _Slot(None, slot.last_revision, 0, present=False))

    def _seal(self, op: Seal) -> None:
        self._sealed.add(op.stream)
        self._change(op.stream, _seal)

    def _drop(self, op: Drop) -> None:
        self._change(op.stream, _drop)

    def _expected(self, op: Put | Touch | Delete) -> _Slot:
        slot = self._slot(op.key)
        if slot.revision != op.expect:
            raise _key_conflict(op.key, slot)
        return slot

    def _write(self, key: str, slot: _Slot) -> None:
        self._new_slots[key] = slot
        self.names.append(key)

    def _change(self, name: str, change: Callable[[_Stream], None]) -> None:
        self._changes.append((name, change))
        self.names.append(name)

    def _expiry(self, ttl_ms: int) -> int:
        return self._now_ms + ttl_ms if ttl_ms else 0

    def _head(self, name: str) -> int:
        drafted = self._heads.get(name)
        if drafted is not None:
            return drafted
        stream = self._streams.get(name)
        return 0 if stream is None else stream.head

    def _slot(self, key: str) -> _Slot:
        return self._new_slots.get(key, self._slots.get(key, _NOTHING))


_APPLY: Final[Mapping[type[Op], Callable[[_Draft, Any], None]]] = {
    Append: _Draft._append,
    Put: _Draft._put,
    Touch: _Draft._touch,
    Delete: _Draft._delete,
    Seal: _Draft._seal,
    Drop: _Draft._drop,
}


class _Watcher:
    """Names that changed and that its reader has not taken yet."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names: dict[str, None] = {}
        self._woken = anyio.Event()

    def tell(self, names: Sequence[str]) -> None:
        changed = [name for name in names if name.startswith(self._prefix)]
        if not changed:
            return
        self._names.update(dict.fromkeys(changed))
        if len(self._names) > _PENDING_NAMES:
            self._names = {"": None}
        self._woken.set()

    async def take(self) -> tuple[str, ...]:
        await self._woken.wait()
        self._woken = anyio.Event()
        names, self._names = tuple(self._names), {}
        return names


def _seal(stream: _Stream) -> None:
    stream.sealed = True


def _drop(stream: _Stream) -> None:
    stream.dropped = stream.head
    stream.records = []


def _digest(ops: tuple[Op, ...]) -> str:
    return values.digest([op_to_value(op) for op in ops])


def _key_conflict(key: str, slot: _Slot, *, lapsed: bool = False) -> StoreError:
    detail: dict[str, Any] = {"key": key, "revision": slot.revision}
    if lapsed:
        detail["lapsed"] = True
    what = "has lapsed" if lapsed else f"is at revision {slot.revision}"
    return StoreError("conflict", f"the document {what}", where=key, detail=detail)
