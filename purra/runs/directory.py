"""Looking at runs and writing to their inboxes: what any process may do that has the store.

Nothing here owns a run. A run is found by its lease, which stays, released, after the run has
ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from purra.contracts.store import ANY, Append, Commit, Document, Scan, Store
from purra.errors import PurraError, StoreError
from purra.journal.events import Event
from purra.journal.fold import fold_all
from purra.journal.state import Call, RunState
from purra.runs import keys, reader, wakes
from purra.runs.patience import surely

__all__ = ["Directory", "RunInfo"]

_LEASE = "/lease"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of a list of runs. `owner`: the kernel that works on it, "" = nobody now.

    `status` as of the last takeover or release; a run whose owner died still says `running`, with
    `lapsed` true.
    """

    run: str
    agent: str
    session: str
    status: str
    prompt: str
    started_ms: int
    owner: str
    lapsed: bool


class Directory:
    """The runs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def lease(self, run: str) -> Document:
        """The run's lease. Raises `PurraError(run_not_found)`."""
        (document,) = await self._store.get([keys.lease(run)])
        if document is None:
            raise PurraError(
                "run_not_found",
                "no such run",
                where=f"run {run}",
                hint="list them: purra runs list",
            )
        return document

    async def list(self, limit: int = 100) -> tuple[RunInfo, ...]:
        """Runs in the order of their ids, newest last: ids begin with the time of their start."""
        found: list[RunInfo] = []
        after = ""
        while len(found) < limit:
            page = await self._store.scan(Scan("run/", after, limit, reverse=True))
            found += [info(doc) for doc in page.documents if doc.key.endswith(_LEASE)]
            if not page.more or not page.documents:
                break
            after = page.documents[-1].key
        return tuple(reversed(found[:limit]))

    async def show(self, run: str) -> RunInfo:
        """One run. Raises `PurraError(run_not_found)`."""
        return info(await self.lease(run))

    async def state(self, run: str) -> RunState:
        """The run's state, folded from its journal. Raises `PurraError(run_not_found)`."""
        events = await reader.journal_of(self._store, keys.journal(run))
        if not events:
            raise PurraError("run_not_found", "no such run", where=f"run {run}")
        return fold_all(RunState(), events)

    async def asked(self, run: str) -> tuple[Call, ...]:
        """The run's calls that wait for a person, in their order."""
        batch = (await self.state(run)).batch
        return (
            tuple(call for call in batch.calls.values() if call.phase == "asked") if batch else ()
        )

    async def events(self, run: str, after: int = 0, *, follow: bool) -> AsyncIterator[Event]:
        """Committed events after a cursor; with `follow` also those to come."""
        await self.lease(run)
        stream = reader.events(self._store, keys.journal(run), after, None, follow=follow)
        async for event in stream:
            yield event

    async def tell(self, run: str, entry: str, body: Mapping[str, Any]) -> bool:
        """Puts `body` in the run's inbox, once per `entry` id. False: the run has ended."""
        stream = keys.inbox(run)
        commit = Commit((Append(stream, ANY, (body,)),), (stream, entry), durable=True)
        try:
            await self._store.commit(commit)
        except StoreError as error:
            if error.code == "sealed":
                return False
            raise
        return True

    async def wake(self, run: str) -> None:
        """Makes an unowned run due now, for a worker to take up."""
        (wake,) = await self._store.get([keys.wake(run)])
        try:
            # Said twice is a conflict with ourselves, so it may be asked again without a key.
            await surely(lambda: self._store.commit(Commit((wakes.due(wake, run),))))
        except StoreError as error:
            if error.code != "conflict":  # else somebody else has just said the same
                raise

    async def due(self, limit: int) -> tuple[str, ...]:
        """Unowned runs that are due, and runs whose owner is gone, oldest first."""
        found: list[str] = []
        for prefix, suffix in ((keys.wake(""), ""), ("run/", _LEASE)):
            page = await self._store.scan(Scan(prefix, limit=limit, lapsed_only=True))
            for document in page.documents:
                run = document.key.removeprefix(prefix).removesuffix(suffix)
                found += [run] if run not in found else []
        return tuple(found)


def info(lease: Document) -> RunInfo:
    """What a lease says of its run."""
    value = lease.value
    return RunInfo(
        run=lease.key.removeprefix("run/").removesuffix(_LEASE),
        agent=value["agent"],
        session=value["session"],
        status=value["status"],
        prompt=value["prompt"],
        started_ms=value["started_ms"],
        owner=value["owner"],
        lapsed=lease.lapsed,
    )
