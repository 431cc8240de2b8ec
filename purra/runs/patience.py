"""A store whose host may be between two instances: what may be asked again is asked again.

A store in a process of its own can be killed at any moment; its host starts it anew within a part
of a second. Without this file each place that reads would have to know that. Asked again is only
what changes nothing (reads, and blobs, which are named by their bytes) and what the store itself
recognises (a commit with a key: it gives the first receipt back, RUN-06). What the *store* says is
final, and nothing here decides anything about a run: that is the ledger's (invariant 11).

A watch that breaks is opened again, and its first wake-up says "look again", so its reader misses
nothing.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from typing import TypeVar

import anyio

from purra.contracts.store import Commit, Document, Page, Receipt, Scan, ScanPage, Store
from purra.errors import AdapterError
from purra.limits import STORE_PATIENCE_S, STORE_RETRY_S

__all__ = ["PatientStore", "surely"]

T = TypeVar("T")


async def surely(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` gives, asked again while the store's host has no instance that answers.

    Raises what the store says, or the last `AdapterError` after `STORE_PATIENCE_S`.
    """
    patience: _Patience | None = None
    while True:
        try:
            return await ask()
        except AdapterError as error:
            patience = patience or _Patience()
            await patience.after(error)


class PatientStore:
    """Implements `purra.contracts.store.Store` on another one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def commit(self, commit: Commit) -> Receipt:
        """Once, if it has no key: a second one could be a second change."""
        if commit.key is None:
            return await self._store.commit(commit)
        return await surely(lambda: self._store.commit(commit))

    async def read(self, stream: str, after: int, limit: int) -> Page:
        return await surely(lambda: self._store.read(stream, after, limit))

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        return await surely(lambda: self._store.get(keys))

    async def scan(self, scan: Scan) -> ScanPage:
        return await surely(lambda: self._store.scan(scan))

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        patience = _Patience()
        while True:
            names = self._store.watch(prefix)
            try:
                async for name in names:
                    patience = _Patience()
                    yield name
                return
            except AdapterError as error:
                await patience.after(error)
            finally:
                await names.aclose()

    async def now(self) -> int:
        return await surely(self._store.now)

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        """Keeps what it has sent until the end, in case it must send it again."""
        sent: list[bytes] = []
        rest = aiter(chunks)

        async def all_of_it() -> AsyncIterator[bytes]:
            for chunk in tuple(sent):
                yield chunk
            async for chunk in rest:
                sent.append(chunk)
                yield chunk

        return await surely(lambda: self._store.blob_put(all_of_it()))

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        return await surely(lambda: self._store.blob_get(digest, offset, length))


class _Patience:
    """For one thing that is asked: how long the host may still take."""

    def __init__(self) -> None:
        self._until: float | None = None

    async def after(self, error: AdapterError) -> None:
        """Waits for the next try. Raises `error` if it is final, or the patience is over."""
        now = anyio.current_time()
        if self._until is None:
            self._until = now + STORE_PATIENCE_S
        final = error.origin not in ("host", "instance") or (
            error.origin == "host" and error.detail.get("retry") == "never"
        )
        wait_s = max(STORE_RETRY_S, (error.retry_after_ms or 0) / 1000)
        if final or now + wait_s > self._until:
            raise error
        await anyio.sleep(wait_s)
