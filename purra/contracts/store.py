"""Contract `purra.store/1`: a transactional log, document and blob store.

Everything durable in the kernel is written once, on this. `purra.stores.memory` is the executable
specification; `purra-plugin-sqlite` passes the same tests.

The order of checks in one commit (tables, store commit):

1. the shape of the call (`invalid_argument`, `invalid_value`);
2. a known key: its first receipt if the digest of the ops is the same, else `conflict` (the digest
   is `purra.values.digest` of the list of their values, `op_to_value`);
3. `require`, key by key: another revision is `conflict`, the right one past its time `lapsed`;
4. any append to a stream that was sealed before this commit: `sealed`;
5. the ops in their order, each seeing what those before it did; all of them or none.

What an error says of its cause, in `StoreError.detail`:

- `conflict` `{"key", "revision"}` (the revision now, 0 = absent; a refused touch of a lapsed
  document adds `"lapsed": true`), `{"stream", "head"}`, or `{"stream", "digest"}` (the first one);
- `lapsed` `{"key", "revision"}`; `sealed` `{"stream", "head"}`;
- `not_found` `{"digest"}` or `{"project"}`; `storage` `{"errno"}` or `{"project", "type"}`.

Time is the store's clock in whole milliseconds, taken once in a commit while it holds the store;
a document has lapsed when `expires_ms <= now`. Streams and documents are separate name spaces.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

__all__ = [
    "ANY",
    "CONTRACT",
    "NAME_BYTES",
    "PAGE_ITEMS",
    "TTL_MS",
    "VALUE_DEPTH",
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
    "op_to_value",
]

CONTRACT = "purra.store/1"

ANY: Final = -1
"""`Append.expect`: whatever the head is."""

NAME_BYTES: Final = 1024
"""Longest stream, key, prefix or idempotency text, in UTF-8 bytes. Only a prefix may be empty."""
PAGE_ITEMS: Final = 1000
"""Most records or documents in one page; a larger `limit` gives this many."""
VALUE_DEPTH: Final = 56
"""Deepest nesting of a record, document or payload: less than the 64 levels of a message on the
wire, in which a commit wraps it. Deeper is `invalid_value`."""
TTL_MS: Final = 2**48
"""Longest life of a document (8,900 years): keeps every expiry inside int64."""


@dataclass(frozen=True, slots=True)
class Append:
    """Adds `records` (strict values, at least one) to `stream`; `expect` is the head before it, or
    `ANY`.

    Sequence numbers are dense from 1; a refused append burns none (RUN-03).
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
    """Sets the life of `key` anew, without changing its revision, so that an owner's heartbeat
    never breaks its own fence. Lapsed or replaced: `conflict`. `ttl_ms` 0 = no end.
    """

    key: str
    expect: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes `key` at revision `expect` (1 or more), also when it has lapsed."""

    key: str
    expect: int


@dataclass(frozen=True, slots=True)
class Seal:
    """No append to `stream` succeeds after this op. Sealing twice is allowed."""

    stream: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes the records of `stream`; its head and seal stay, numbers are not used again."""

    stream: str


@dataclass(frozen=True, slots=True)
class Project:
    """Runs the projector `name` of the store's own configuration inside the commit (RUN-18).

    An unknown name is `not_found`; its exception aborts the commit, as `storage`.
    """

    name: str
    payload: Any


Op = Append | Put | Touch | Delete | Seal | Drop | Project


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change.

    `require`: key -> revision that must hold and must not be lapsed (the lease fence); 0 = absent.
    `key`: (stream, text): idempotency within a stream (RUN-06); a must where `ops` appends.
    `durable`: True survives loss of power, as does all that was committed before it; False survives
    the process.
    """

    ops: tuple[Op, ...]
    key: tuple[str, str] | None = None
    require: Mapping[str, int] = field(default_factory=dict)
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """`heads`: last sequence of each stream appended to. `revisions`: of each key put, touched or
    deleted, as the commit left it (0 = absent).
    """

    heads: Mapping[str, int]
    revisions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """Records after a cursor, with the stream's head and seal as of this read.

    Large records make a page shorter than its limit: read on, from the last one seen, until a page
    is empty or ends at `head`.
    """

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

    `reverse` turns the order round; `after` is then the key to stay below.
    `lapsed_only`: only lapsed ones, ordered by expiry then key, served by an index on expiry, at a
    cost that does not depend on what has not lapsed. `after` is then the last one seen; if that has
    been extended or removed since, the scan starts over: it may repeat, but never misses one.
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


def op_to_value(op: Op) -> dict[str, Any]:
    """The strict value that stands for an op on the wire and in the digest of a commit."""
    match op:
        case Append():
            return {
                "op": "append",
                "stream": op.stream,
                "expect": op.expect,
                "records": list(op.records),
            }
        case Put():
            return {
                "op": "put",
                "key": op.key,
                "value": op.value,
                "expect": op.expect,
                "ttl_ms": op.ttl_ms,
            }
        case Touch():
            return {"op": "touch", "key": op.key, "expect": op.expect, "ttl_ms": op.ttl_ms}
        case Delete():
            return {"op": "delete", "key": op.key, "expect": op.expect}
        case Seal():
            return {"op": "seal", "stream": op.stream}
        case Drop():
            return {"op": "drop", "stream": op.stream}
        case Project():
            return {"op": "project", "name": op.name, "payload": op.payload}


class Store(Protocol):
    """Errors are `StoreError` with the codes conflict, sealed, lapsed, storage, not_found, and
    `PurraError(invalid_argument | invalid_value)` for a malformed call; nothing is half done.
    """

    async def commit(self, commit: Commit) -> Receipt:
        """Applies all of it or none, and returns when it is as durable as asked."""

    async def read(self, stream: str, after: int, limit: int) -> Page:
        """At most `limit` (1 or more) records with sequence > `after` (0 or more), in order. Beyond
        the head, or of an unknown stream, none, with the head (RUN-05)."""

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        """The documents, in the order of `keys`; None where there is none."""

    async def scan(self, scan: Scan) -> ScanPage:
        """One page of documents."""

    def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        """Wake-ups about streams and keys that start with `prefix`: a changed name, or "" = look
        again. The first comes at once; some may be spurious, several changes may be told as one;
        none comes before the change can be read; each change is told within 250 ms, also of other
        processes. Endless: close it with `aclose`. Lapsing is no change: nobody wrote anything.
        """

    async def now(self) -> int:
        """The store's clock, in ms since 1970. Leases lapse by it."""

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        """Stores bytes and gives `sha256:` and 64 hex digits of them. Equal bytes are kept once;
        partial puts leave nothing. A durable commit makes the blobs before it durable too."""

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        """Bytes of a blob from `offset`, exactly `length` of them unless the blob ends before
        (beyond its end: none); unknown digest: `not_found`."""
