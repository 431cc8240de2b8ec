"""A store between two instances: what is asked again, and what is not (RUN-06, invariant 11)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from purra.contracts.store import Append, Commit, Page, Put
from purra.errors import AdapterError, StoreError
from purra.runs.patience import PatientStore
from purra.stores.memory import MemoryStore

HERE = pytest.mark.anyio
GONE = AdapterError("crashed", "killed", origin="instance", executed="maybe")


class Shaky(MemoryStore):
    """Fails after it has done what was asked, `failures` times."""

    def __init__(self, failures: int, error: AdapterError = GONE) -> None:
        super().__init__()
        self.failures = failures
        self.error = error
        self.asked = 0

    def _shake(self) -> None:
        self.asked += 1
        if self.failures > 0:
            self.failures -= 1
            raise self.error

    async def commit(self, commit: Commit) -> Any:
        receipt = await super().commit(commit)
        self._shake()
        return receipt

    async def read(self, stream: str, after: int, limit: int) -> Page:
        page = await super().read(stream, after, limit)
        self._shake()
        return page

    async def blob_put(self, chunks: Any) -> str:
        digest = await super().blob_put(chunks)
        self._shake()
        return digest

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        async for name in super().watch(prefix):
            yield name
            self._shake()


Ask = Callable[[PatientStore], Awaitable[Any]]


async def put_blob(store: PatientStore) -> Any:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    digest = await store.blob_put(chunks())
    return await store.blob_get(digest, 0, 100)


KEYED = Commit((Append("s", 0, ({"n": 1},)),), ("s", "seq:0"))


@HERE
@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda store: store.read("s", 0, 1), Page((), 0, False)),
        (put_blob, b"one two"),
    ],
)
async def test_what_changes_nothing_is_asked_again(ask: Ask, answer: Any) -> None:
    assert await ask(PatientStore(Shaky(2))) == answer


@HERE
async def test_a_commit_with_a_key_is_sent_again_and_done_once() -> None:
    shaky = Shaky(2)
    receipt = await PatientStore(shaky).commit(KEYED)
    assert receipt.heads == {"s": 1} and shaky.asked == 3
    assert (await shaky.read("s", 0, 9)).records == ({"n": 1},)


@HERE
async def test_a_commit_without_a_key_is_not_sent_again() -> None:
    shaky = Shaky(1)
    with pytest.raises(AdapterError):
        await PatientStore(shaky).commit(Commit((Put("k", 1, 0),)))
    assert shaky.asked == 1


@HERE
@pytest.mark.parametrize(
    "error",
    [
        AdapterError("internal", "a bug", origin="plugin"),
        AdapterError("manifest_mismatch", "no", origin="host", detail={"retry": "never"}),
        AdapterError("quarantined", "later", origin="host", retry_after_ms=60_000),
    ],
)
async def test_what_would_fail_again_is_told_at_once(error: AdapterError) -> None:
    shaky = Shaky(1, error)
    with pytest.raises(AdapterError) as caught:
        await PatientStore(shaky).read("s", 0, 1)
    assert caught.value is error and shaky.asked == 1


@HERE
async def test_what_the_store_says_is_final() -> None:
    store = PatientStore(Shaky(0))
    await store.commit(KEYED)
    with pytest.raises(StoreError):
        await store.commit(Commit((Append("s", 0, ({"n": 2},)),), ("s", "other")))


@HERE
async def test_a_broken_watch_says_look_again() -> None:
    store = PatientStore(Shaky(2))
    names = store.watch("s")
    with anyio.fail_after(5):
        assert [await anext(names) for _ in range(3)] == ["", "", ""]
    await names.aclose()
