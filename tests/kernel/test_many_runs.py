"""More runs at once than a store takes calls: each gets on, and each hears of what is for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.model import Chunk, ModelProfile, ModelRequest
from purra.contracts.store import Store
from purra.limits import OWN_WATCHES
from purra.runs import keys
from purra.stores.memory import MemoryStore
from tests.kernel.parts import say
from tests.plugins.sqlite.hosting import open_store

RUNS = 100
PATIENCE_S = 60.0


class Waiting:
    """Answers everybody, once `open` is set."""

    def __init__(self) -> None:
        self.open = anyio.Event()
        self.asked = 0
        self.all_asked = anyio.Event()

    async def profile(self) -> ModelProfile:
        return ModelProfile(8192, 512)

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        self.asked += 1
        if self.asked == RUNS:
            self.all_asked.set()
        await self.open.wait()
        for chunk in say("done"):
            yield chunk


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Store]:
    yield MemoryStore()


@asynccontextmanager
async def hosted(folder: Path) -> AsyncIterator[Store]:
    async with open_store(folder / "store.db") as store:
        yield store


Opened = Callable[[Path], AbstractAsyncContextManager[Store]]


@pytest.mark.anyio
@pytest.mark.parametrize("opened", [in_memory, hosted])
async def test_many_runs_get_on_and_each_hears_its_cancel(opened: Opened, tmp_path: Path) -> None:
    """RUN-10: more runs than the 64 calls that a worker takes at once, each waiting in its model;
    every seventh is cancelled from elsewhere, the others go on.
    """
    model = Waiting()
    with anyio.fail_after(PATIENCE_S):
        async with (
            opened(tmp_path) as store,
            purra.Kernel(model=model, store=store) as kernel,
            purra.Kernel(model=model, store=store) as other,
        ):
            runs = [await kernel.submit(f"question {number}") for number in range(RUNS)]
            await model.all_asked.wait()
            for run in runs[::7]:
                assert await other.cancel(run.id)
            for run in runs[::7]:
                assert (await run.wait()).status == "canceled"
            model.open.set()
            left = [run for number, run in enumerate(runs) if number % 7]
            assert Counter([(await run.wait()).status for run in left]) == {"completed": len(left)}


class Watched(MemoryStore):
    """Keeps which watches were open, and how many at most at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.open: Counter[str] = Counter()
        self.most = 0

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        self.open[prefix] += 1
        self.most = max(self.most, self.open.total())
        changes = super().watch(prefix)
        try:
            async for name in changes:
                yield name
        finally:
            self.open[prefix] -= 1
            await changes.aclose()


@pytest.mark.anyio
async def test_watches_are_bounded_and_end_with_the_runs() -> None:
    """A few runs have one each, all others one together; the last one to end takes it along."""
    model, store = Waiting(), Watched()
    with anyio.fail_after(PATIENCE_S):
        async with purra.Kernel(model=model, store=store) as kernel:
            runs = [await kernel.submit("?") for _ in range(RUNS)]
            await model.all_asked.wait()
            while store.open["run/"] == 0:
                await anyio.sleep(0.01)
            inboxes = {keys.inbox(run.id) for run in runs}
            assert sum(store.open[name] for name in inboxes) == OWN_WATCHES
            model.open.set()
            for run in runs:
                await run.wait()
            assert store.most <= OWN_WATCHES + 1
            await (await kernel.submit("one more")).wait()  # its commits wake what still listens
            while store.open.total():
                await anyio.sleep(0.01)
