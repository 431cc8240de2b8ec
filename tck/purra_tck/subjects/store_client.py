"""A store as the checks call it: names in the check's name space, and refusals as verdicts."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from purra import values
from purra.contracts.store import (
    ANY,
    Append,
    Commit,
    Delete,
    Document,
    Drop,
    Op,
    Page,
    Put,
    Receipt,
    Scan,
    Seal,
    Touch,
)
from purra.errors import PurraError, StoreError
from purra_tck.verdict import Case, RuleViolation

if TYPE_CHECKING:
    from purra_tck.subjects.store import Opening

__all__ = ["Client", "at_once", "part", "refused", "shown", "woken"]

SHOWN_CHARS: Final = 300
PAGE_RECORDS: Final = 1000


class Client:
    """One opening. All names are suffixes of the check's name space."""

    def __init__(self, opening: Opening, ns: str) -> None:
        self.opening = opening
        self.store = opening.store
        self.ns = ns
        self._count = itertools.count()

    def name(self, suffix: str) -> str:
        """The full name of a stream or document."""
        return f"{self.ns}/{suffix}"

    def fence(self, **revisions: int) -> Mapping[str, int]:
        """For `require`, by suffix."""
        return {self.name(key): revision for key, revision in revisions.items()}

    async def commit(self, *ops: Op, **more: Any) -> Receipt:
        """A commit of ops with full names; one that appends gets a key that nobody used."""
        if "key" not in more and any(isinstance(op, Append) for op in ops):
            more["key"] = (self.name("keys"), f"{id(self)}:{next(self._count)}")
        return await self.store.commit(Commit(ops, **more))

    async def append(self, stream: str, *records: Any, expect: int = ANY, **more: Any) -> int:
        """Appends; gives the head."""
        if isinstance(more.get("key"), str):
            more["key"] = (self.name(stream), more["key"])
        name = self.name(stream)
        receipt = await self.commit(Append(name, expect, records), **more)
        return receipt.heads[name]

    async def put(self, key: str, value: Any, expect: int = 0, ttl_ms: int = 0) -> int:
        """Puts; gives the revision."""
        name = self.name(key)
        return (await self.commit(Put(name, value, expect, ttl_ms))).revisions[name]

    async def touch(self, key: str, expect: int, ttl_ms: int) -> int:
        """Touches; gives the revision."""
        name = self.name(key)
        return (await self.commit(Touch(name, expect, ttl_ms))).revisions[name]

    async def delete(self, key: str, expect: int) -> None:
        """Deletes."""
        await self.commit(Delete(self.name(key), expect))

    async def seal(self, *streams: str) -> None:
        """Seals."""
        await self.commit(*(Seal(self.name(stream)) for stream in streams))

    async def drop(self, stream: str) -> None:
        """Drops the records."""
        await self.commit(Drop(self.name(stream)))

    async def doc(self, key: str) -> Document | None:
        """The document, its value made of dicts and lists."""
        return (await self.docs(key))[0]

    async def docs(self, *keys: str) -> tuple[Document | None, ...]:
        """The documents, in the order of `keys`."""
        found = await self.store.get([self.name(key) for key in keys])
        return tuple(each and replace(each, value=values.thaw(each.value)) for each in found)

    async def read(self, stream: str, after: int, limit: int = 10) -> Page:
        """A page, its records made of dicts and lists."""
        page = await self.store.read(self.name(stream), after, limit)
        return replace(page, records=tuple(map(values.thaw, page.records)))

    async def head(self, stream: str) -> int:
        """The head of a stream."""
        return (await self.read(stream, 0, 1)).head

    async def records(self, stream: str, after: int = 0, limit: int = PAGE_RECORDS) -> list[Any]:
        """Everything after a cursor, page by page, of a stream of which nothing was dropped."""
        found: list[Any] = []
        while True:
            page = await self.read(stream, after + len(found), limit)
            found += page.records
            if after + len(found) >= page.head or not page.records:
                return found

    async def scan(self, prefix: str = "", **how: Any) -> list[Document]:
        """All documents of the name space that begin with `prefix`, page by page."""
        found: list[Document] = []
        after = self.name(how.pop("after")) if "after" in how else ""
        while True:
            page = await self.store.scan(Scan(self.name(prefix), after, **how))
            found += page.documents
            if not page.more:
                return found
            if not page.documents:
                raise RuleViolation("documents on a page that others follow", "an empty page")
            after = page.documents[-1].key

    async def claim(self, key: str, owner: str, ttl_ms: int) -> int:
        """Takes a lease as a kernel does; gives the term, 0 if somebody else has it."""
        found = await self.doc(key)
        if found is not None and not found.lapsed:
            return 0
        try:
            return await self.put(key, {"owner": owner}, found.revision if found else 0, ttl_ms)
        except StoreError as error:
            if error.code != "conflict":
                raise
            return 0


async def refused(
    case: Case, call: Awaitable[Any], code: str, what: str, detail: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Demands that `call` is refused with `code`, and with `detail` if that is given.

    `what` names the call in a sentence. Gives the detail. Raises `RuleViolation`.
    """
    malformed = code in ("invalid_argument", "invalid_value")
    try:
        outcome = await call
    except PurraError as error:
        told = f"{type(error).__name__} {error.code} {dict(error.detail)}"
        typed = error.code == code and (malformed or isinstance(error, StoreError))
        case.require(typed, f"{what} is refused with {code}", told)
        if detail is not None:
            wanted = f"{what} is refused with {code} {dict(detail)}"
            case.require(dict(error.detail) == dict(detail), wanted, told)
        return error.detail
    raise RuleViolation(f"{what} is refused with {code}", f"it succeeded: {shown(outcome)}")


async def at_once(*calls: Coroutine[Any, Any, Any]) -> None:
    """Makes all calls together, where their order does not matter: a slow store is asked once."""

    async def make(call: Coroutine[Any, Any, Any]) -> None:
        await call

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(make, call)


async def woken(watch: AsyncGenerator[str, None], name: str, within_s: float, what: str) -> None:
    """Returns when the watcher was told of `name`, or to look again.

    Raises `RuleViolation` if it is not told in time, or the watch ends.
    """
    with anyio.move_on_after(within_s):
        async for told in watch:
            if told in ("", name):
                return
        raise RuleViolation(f"a watch that goes on until it is closed ({what})", "it ended")
    raise RuleViolation(f"a wake-up within {within_s * 1000:.0f} ms of {what}", "none came")


def part(value: object, name: str) -> Any:
    """What a map says under `name`, None if it is no map or says nothing."""
    return value.get(name) if isinstance(value, Mapping) else None


def shown(value: object) -> str:
    """`value` for a person, shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"
