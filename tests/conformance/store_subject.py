"""What the store checks are run on: an open store, its clock, and other openings of its data.

The suite takes a factory, so that anybody's store can be put through it: see `store_suite`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import anyio

from purra.contracts.store import Append, Commit, Delete, Drop, Op, Put, Seal, Store, Touch
from purra.errors import PurraError, StoreError

__all__ = ["OpenSubject", "Subject", "refusal", "wakes_for"]

WAKE_S = 5.0
"""How long a check waits for a wake-up that the contract promises within 250 ms; the promise itself
is checked by `check_wakes_come_in_time`."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One store under test.

    `ns`: begins every name that a check uses, different for each check, so that checks do not meet
    on one store. `ttl_ms`: a life that does not end by itself within a few calls. `pass_time`:
    waits until the store's clock is that many milliseconds on. `peer`: a second opening of the same
    data, where the store has such a thing, else the store itself; `reopen`: the same after a close.
    """

    store: Store
    ns: str
    ttl_ms: int
    pass_time: Callable[[int], Awaitable[None]]
    peer: Callable[[], Awaitable[Store]]
    reopen: Callable[[], Awaitable[Store]]

    def name(self, suffix: str) -> str:
        return f"{self.ns}/{suffix}"

    async def append(
        self, stream: str, *records: Any, expect: int = -1, key: str = "", **options: Any
    ) -> int:
        """Appends to a stream of this check; gives its head."""
        name = self.name(stream)
        text = key or f"once:{await self._head(name)}"
        op = Append(name, expect, records)
        receipt = await self.store.commit(Commit((op,), key=(name, text), **options))
        return receipt.heads[name]

    async def put(self, key: str, value: Any, expect: int = 0, ttl_ms: int = 0) -> int:
        """Puts a document of this check; gives its revision."""
        name = self.name(key)
        receipt = await self.store.commit(Commit((Put(name, value, expect, ttl_ms),)))
        return receipt.revisions[name]

    async def touch(self, key: str, expect: int, ttl_ms: int) -> None:
        await self.store.commit(Commit((Touch(self.name(key), expect, ttl_ms),)))

    async def delete(self, key: str, expect: int) -> None:
        await self.store.commit(Commit((Delete(self.name(key), expect),)))

    async def seal(self, stream: str) -> None:
        await self.store.commit(Commit((Seal(self.name(stream)),)))

    async def drop(self, stream: str) -> None:
        await self.store.commit(Commit((Drop(self.name(stream)),)))

    async def keyed(self, stream: str, text: str, *ops: Op) -> Any:
        """Commits with a key in the scope of a stream of this check."""
        return await self.store.commit(Commit(ops, key=(self.name(stream), text)))

    async def records(self, stream: str) -> list[Any]:
        """Everything in a stream of this check, page by page."""
        name, found = self.name(stream), []
        while True:
            page = await self.store.read(name, len(found), 100)
            found += page.records
            if not page.records or len(found) >= page.head:
                return found

    async def _head(self, name: str) -> int:
        return (await self.store.read(name, 0, 1)).head


OpenSubject = Callable[[], AbstractAsyncContextManager[Subject]]


async def refusal(call: Awaitable[Any], code: str) -> dict[str, Any]:
    """The detail with which `call` is refused. Fails if it succeeds or names another code."""
    try:
        outcome = await call
    except PurraError as error:
        assert error.code == code, f"expected {code}, got {error!r}"
        malformed = code in ("invalid_argument", "invalid_value")
        assert malformed or isinstance(error, StoreError), repr(error)
        return dict(error.detail)
    raise AssertionError(f"expected {code}, got {outcome!r}")


async def wakes_for(watch: AsyncGenerator[str, None], name: str) -> None:
    """Returns when the watcher was told of `name`, or to look again. Fails after `WAKE_S`."""
    with anyio.fail_after(WAKE_S):
        async for told in watch:
            if told in ("", name):
                return
