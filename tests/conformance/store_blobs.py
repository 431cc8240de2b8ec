"""Blobs: byte-exact, by digest, all or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable

from tests.conformance.store_subject import Subject, refusal


async def _chunks(content: bytes, size: int) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _content(s: Subject, size: int) -> bytes:
    """Bytes that no other check stores: the pattern of a hash of the namespace."""
    block = hashlib.sha512(s.ns.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


async def check_blobs_come_back_exactly(s: Subject) -> None:
    """STO-026: of every size around the bounds of a chunk, however it was cut up."""
    for size in (0, 1, 100, 65535, 65536, 65537, 200_000):
        content = _content(s, size)
        for cut in (size or 1, 7919):
            assert await s.store.blob_put(_chunks(content, cut)) == _digest(content)
        found = await s.store.blob_get(_digest(content), 0, size + 1)
        assert found == content


async def check_parts_of_a_blob(s: Subject) -> None:
    """STO-026: from any offset, as many bytes as asked or as there are."""
    content = _content(s, 150_000)
    digest = await s.store.blob_put(_chunks(content, 50_000))
    for offset in (0, 1, 65535, 65536, 65537, 149_999, 150_000, 10**9):
        for length in (1, 65536, 65537, 10**9):
            found = await s.store.blob_get(digest, offset, length)
            assert found == content[offset : offset + length], (offset, length)


async def check_an_unknown_digest_is_not_found(s: Subject) -> None:
    """STO-026: also one that is no digest at all."""
    for digest in (_digest(b"nobody stored this " + s.ns.encode()), "sha256:", "x"):
        assert await refusal(s.store.blob_get(digest, 0, 1), "not_found") == {"digest": digest}


async def check_a_partial_put_leaves_nothing(s: Subject) -> None:
    """STO-026: an upload that breaks off, early or late, cannot be found, and can be repeated."""
    for size in (10, 100_000, 6 * 1024 * 1024):
        content = _content(s, size)

        async def broken(content: bytes = content) -> AsyncGenerator[bytes, None]:
            yield content[: len(content) // 2]
            yield content[len(content) // 2 :]
            raise ConnectionResetError("the uploader died")

        await _fails(s, broken())
        await refusal(s.store.blob_get(_digest(content), 0, 1), "not_found")
    assert await s.store.blob_put(_chunks(content, 1 << 20)) == _digest(content)
    tail = await s.store.blob_get(_digest(content), len(content) - 100, 200)
    assert tail == content[-100:]


async def check_blobs_outlive_the_store(s: Subject) -> None:
    """STO-026: they can be read after a reopening, and by a peer."""
    content = _content(s, 70_000)
    digest = await s.store.blob_put(_chunks(content, 10_000))
    peer = await s.peer()
    assert await peer.blob_get(digest, 0, 100_000) == content
    store = await s.reopen()
    assert await store.blob_get(digest, 0, 100_000) == content


async def _fails(s: Subject, chunks: AsyncIterable[bytes]) -> None:
    try:
        await s.store.blob_put(chunks)
    except Exception:  # whatever way the store has of passing the uploader's failure on
        return
    raise AssertionError("an upload that broke off was taken as whole")
