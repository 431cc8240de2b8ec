"""Replay, then live, with no gap and no duplicate (RUN-05).

One loop for both: take what is there after the cursor, wait for a hint that there is more, look
again. The hint is the feed, where this process owns the run, else the store's watch; neither is
trusted for content that the store does not have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from purra.contracts.store import PAGE_ITEMS, Document, Scan, Store
from purra.errors import PurraError
from purra.journal.events import TERMINAL, Event, event_from_value
from purra.limits import READ_PAGE
from purra.runs.feed import Feed

__all__ = [
    "check_cursor",
    "closed_watch",
    "documents",
    "events",
    "head_of",
    "journal_of",
    "records",
]

_BEYOND: Final = 2**62


def check_cursor(after: object) -> int:
    """Raises `PurraError(invalid_argument)` unless `after` is a whole number from 0."""
    if type(after) is not int or after < 0:
        raise PurraError("invalid_argument", "a cursor is a whole number from 0", where="after")
    return after


async def records(
    store: Store, stream: str, after: int, feed: Feed | None, *, follow: bool
) -> AsyncIterator[Any]:
    """Records of a stream after a cursor: what is stored and, with `follow`, what comes.

    Ends when the stream is sealed or the feed is closed, without `follow` at the head.
    """
    cursor = check_cursor(after)
    wakes: AsyncIterator[str] | None = None
    try:
        while True:
            if feed is not None and feed.covers(cursor):
                fresh, over = feed.after(cursor), feed.closed
            else:
                page = await store.read(stream, cursor, READ_PAGE)
                fresh = list(page.records)
                # A sealed stream whose records were dropped has a head that nothing leads to.
                over = page.sealed and (not fresh or cursor + len(fresh) >= page.head)
            for record in fresh:
                cursor += 1
                yield record
            if fresh and not over:
                continue
            if over or not follow:
                return
            if feed is not None:
                await feed.changed()
                continue
            wakes = wakes or store.watch(stream)
            if await anext(wakes, None) is None:
                return
    finally:
        if wakes is not None:
            await wakes.aclose()  # type: ignore[attr-defined]


async def events(
    store: Store, stream: str, after: int, feed: Feed | None, *, follow: bool
) -> AsyncIterator[Event]:
    """The journal's events after a cursor; ends with the terminal one."""
    source = records(store, stream, after, feed, follow=follow)
    try:
        async for record in source:
            event = event_from_value(record) if not isinstance(record, Event) else record
            yield event
            if event.kind in TERMINAL:
                return
    finally:
        await source.aclose()  # type: ignore[attr-defined]


async def head_of(store: Store, stream: str) -> int:
    """The last sequence of a stream: a read beyond every head gives no record, but says it."""
    page = await store.read(stream, _BEYOND, 1)
    return page.head


async def journal_of(store: Store, stream: str) -> list[Event]:
    """The whole journal as stored."""
    return [event async for event in events(store, stream, 0, None, follow=False)]


async def documents(store: Store, prefix: str) -> AsyncIterator[Document]:
    """Every document below a prefix, in the order of their keys."""
    after, more = "", True
    while more:
        page = await store.scan(Scan(prefix, after, PAGE_ITEMS))
        for document in page.documents:
            yield document
            after = document.key
        more = page.more


@asynccontextmanager
async def closed_watch(store: Store, prefix: str) -> AsyncIterator[AsyncIterator[str]]:
    """A watch that is closed on every way out."""
    wakes = store.watch(prefix)
    try:
        yield wakes
    finally:
        await wakes.aclose()
