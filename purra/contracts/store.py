"""Contract `purra.store/1`: a transactional log, document and blob store.

Everything durable in the kernel is written once, on this. `purra.stores.memory` is the executable
specification; `purra-plugin-sqlite` passes the same tests.

The order of checks in one commit (tables, store commit): a known key gives its first receipt back
if the digest of the ops is the same, else `conflict`; then `require` (`lapsed` or `conflict`); then
`sealed`; then the ops in their order, all or nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = [
    "ANY",
    "CONTRACT",
    "Append",
    "Commit",
    "Delete",
    "Document",
    "Drop",
    "Op",
    "Page",
    "Project",
    "Put",
    "Receipt",
    "Scan",
    "ScanPage",
    "Seal",
    "Store",
    "Touch",
]

CONTRACT = "purra.store/1"

ANY = -1
"""`Append.expect`: whatever the head is."""


@dataclass(frozen=True, slots=True)
class Append:
    """Adds `records` (strict values) to `stream`; `expect` is the head before it, or `ANY`.

    Sequence numbers are dense from 1; a refused append burns none.
    """

    stream: str
    expect: int
    records: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Writes document `key`. `expect`: its revision, 0 = absent (a deleted key is absent).

    The new revision is the key's last revision + 1, also after a delete. `ttl_ms` 0 = no end;
    otherwise the document lapses that long after the commit, by the store's clock.
    """

    key: str
    value: Any
    expect: int
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Touch:
    """Extends the life of `key` without changing its revision. Lapsed or replaced: `conflict`."""

    key: str
    expect: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes `key` at revision `expect`."""

    key: str
    expect: int


@dataclass(frozen=True, slots=True)
class Seal:
    """No append to `stream` succeeds after this commit. Sealing twice is allowed."""

    stream: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes the records of `stream`; its head and seal stay."""

    stream: str


@dataclass(frozen=True, slots=True)
class Project:
    """Runs the projector `name` of the store's own configuration inside the commit (RUN-18).

    An unknown name is `not_found`; its exception aborts the commit.
    """

    name: str
    payload: Any


Op = Append | Put | Touch | Delete | Seal | Drop | Project


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change.

    `require`: key -> revision that must hold and must not be lapsed (the lease fence).
    `key`: (stream, text): idempotency in the scope of a stream; needed where `ops` appends.
    `durable`: True survives loss of power, False survives the process.
    """

    ops: tuple[Op, ...]
    key: tuple[str, str] | None = None
    require: Mapping[str, int] = field(default_factory=dict)
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """`heads`: last sequence of each stream appended to; `revisions`: of each key written."""

    heads: Mapping[str, int]
    revisions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """Records after a cursor, with the stream's head and seal as of this read."""

    records: tuple[Any, ...]
    head: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A document as of this read. `expires_ms` by the store's clock, 0 = never."""

    key: str
    value: Any
    revision: int
    lapsed: bool = False
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """Documents by key prefix, ordered by the keys' UTF-8 bytes, after key `after` ("" = all).

    `lapsed_only`: only lapsed ones, ordered by expiry then key, served by an index on expiry; then
    `after` is the key of the last one seen, and the cost does not depend on what has not lapsed.
    """

    prefix: str
    after: str = ""
    limit: int = 100
    reverse: bool = False
    lapsed_only: bool = False


@dataclass(frozen=True, slots=True)
class ScanPage:
    """`more`: whether another page follows."""

    documents: tuple[Document, ...]
    more: bool


class Store(Protocol):
    """Errors are `StoreError` with the codes conflict, sealed, lapsed, storage, not_found, and
    `PurraError(invalid_argument | invalid_value)` for a malformed call; nothing is half done.
    """

    async def commit(self, commit: Commit) -> Receipt:
        """Applies all of it or none, and returns when it is as durable as asked."""

    async def read(self, stream: str, after: int, limit: int) -> Page:
        """At most `limit` records with sequence > `after`; beyond the head none, with the head."""

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        """The documents, in the order of `keys`; None where there is none."""

    async def scan(self, scan: Scan) -> ScanPage:
        """One page of documents."""

    def watch(self, prefix: str) -> AsyncIterator[str]:
        """Wake-ups about streams and keys that start with `prefix`: a changed name, or "" = look
        again. The first comes at once; some may be spurious; none comes before the change can be
        read; each change is told within 250 ms, also of other processes. Ends when closed.
        """

    async def now(self) -> int:
        """The store's clock, in ms since 1970. Leases lapse by it."""

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        """Stores bytes and gives `sha256:` of them. Partial puts leave nothing."""

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        """Bytes of a blob from `offset`, at most `length`; unknown digest: `not_found`."""
