"""The executable specification passes the checks that every other store must pass (TST-04)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from purra.contracts.store import ANY, Append, Commit, Project, Put, Store
from purra.errors import StoreError
from purra.stores.memory import MemoryStore
from tests.conformance.store_subject import Subject, refusal
from tests.conformance.store_suite import CHECKS, Check, name_of, run_check


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    async def pass_time(self, ms: int) -> None:
        self.now_ms += ms


@asynccontextmanager
async def _subject() -> AsyncGenerator[Subject, None]:
    clock = _Clock()
    store: Store = MemoryStore(clock)

    async def same() -> Store:
        return store

    yield Subject(store, "test", 15_000, clock.pass_time, same, same)


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_contract(check: Check) -> None:
    """Contract `purra.store/1`, in this process."""
    run_check(check, _subject)


def _count(view: dict[str, Any], payload: Any) -> None:
    view["sum"] = view.get("sum", 0) + payload["n"]
    view.setdefault("seen", []).append(payload)
    if payload["n"] < 0:
        raise ValueError("negative")


def test_projector_commits_with_its_commit() -> None:
    """RUN-18: what a projector makes of a payload is there exactly if the commit is."""

    async def main() -> None:
        store = MemoryStore(projectors={"count": _count})

        async def commit(*ops: Any, key: str) -> Any:
            return await store.commit(Commit((Append("run", ANY, (key,)), *ops), ("run", key)))

        await commit(Project("count", {"n": 2}), Project("count", {"n": 3}), key="a")
        assert store.view("count") == {"sum": 5, "seen": [{"n": 2}, {"n": 3}]}
        detail = await refusal(commit(Project("count", {"n": -1}), key="b"), "storage")
        assert detail == {"project": "count", "type": "ValueError"}
        late = (Project("count", {"n": 9}), Put("doc", 1, 7))
        await refusal(commit(*late, key="c"), "conflict")
        await commit(Project("count", {"n": 2}), Project("count", {"n": 3}), key="a")
        assert store.view("count")["sum"] == 5
        assert (await store.read("run", 0, 10)).records == ("a",)

    anyio.run(main)


def test_two_stores_do_not_see_each_other() -> None:
    """Design, invariant 10: no global state."""

    async def main() -> None:
        first, second = MemoryStore(), MemoryStore()
        await first.commit(Commit((Put("doc", 1, 0),)))
        assert await second.get(["doc"]) == (None,)
        with pytest.raises(StoreError):
            await second.commit(Commit((Put("doc", 1, 1),)))

    anyio.run(main)
