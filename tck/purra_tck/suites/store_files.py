"""STO-023, 024: formats of other versions, and media that fail."""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from purra.errors import AdapterError, StoreError
from purra_tck.checks import Checks
from purra_tck.faults.points import Points, Record
from purra_tck.faults.tracing import TraceRefused
from purra_tck.subjects.judging import judged
from purra_tck.subjects.store import Born, StoreSubject
from purra_tck.subjects.store_client import Client, refused, shown
from purra_tck.verdict import Case, NotApplicable, RuleViolation, SubjectFailed, Untestable

__all__ = ["CHECKS"]

CHECKS = Checks("STO")

SQLITE: Final = b"SQLite format 3\x00"
SQLITE_VERSION_AT: Final = 60
"""`user_version` in the header of an SQLite file, where programs keep their format's number."""
POINTS: Final = 3
FOREIGN: Final = b"Dear diary, this is not a store.\n" * 400
FULL_BYTES: Final = 4096
"""A process that may not write beyond this place of any file finds the disk full."""
HEAD_BYTES: Final = 4096
"""What stays whole of a file whose pages are broken."""


@CHECKS.rule("STO-023")
@judged
async def formats_are_not_guessed(case: Case, subject: StoreSubject) -> None:
    """A store of a newer version is left alone: whoever writes into what it does not understand
    destroys it. And a conversion that is cut off leaves the old format or the new.
    """
    subject.need_processes()
    own = subject.apart()
    a = await own.client()
    await a.append("run", "kept")
    await a.append("run", "too")
    await a.put("doc", "kept")
    case.equal(await a.records("run"), ["kept", "too"], "the records in the format of today")
    await own.close(a)
    folder = _folder(own)
    newer = _make_newer(folder, 1)
    before = _bytes(folder)
    try:
        a = await own.client()
        observed = f"it opened, and gave {shown(await a.records('run'))}"
    except SubjectFailed as failed:
        case.saw(f"a newer format: {failed.observed}")
    except (StoreError, AdapterError) as error:
        case.require(error.code == "storage", "a newer format is refused as storage", str(error))
    else:
        raise RuleViolation(f"a store of a newer format is refused ({newer})", observed)
    case.require(
        _bytes(folder) == before,
        "a store of a newer format is left as it is, byte for byte",
        f"changed: {[name for name, found in _bytes(folder).items() if before.get(name) != found]}",
    )
    _make_newer(folder, -1)
    a = await own.client()
    case.equal(await a.records("run"), ["kept", "too"], "the records, its format being known again")
    await own.close(a)
    await _foreign(case, own, folder)
    await _cut_off_while_made(case, subject)


async def _foreign(case: Case, own: StoreSubject, folder: Path) -> None:
    """A file that another program has put there is refused, and stays that program's."""
    files = sorted((path.stat().st_size, path) for path in folder.rglob("*") if path.is_file())
    for _, path in files[:-1]:
        path.unlink()
    files[-1][1].write_bytes(FOREIGN)
    before = _bytes(folder)
    try:
        a = await own.client()
        observed = f"it opened, and its head is {await a.head('run')}"
    except (SubjectFailed, StoreError, AdapterError) as error:
        case.saw(f"a file of another program: {error}")
    else:
        raise RuleViolation("a file of another program is refused", observed)
    case.require(_bytes(folder) == before, "another program's file is left alone", "it is changed")


def _folder(subject: StoreSubject) -> Path:
    if subject.storage.folder is None:
        raise Untestable("its files are not on this machine")
    return subject.storage.folder


def _make_newer(folder: Path, step: int) -> str:
    """Raises the number of the format, of every file that has one in a known place."""
    changed: list[str] = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.read_bytes()[: len(SQLITE)] != SQLITE:
            continue
        with path.open("r+b") as file:
            file.seek(SQLITE_VERSION_AT)
            number = int.from_bytes(file.read(4), "big") + step
            file.seek(SQLITE_VERSION_AT)
            file.write(number.to_bytes(4, "big"))
        changed.append(f"{path.name}: format {number}")
    if not changed:
        raise Untestable("the kit does not know where this store writes its format's number")
    return ", ".join(changed)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def _cut_off_while_made(case: Case, subject: StoreSubject) -> None:
    """Killed while it makes its files, or converts nothing into its first format."""
    probe = subject.apart()
    records: list[Record] = []

    def watch(pid: int) -> None:
        records.append(Record(pid, str(_folder(probe))))
        records[0].__enter__()

    a = await probe.client(watch)
    records[0].__exit__(None, None, None)
    await probe.close(a)
    if records[0].refused:
        case.saw(f"its making cannot be cut off here: {records[0].refused}")
        return
    labels = records[0].points
    case.saw(f"its making has {len(labels)} points: {shown(labels)}")
    chance = random.Random(case.seed)
    numbers = range(1, len(labels) + 1)
    for number in sorted(chance.sample(numbers, min(POINTS, len(labels)))):
        own = subject.apart()
        reached = await _killed_while_made(own, number)
        a = await own.client()
        case.equal(await a.records("run"), [], f"records, killed before {reached} of its making")
        case.equal(await a.append("run", 1), 1, f"the first head, killed before {reached}")
        case.equal(await a.put("doc", 1), 1, f"the first revision, killed before {reached}")
        await own.close(a)


async def _killed_while_made(own: StoreSubject, number: int) -> str:
    armed: list[Points] = []

    def arm(pid: int) -> None:
        points = Points(pid, number, str(_folder(own)))
        try:
            points.arm()
        except TraceRefused:
            return  # it will come up whole
        armed.append(points)

    born: Born = arm
    try:
        client = await own.client(born)
    except SubjectFailed:
        pass  # it died, as it should
    else:
        await own.close(client)
    finally:
        for points in armed:
            points.disarm()
    return armed[0].reached if armed and armed[0].reached else "nothing"


@CHECKS.rule("STO-024")
@judged
async def a_medium_that_fails_is_an_error(case: Case, subject: StoreSubject) -> None:
    """What was not written must not be acknowledged, and what was written before must stay."""
    subject.need_processes()
    if sys.platform != "linux":
        raise NotApplicable("a disk is made full by a limit that only Linux sets from outside")
    own = subject.apart()
    a = await own.client()
    await a.append("run", "kept", {"n": 1})
    await a.put("doc", "kept")
    await a.put("lease", "kept", 0, 10**8)
    digest = await a.store.blob_put(_once(b"kept"))
    before = await _state(a, digest)
    with _full(a):
        for what, size in (("an append", 1), ("a larger append", 200_000)):
            append = a.append("run", "x" * size, key=what, durable=True)
            await refused(case, append, "storage", f"{what} on a full disk")
        await refused(case, a.put("new", 1), "storage", "a put on a full disk")
        await refused(case, a.delete("doc", 1), "storage", "a delete on a full disk")
        blob = a.store.blob_put(_once(b"y" * 100_000))
        await refused(case, blob, "storage", "a blob on a full disk")
        case.equal(await _state(a, digest), before, "what is there while the disk is full")
    case.equal(await _state(a, digest), before, "what is there when there is room again")
    case.equal(await a.append("run", "x", key="an append"), 3, "the head, written again")
    await a.opening.kill()
    a = await own.client()
    case.equal(await a.records("run"), ["kept", {"n": 1}, "x"], "the records, reopened")
    case.equal(await a.docs("new"), (None,), "the document that was refused, reopened")
    await own.close(a)
    await _broken_pages(case, own, digest)


@contextmanager
def _full(a: Client) -> Iterator[None]:
    pid = a.opening.pid or 0
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
    try:
        yield
    finally:
        if a.opening.alive():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


async def _once(content: bytes) -> Any:
    yield content


async def _state(a: Client, digest: str) -> Any:
    page = await a.read("run", 0)
    content = await a.store.blob_get(digest, 0, 100)
    return page, await a.docs("doc", "lease", "new"), content


async def _broken_pages(case: Case, own: StoreSubject, digest: str) -> None:
    """Every page but the first is garbage: each answer is the old one, or an error with a code."""
    broken = 0
    for path in _folder(own).rglob("*"):
        if path.is_file() and path.stat().st_size > HEAD_BYTES:
            with path.open("r+b") as file:
                file.seek(HEAD_BYTES)
                file.write(b"\xa5" * (path.stat().st_size - HEAD_BYTES))
            broken += 1
    if not broken:
        case.saw("it has no file whose pages could be broken")
        return
    answers: list[str] = []
    try:
        a = await own.client()
    except SubjectFailed as failed:
        case.saw(f"broken pages: it does not start, {failed.observed}")
        return
    looks: dict[str, Callable[[], Awaitable[Any]]] = {
        "records": lambda: a.records("run"),
        "documents": lambda: a.docs("doc"),
        "a blob": lambda: a.store.blob_get(digest, 0, 100),
    }
    for what, look in looks.items():
        try:
            answers.append(f"{what}: {shown(await look())}")
        except StoreError as error:
            case.require(error.code == "storage", f"{what} on broken pages: storage", str(error))
        except AdapterError as error:
            answers.append(f"{what}: {error}")
    case.require(not answers, "what is on broken pages is refused as storage", "; ".join(answers))
