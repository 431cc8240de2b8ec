"""STO-022, 025, 026: values and blobs come back as they were given, and nothing else does."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio

from purra.contracts.store import ANY, VALUE_DEPTH, Append, Put, Scan
from purra.errors import AdapterError, PurraError
from purra_tck.checks import Checks
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import StoreSubject
from purra_tck.subjects.store_client import Client, at_once, refused, shown
from purra_tck.verdict import Case, RuleViolation

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

VECTORS: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    1e16,
    1e22,
    5e-324,
    1.7976931348623157e308,
    123456789.123456789,
    "",
    "\x00 \x1f \x7f \u2028 \ufeff",
    "é 中文 😀 \U0010ffff e\u0301",
    '"quoted" \\ / \n\r\t',
    "NaN",
    "1",
    [],
    {},
    [[[[[]]]]],
    {"": {"": [None, {"\x00": -0.0}]}},
    {"z": 1, "a": 2, "1": 3, "é": 4},
    {"1": "text", "1.0": "float", "true": True, "null": None},
    [1, 1.0, True, "1"],
)
GROWTH_BYTES: Final = 1024 * 1024
"""What storing a blob a second time may cost: a page here and there, not the blob."""


def _exact(value: Any) -> Any:
    """A form in which equal means equal: types, signs of zero and the order of maps included."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return ("map", [(key, _exact(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return ("list", [_exact(item) for item in value])
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, value)


@CHECKS.rule("STO-022")
@judged
async def values_come_back_exactly(case: Case, subject: StoreSubject) -> None:
    """A journal is replayed. An integer that comes back as a float is another history."""
    a = await subject.client()
    await a.append("run", *VECTORS)
    await at_once(*(a.put(f"doc{number}", value) for number, value in enumerate(VECTORS)))
    deep: Any = "bottom"
    for level in range(VALUE_DEPTH):
        deep = [deep] if level % 2 else {"k": deep}
    large = {"text": "é" * (512 * 1024), "numbers": list(range(1000))}
    await a.append("large", large, deep)
    await a.put("deep", deep)
    source = {"list": [1, 2]}
    await a.append("mine", source)
    await a.put("mine", source)
    source["list"].append(3)
    a = await subject.reopened()
    documents = await a.docs(*(f"doc{n}" for n in range(len(VECTORS))))
    records = await a.records("run")
    case.equal(len(records), len(VECTORS), "records that were appended")
    for value, record, document in zip(VECTORS, records, documents, strict=True):
        case.equal(_exact(record), _exact(value), f"the record {shown(value)}")
        found = document and _exact(document.value)
        case.equal(found, _exact(value), f"the document {shown(value)}")
    found = await a.records("large")
    case.equal(len(found), 2, "large records that were appended")
    found_large, found_deep = found
    case.require(
        _exact(found_large) == _exact(large), "a record of 1 MiB, unchanged", shown(found_large)
    )
    case.equal(_exact(found_deep), _exact(deep), f"a record {VALUE_DEPTH} levels deep")
    page = await a.store.scan(Scan(a.name("deep")))
    case.equal([_exact(d.value) for d in page.documents], [_exact(deep)], "a document as deep")
    mine = [_exact(await a.records("mine"))[1][0], _exact((await a.doc("mine")).value)]  # type: ignore[union-attr]
    case.equal(mine, [_exact({"list": [1, 2]})] * 2, "values whose source was changed afterwards")
    await _names(case, a)
    await _outside(case, a)


async def _names(case: Case, a: Client) -> None:
    suffixes = ["\x00", "%", "_", "'", "é😀", " ", "A", "a", "x" * (1024 - len(a.ns) - 1)]
    await at_once(*(a.append(suffix, suffix) for suffix in suffixes))
    await at_once(*(a.put(suffix, suffix) for suffix in suffixes))

    async def back(suffix: str) -> None:
        case.equal(await a.records(suffix), [suffix], f"the stream {shown(suffix)}")
        found = await a.doc(suffix)
        case.equal(found and (found.key, found.value), (a.name(suffix), suffix), "its document")

    await at_once(*map(back, suffixes))


async def _outside(case: Case, a: Client) -> None:
    outside: list[Any] = [
        float("nan"), float("inf"), 2**63, -(2**63) - 1, b"bytes", {1: "a"}, "\ud800",
        {"\udfff": 1}, {1, 2}, object(),
    ]  # fmt: skip
    for value in outside:
        nested = (value, [value], {"k": {"n": value}})
        await at_once(
            *(_refused(case, a.append("bad", "ok", each), each) for each in nested),
            *(_refused(case, a.put("bad", each), each) for each in nested),
        )
    case.equal(await a.head("bad"), 0, "the head of a stream of values outside the model")
    case.equal(await a.doc("bad"), None, "the document of a value outside the model")


async def _refused(case: Case, call: Awaitable[Any], value: Any) -> None:
    await refused(case, call, "invalid_value", f"a value outside the model, {shown(value)}")


@CHECKS.rule("STO-025")
@judged
async def nothing_outside_its_names(case: Case, subject: StoreSubject) -> None:
    """Two users of one storage, and two runs of this kit, must not meet."""
    a, witness = await subject.clients(2)
    before = {d.key for d in await _everything(a)}
    outside: list[str] = []
    async with aclosing(witness.store.watch("")) as watch, anyio.create_task_group() as tasks:

        async def listen() -> None:
            async for told in watch:
                outside.extend([told] if told and not told.startswith("tck-") else [])

        tasks.start_soon(listen)
        first = await _use(a, "first/")
        case.equal(first[:3], [2, ["x", "y"], 2], "a head, the records and the head again")
        case.equal(first[4:], [b"the same bytes", ["conflict"] * 2], "a blob and two refusals")
        await subject.close(a)
        a = await subject.client()
        second = await _use(a, "second/")
        tasks.cancel_scope.cancel()
    case.equal(second, first, "what the same work gives, done again on the same storage")
    case.equal(outside, [], "names that a watcher of everything is told, outside its name space")
    case.equal(await _use(a, "first/"), first, "what the same work gives where it was done before")
    found = {d.key for d in await _everything(a)} - before
    strange = sorted(key for key in found if not key.startswith("tck-"))
    case.equal(strange, [], "documents outside its name space")
    for part in ("first/", "second/"):
        for document in await a.scan(part):
            await a.delete(document.key.removeprefix(a.ns + "/"), document.revision)
    left = [d.key for d in await a.scan("first/")] + [d.key for d in await a.scan("second/")]
    case.equal(left, [], "documents after all were deleted")


async def _everything(a: Client) -> list[Any]:
    found: list[Any] = []
    while True:
        page = await a.store.scan(Scan("", found[-1].key if found else "", 1000))
        found += page.documents
        if not page.more:
            return found


async def _use(a: Client, part: str) -> Any:
    """Some work that gives the same each time, whatever the storage went through."""
    stream, doc = a.name(part + "run"), a.name(part + "doc")
    receipt = await a.commit(Append(stream, ANY, ("x", "y")), key=(stream, "k"))
    found = await a.doc(part + "doc")
    revision = await a.put(part + "doc", "v", found.revision if found else 0)
    await a.delete(part + "doc", revision)
    digest = await a.store.blob_put(_pieces(b"the same bytes", 5))
    refusals = []
    for op in (Append(stream, 9, ("z",)), Put(doc, 1, revision + 7)):
        try:
            await a.commit(op)
        except PurraError as error:
            refusals.append(error.code)
    await a.seal(part + "other")
    page = await a.store.read(stream, 0, 10)
    content = await a.store.blob_get(digest, 0, 100)
    return [receipt.heads[stream], list(page.records), page.head, digest, content, refusals]


async def _pieces(content: bytes, size: int) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _content(a: Client, size: int, tag: str = "") -> bytes:
    """Bytes that no other check stores."""
    block = hashlib.sha512(f"{a.ns} {tag}".encode()).digest()
    return (block * (size // len(block) + 1))[:size]


@CHECKS.rule("STO-026")
@judged
async def blobs_are_whole_or_not_there(case: Case, subject: StoreSubject) -> None:
    """A large result is named by its digest. What that gives must be those bytes."""
    a = await subject.client()
    for size in (0, 1, 100, 65535, 65536, 65537, 200_000):
        content = _content(a, size)
        for cut in (size or 1, 7919):
            digest = await a.store.blob_put(_pieces(content, cut))
            case.equal(digest, _digest(content), f"the digest of {size} bytes in pieces of {cut}")
        found = await a.store.blob_get(digest, 0, size + 1)
        case.require(found == content, f"{size} bytes back, exactly", f"{len(found)} bytes")
    for offset in (0, 1, 65535, 65536, 65537, 199_999, 200_000, 10**9):
        for length in (1, 65536, 65537, 10**9):
            found = await a.store.blob_get(digest, offset, length)
            wanted = content[offset : offset + length]
            what = f"{len(wanted)} bytes from {offset} of 200000, {length} asked"
            case.require(found == wanted, what, f"{len(found)} bytes")
    for unknown in (_digest(b"nobody stored this " + a.ns.encode()), "sha256:", "x"):
        call = a.store.blob_get(unknown, 0, 1)
        await refused(case, call, "not_found", f"the digest {unknown}", {"digest": unknown})
    for offset, length in ((-1, 1), (0, 0), (0, -5)):
        call = a.store.blob_get(digest, offset, length)
        await refused(case, call, "invalid_argument", f"{length} bytes from {offset}")
    await _broken_off(case, a)
    await _once(case, subject, a)
    if subject.storage.processes:
        await _killed(case, subject)
    else:
        a = await subject.reopened()
        case.equal(await a.store.blob_get(digest, 0, 10**6), content, "the blob, reopened")


async def _broken_off(case: Case, a: Client) -> None:
    """An upload whose sender fails, early or late, leaves nothing and can be repeated."""
    for size in (10, 100_000, 6 * 1024 * 1024):
        content = _content(a, size, "broken")

        async def broken(content: bytes = content) -> AsyncGenerator[bytes, None]:
            yield content[: len(content) // 2]
            yield content[len(content) // 2 :]
            raise ConnectionResetError("the sender died")

        try:
            taken = await a.store.blob_put(broken())
        except (ConnectionResetError, PurraError):
            pass
        else:
            raise RuleViolation("an upload that broke off is refused", f"it was taken as {taken}")
        call = a.store.blob_get(_digest(content), 0, 1)
        await refused(case, call, "not_found", f"a blob of {size} bytes whose upload broke off")
    await a.store.blob_put(_pieces(content, 1 << 20))
    tail = await a.store.blob_get(_digest(content), size - 100, 200)
    case.equal(tail, content[-100:], "the end of a blob whose upload was repeated")


async def _once(case: Case, subject: StoreSubject, a: Client) -> None:
    folder = subject.storage.folder
    content = _content(a, 4 * 1024 * 1024, "twice")
    await a.store.blob_put(_pieces(content, 1 << 18))
    before_bytes = _size(folder)
    crowd = await subject.others(2)
    async with anyio.create_task_group() as tasks:
        for client in crowd:
            tasks.start_soon(client.store.blob_put, _pieces(content, 1 << 18))
    growth_bytes = _size(folder) - before_bytes
    case.require(
        growth_bytes <= GROWTH_BYTES,
        f"4 MiB that are stored again add at most {GROWTH_BYTES} bytes",
        f"{growth_bytes} bytes more",
    )
    found = await crowd[-1].store.blob_get(_digest(content), 0, len(content))
    case.require(found == content, "the bytes that were stored three times", f"{len(found)} bytes")


def _size(folder: Path | None) -> int:
    if folder is None:
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def _killed(case: Case, subject: StoreSubject) -> None:
    """The store's process dies in the middle of an upload, and right after its end."""
    a = await subject.client()
    content = _content(a, 3 * 1024 * 1024, "killed")
    kill: Callable[[], Any] = a.opening.kill

    async def cut_short() -> AsyncGenerator[bytes, None]:
        yield content[: 2 * 1024 * 1024]
        await kill()
        yield content[2 * 1024 * 1024 :]

    try:
        await a.store.blob_put(cut_short())
    except AdapterError:
        case.saw("the store was killed in the middle of an upload")
    b = await subject.client()
    for part in (content, content[: 2 * 1024 * 1024]):
        call = b.store.blob_get(_digest(part), 0, 1)
        await refused(case, call, "not_found", "a blob whose store was killed during its upload")
    await b.store.blob_put(_pieces(content, 1 << 20))
    await b.opening.kill()
    c = await subject.client()
    found = await c.store.blob_get(_digest(content), 0, len(content) + 1)
    case.require(
        found == content, "a blob that was acknowledged before SIGKILL", f"{len(found)} bytes"
    )
