"""Who owns a run: taking, keeping and giving up its lease.

The lease is one document. Its revision when taken is the term, every commit of the owner requires
that revision, and `touch` keeps the document alive without changing it; so an owner that was
asleep past its time finds every write refused (K58), and nobody can commit beside it. A lease can
be taken when there is none, when it lapsed, when it was released, or when its owner's process is
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from purra.contracts.store import Commit, Delete, Document, Put, Store, Touch
from purra.errors import AdapterError, PurraError, StoreError
from purra.limits import LEASE_TOUCH_S, LEASE_TTL_MS
from purra.runs import keys, presence

__all__ = ["Heartbeat", "claimable", "lease_value", "not_claimable", "take"]


def lease_value(kernel: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What a lease says: its owner ("" = released), and what lists of runs show."""
    return {"owner": kernel, **about}


def take(run: str, kernel: str, about: Mapping[str, Any], revision: int) -> Put:
    """The op that takes the lease at `revision`; the term is `revision + 1` (contract of `Put`)."""
    return Put(keys.lease(run), lease_value(kernel, about), revision, LEASE_TTL_MS)


async def claimable(store: Store, lease: Document) -> bool:
    """Whether anybody may take this lease now."""
    owner = lease.value["owner"]
    if lease.lapsed or not owner:
        return True
    (document,) = await store.get([keys.kernel(owner)])
    # A kernel that works has a document; one that closed in good order deleted it.
    return document is None or presence.gone(document.value.get("process"))


@dataclass(slots=True)
class _Held:
    term: int
    lost: Callable[[], None]


class Heartbeat:
    """Keeps the leases of one kernel, and the kernel's own document, alive."""

    def __init__(self, store: Store, kernel: str, about: Mapping[str, Any]) -> None:
        self._store = store
        self._kernel = kernel
        self._held: dict[str, _Held] = {}
        self._revision = 0
        self._about = about
        self._writing = anyio.Lock()

    async def describe(self, about: Mapping[str, Any]) -> None:
        """Writes the document anew, with `about` in it."""
        self._about = about
        await self.register()

    async def register(self) -> None:
        """Writes the kernel's document (tables, store keys). Raises what the store says."""
        key = keys.kernel(self._kernel)
        async with self._writing:
            value = {"process": presence.describe(), **self._about}
            try:
                receipt = await self._store.commit(Commit((self._put(key, value),)))
            except StoreError as error:
                if error.code != "conflict":
                    raise
                # Nobody else writes it, but what has lapsed may be cleared away.
                self._revision = error.detail["revision"]
                receipt = await self._store.commit(Commit((self._put(key, value),)))
            self._revision = receipt.revisions[key]

    def _put(self, key: str, value: Mapping[str, Any]) -> Put:
        return Put(key, value, self._revision, LEASE_TTL_MS)

    async def leave(self) -> None:
        """Deletes the kernel's document: whatever it still owned may be taken at once."""
        try:
            delete = Delete(keys.kernel(self._kernel), self._revision)
            await self._store.commit(Commit((delete,)))
        except PurraError:
            return  # it lapses by itself

    def hold(self, run: str, term: int, lost: Callable[[], None]) -> None:
        """Touches the run's lease from now on; calls `lost` once if that is refused."""
        self._held[run] = _Held(term, lost)

    def release(self, run: str) -> None:
        """Stops touching."""
        self._held.pop(run, None)

    async def beat(self) -> None:
        """Touches everything each `LEASE_TOUCH_S`, until cancelled.

        A store that does not answer is tried again at the next beat: the lease decides what that
        costs, not this task.
        """
        while True:
            await anyio.sleep(LEASE_TOUCH_S)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._touch_own)
                for run, held in list(self._held.items()):
                    tasks.start_soon(self._touch, run, held)

    async def _touch_own(self) -> None:
        touch = Touch(keys.kernel(self._kernel), self._revision, LEASE_TTL_MS)
        try:
            try:
                await self._store.commit(Commit((touch,)))
            except StoreError:
                await self.register()  # it lapsed while this process slept; the next beat keeps it
        except PurraError:
            return

    async def _touch(self, run: str, held: _Held) -> None:
        touch = Touch(keys.lease(run), held.term, LEASE_TTL_MS)
        try:
            await self._store.commit(Commit((touch,)))
        except StoreError:
            if self._held.get(run) is held:
                del self._held[run]
                held.lost()
        except AdapterError:
            return


def not_claimable(run: str, lease: Document) -> PurraError:
    """The refusal to take a run that somebody else works on."""
    return PurraError(
        "ownership_lost",
        f"kernel {lease.value['owner']} is working on it",
        where=f"run {run}",
        hint="wait for it to end, or cancel it",
    )
