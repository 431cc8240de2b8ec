"""A run as a list of strict values that another store could take in: what it is, its journal, what
was put into its inbox, and which blobs its events name. Drafts are not part of it: the journal has
each round's text.

Nothing is left out and nothing is hidden: prompts, arguments, results and evidence are as they were
written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from purra.contracts.store import Store
from purra.journal.events import Event, event_from_value
from purra.runs import keys, reader
from purra.runs.directory import Directory

__all__ = ["FORMAT", "blob_body", "blobs_of", "exported"]

FORMAT: Final = "purra.export/1"
BLOB_PIECE_BYTES: Final = 1024**2
"""Of a blob asked for at once."""
_NAMING: Final = ("blob", "bundle")
"""Fields of events that name a blob (`purra.journal.events`)."""


async def exported(store: Store, run: str) -> AsyncIterator[dict[str, Any]]:
    """The values, each with a `kind`: one `export`, then `journal` and `inbox` records with their
    `seq`, a `blob` for each that is named, and one `end` that counts them. A run that goes on is
    given as far as it is. Raises `PurraError(run_not_found)`.
    """
    info = await Directory(store).show(run)
    yield {
        "kind": "export",
        "format": FORMAT,
        "run": run,
        "agent": info.agent,
        "session": info.session,
        "status": info.status,
    }
    counts = dict.fromkeys(("journal", "inbox", "blob"), 0)
    blobs: dict[str, None] = {}
    for kind, stream in (("journal", keys.journal(run)), ("inbox", keys.inbox(run))):
        async for record in reader.records(store, stream, 0, None, follow=False):
            counts[kind] += 1
            if kind == "journal":
                blobs.update(dict.fromkeys(blobs_of(event_from_value(record))))
            yield {"kind": kind, "seq": counts[kind], "record": record}
    for digest in blobs:
        counts["blob"] += 1
        yield {"kind": "blob", "digest": digest}
    yield {"kind": "end", **counts}


def blobs_of(event: Event) -> Iterator[str]:
    """Digests of the blobs that an event names."""
    for name in _NAMING:
        digest = event.data.get(name)
        if isinstance(digest, str):
            yield digest


async def blob_body(store: Store, digest: str) -> AsyncIterator[bytes]:
    """A blob, piece by piece. Raises `StoreError(not_found)`."""
    offset = 0
    while piece := await store.blob_get(digest, offset, BLOB_PIECE_BYTES):
        offset += len(piece)
        yield piece
