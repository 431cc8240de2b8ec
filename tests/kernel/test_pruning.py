"""Runs that have ended are removed whole, and nothing else is; a run is exported with all it names.

On both stores, because what is removed, and what stays, is the store's doing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import purra
from purra.contracts.store import Commit, Delete, Put, Store
from purra.errors import PurraError
from purra.limits import LEASE_TTL_MS
from purra.runs import export, kernels, keys, presence, pruning, reader
from purra.stores.memory import MemoryStore
from tests.kernel.parts import ScriptModel, ask, say
from tests.plugins.sqlite.engine_channel import FakeClock, open_subject

LARGE = "0123456789abcdef" * 8192
"""A result that goes to a blob."""


@purra.tool(effect="pure")
def fetch() -> str:
    """Gives much."""
    return LARGE


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with open_subject(tmp_path / "runs.db") as subject:
        yield subject.store


def kernel(store: Store, *steps: Any) -> purra.Kernel:
    return purra.Kernel(model=ScriptModel(*steps), tools=[fetch], store=store)


class Waits(ScriptModel):
    """Does not end by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.set()
        await anyio.sleep_forever()
        yield


async def found(store: Store, **wanted: Any) -> list[str]:
    return [item.info.run async for item in pruning.ended_runs(store, **wanted)]


async def left(store: Store, run: str) -> list[Any]:
    """Everything that the store still has of a run."""
    streams = [keys.journal(run), keys.output(run), keys.inbox(run)]
    records = [record for stream in streams for record in (await store.read(stream, 0, 9)).records]
    documents = await store.get([keys.lease(run), keys.wake(run)])
    return [*records, *(document for document in documents if document is not None)]


@pytest.mark.anyio
async def test_an_ended_run_is_removed_whole(store: Store) -> None:
    """Journal, drafts, inbox, lease; its name stays used, so nothing can be written to it."""
    async with kernel(store, say("one"), say("two")) as one:
        first, second = await one.submit("first"), await one.submit("second")
        for run in (first, second):
            assert (await run.wait()).status == "completed"
        assert sorted(await found(store)) == sorted([first.id, second.id])
        assert await pruning.prune(store, first.id)
        assert await left(store, first.id) == []
        assert await found(store) == [second.id]
        assert [info.run for info in await one.runs.list()] == [second.id]
        with pytest.raises(PurraError, match="run_not_found"):
            await one.runs.show(first.id)
        assert not await one.runs.tell(first.id, "late", {"kind": "cancel"})
        assert (await one.runs.state(second.id)).terminal is not None
        assert not await pruning.prune(store, first.id)


@pytest.mark.anyio
async def test_what_has_not_ended_is_never_removed(store: Store) -> None:
    """Running, or abandoned by an owner that died: neither is listed, nor removed by name."""
    model = Waits()
    async with purra.Kernel(model=model, store=store) as one:
        run = await one.submit("go")
        await model.asked.wait()
        assert await found(store) == []
        with pytest.raises(PurraError, match="has not ended") as caught:
            await pruning.prune(store, run.id)
        assert caught.value.code == "invalid_argument"
    assert await found(store) == []
    with pytest.raises(PurraError, match="has not ended"):
        await pruning.prune(store, run.id)
    assert len(await left(store, run.id)) > 1


@pytest.mark.anyio
async def test_age_and_status_choose(store: Store) -> None:
    """The age is that of the end, and bounds are exact."""
    async with kernel(store, say("one"), RuntimeError("no")) as one:
        good = await one.submit("good")
        assert (await good.wait()).status == "completed"
        bad = await one.submit("bad")
        assert (await bad.wait()).status == "failed"
        ended = {item.info.run: item.ended_ms async for item in pruning.ended_runs(store)}
    assert await found(store, statuses=["failed"]) == [bad.id]
    assert await found(store, statuses=["canceled", "running"]) == []
    assert await found(store, before_ms=min(ended.values())) == []
    assert good.id in await found(store, before_ms=ended[good.id] + 1)
    assert await found(store, statuses=["completed"], before_ms=ended[good.id]) == []


@pytest.mark.anyio
async def test_a_session_is_forgotten_with_its_last_run(store: Store) -> None:
    """Its records are one stream; a run that is still there keeps them, and so does one to come."""
    async with kernel(store, say("one"), say("two"), say("three")) as one:
        runs = [await one.submit(text, session="desk") for text in ("first", "second")]
        for run in runs:
            await run.wait()
        await pruning.prune(store, runs[0].id)
        assert await pruning.forget_sessions(store, ["desk", ""]) == ()
        assert len((await store.read(keys.session("desk"), 0, 9)).records) == 2
        await pruning.prune(store, runs[1].id)
        assert await pruning.forget_sessions(store, ["desk", "unknown"]) == ("desk",)
        assert (await store.read(keys.session("desk"), 0, 9)).records == ()
        assert await pruning.forget_sessions(store, ["desk"]) == ()
        again = await one.submit("third", session="desk")
        assert (await again.wait()).status == "completed"
        assert len((await store.read(keys.session("desk"), 0, 9)).records) == 1


@pytest.mark.anyio
async def test_a_run_that_joins_meanwhile_keeps_its_session(store: Store) -> None:
    """The turn was read before the runs were, and the run has changed it."""

    class Joined:
        """The store, on which somebody submits between the two."""

        def __init__(self) -> None:
            self.joins = True

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def scan(self, scan: Any) -> Any:
            page = await store.scan(scan)
            if self.joins:
                self.joins = False
                await (await one.submit("late", session="desk")).wait()
            return page

    async with kernel(store, say("one"), say("two")) as one:
        run = await one.submit("first", session="desk")
        await run.wait()
        await pruning.prune(store, run.id)
        assert await pruning.forget_sessions(Joined(), ["desk"]) == ()  # type: ignore[arg-type]
        assert len((await store.read(keys.session("desk"), 0, 9)).records) == 2


@pytest.mark.anyio
async def test_what_dead_kernels_left_is_removed_and_what_lives_stays(store: Store) -> None:
    """A kernel whose document was cleared away writes it anew: it never works unseen."""
    dead = {"process": {**presence.describe(), "started": 1}, "plugins": {}}
    await store.commit(Commit((Put(keys.kernel("dead"), dead, 0, LEASE_TTL_MS),)))
    async with kernel(store, say("one")) as one:
        states = {info.kernel: info.state for info in await kernels.kernels(store, ended=True)}
        assert states == {"dead": "gone", one.id: "running"}
        assert await kernels.forget(store) == 1
        (document,) = await store.get([keys.kernel(one.id)])
        assert document is not None
        cleared = Delete(document.key, document.revision)
        await store.commit(Commit((cleared,)))
        await one.describe({"plugins": {}})
        assert [info.kernel for info in await kernels.kernels(store)] == [one.id]


@pytest.mark.anyio
async def test_an_export_has_all_that_the_run_is(store: Store) -> None:
    """The journal record by record, the inbox, and every blob that is named, byte for byte."""
    async with kernel(store, ask(("fetch", "{}")), say("done")) as one:
        run = await one.submit("go")
        assert (await run.wait()).status == "completed"
        values = [value async for value in export.exported(store, run.id)]
        source = reader.records(store, keys.journal(run.id), 0, None, follow=False)
        stored = [record async for record in source]
        bodies = {}
        for value in values:
            if value["kind"] == "blob":
                pieces = [piece async for piece in export.blob_body(store, value["digest"])]
                bodies[value["digest"]] = b"".join(pieces)
        with pytest.raises(PurraError, match="run_not_found"):
            await anext(export.exported(store, "none"))
    assert (values[0]["kind"], values[0]["format"]) == ("export", "purra.export/1")
    journal = [value for value in values if value["kind"] == "journal"]
    assert [value["record"] for value in journal] == stored
    assert [value["seq"] for value in journal] == list(range(1, len(stored) + 1))
    assert f'"{LARGE}"'.encode() in bodies.values()
    assert values[-1] == {"kind": "end", "journal": len(stored), "inbox": 0, "blob": len(bodies)}


@pytest.mark.anyio
async def test_an_export_of_a_run_that_goes_on_ends_where_it_is(store: Store) -> None:
    """With what was put into its inbox, taken in or not."""
    model = Waits()
    async with purra.Kernel(model=model, store=store) as one:
        run = await one.submit("go")
        await model.asked.wait()
        values = [value async for value in export.exported(store, run.id)]
        assert (values[0]["status"], values[-1]["inbox"]) == ("running", 0)
        await one.cancel(run.id, by="me")
        assert (await run.wait()).status == "canceled"
        values = [value async for value in export.exported(store, run.id)]
    (entry,) = [value for value in values if value["kind"] == "inbox"]
    assert (entry["seq"], entry["record"]["by"]) == (1, "me")
    assert (values[0]["status"], values[-1]["inbox"]) == ("canceled", 1)


@pytest.mark.anyio
async def test_a_kernel_far_away_is_given_time() -> None:
    """Its process cannot be looked for, so only a long silence says that it is gone."""
    clock = FakeClock()
    store = MemoryStore(clock)
    far = {"process": {"boot": "another", "pid": 1, "started": 1}, "plugins": {}}
    await store.commit(Commit((Put(keys.kernel("far"), far, 0, LEASE_TTL_MS),)))
    for passed_ms, state, count in (
        (LEASE_TTL_MS - 1, "running", 0),
        (1, "lapsed", 0),
        (kernels.SILENT_MS, "lapsed", 0),
        (1, "lapsed", 1),
    ):
        await clock.pass_time(passed_ms)
        (info,) = await kernels.kernels(store, ended=True)
        assert info.state == state
        assert await kernels.kernels(store) == ((info,) if state == "running" else ())
        assert await kernels.forget(store) == count
    assert await kernels.kernels(store, ended=True) == ()
