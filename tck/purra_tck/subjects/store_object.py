"""A store that a function of the author's makes: each opening in a process of the kit's own."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import anyio

from purra.contracts.store import Commit, Document, Page, Receipt, Scan, ScanPage
from purra.errors import AdapterError, PurraError
from purra_tck.subjects import store_lines as lines
from purra_tck.subjects.store import Born, Opening
from purra_tck.verdict import SubjectFailed

__all__ = ["ObjectStorage"]

LINE_BYTES: Final = 256 * 1024 * 1024
START_S: Final = 20.0
CLOSE_S: Final = 5.0
CHUNK_BYTES: Final = 1024 * 1024
TAIL_BYTES: Final = 2000

Answers = asyncio.Queue[dict[str, Any] | None]


class ObjectStorage:
    """What `MODULE:FUNCTION` makes of `folder`. It is called anew in each process."""

    processes = True

    def __init__(self, address: str, folder: Path) -> None:
        self.folder: Path | None = folder
        self._address = address
        self._root = folder
        self._parts = itertools.count(1)

    @asynccontextmanager
    async def open(self, born: Born | None = None) -> AsyncGenerator[Opening, None]:
        near, far = socket.socketpair()
        with tempfile.TemporaryFile() as said:
            module = "purra_tck.subjects.store_child"
            process = subprocess.Popen(
                [sys.executable, "-m", module, self._address, str(self._root)],
                stdin=far.fileno(),
                stdout=far.fileno(),
                stderr=said.fileno(),
                start_new_session=True,
            )
            far.close()
            # Never `process.poll()` while it lives: waiting would take the tracer's stops away.
            end = os.pidfd_open(process.pid)
            try:
                if born is not None:
                    born(process.pid)
                reader, writer = await asyncio.open_connection(sock=near, limit=LINE_BYTES)
                async with ChildStore(reader, writer) as store:
                    await _ready(reader, said)
                    store.listen()
                    yield Opening(store, process.pid, lambda: not _ended(end))
                await _gone(end)
            finally:
                process.kill()
                process.wait()
                os.close(end)

    def advance(self, ms: int) -> bool:
        return False

    def apart(self) -> ObjectStorage:
        folder = self._root / f"part-{next(self._parts)}"
        folder.mkdir(mode=0o700)
        return ObjectStorage(self._address, folder)


async def _gone(pidfd: int) -> None:
    """Its standard input has ended, so it closes its store; not for ever."""
    with anyio.move_on_after(CLOSE_S):
        while not _ended(pidfd):
            await anyio.sleep(0.002)


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


async def _ready(reader: asyncio.StreamReader, said: Any) -> None:
    with anyio.move_on_after(START_S):
        text = await reader.readline()
        told = json.loads(text) if text else {"failed": "its process ended"}
        if told.get("ready"):
            return
        said.seek(0)
        tail = said.read()[-TAIL_BYTES:].decode(errors="replace")
        raise SubjectFailed("a store that starts", told["failed"], tail)
    raise SubjectFailed(f"a store that starts within {START_S:g} s", "it does not")


class ChildStore:
    """The store of a child, as `purra.contracts.store.Store`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = itertools.count(1)
        self._waiting: dict[int, Answers] = {}
        self._over = False
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ChildStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._end()
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # it was killed before it had read everything

    def listen(self) -> None:
        """From now on answers are taken."""
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def commit(self, commit: Commit) -> Receipt:
        return lines.receipt_of(await self._ask("commit", lines.commit_value(commit)))

    async def read(self, stream: str, after: int, limit: int) -> Page:
        return lines.page_of(await self._ask("read", [stream, after, limit]))

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        return tuple(row and Document(**row) for row in await self._ask("get", list(keys)))

    async def scan(self, scan: Scan) -> ScanPage:
        return lines.scan_page_of(await self._ask("scan", asdict(scan)))

    async def now(self) -> int:
        return int(await self._ask("now", None))

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        number, answers = self._send("watch", prefix)
        try:
            while True:
                yield _answer(await answers.get())["item"]
        finally:
            del self._waiting[number]
            self._say({"id": number, "cancel": True})

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        number, answers = self._send("blob_put", None)
        failure: Exception | None = None
        try:
            try:
                async for chunk in chunks:
                    for start in range(0, len(chunk), CHUNK_BYTES):
                        piece = b64encode(chunk[start : start + CHUNK_BYTES]).decode()
                        self._say({"id": number, "chunk": piece})
            except Exception as error:  # the sender's, whatever it is: told, and raised
                failure = error
                self._say({"id": number, "fail": repr(error)})
            self._say({"id": number, "end": True})
            digest: str = _answer(await answers.get())["result"]
        except PurraError:
            if failure is None:
                raise
            raise failure from None
        finally:
            del self._waiting[number]
        return digest

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        return b64decode(await self._ask("blob_get", [digest, offset, length]))

    async def _ask(self, method: str, args: Any) -> Any:
        number, answers = self._send(method, args)
        try:
            return _answer(await answers.get())["result"]
        finally:
            del self._waiting[number]

    def _send(self, method: str, args: Any) -> tuple[int, Answers]:
        number = next(self._count)
        answers: Answers = asyncio.Queue()
        self._waiting[number] = answers
        if self._over:
            answers.put_nowait(None)
        else:
            self._say({"id": number, "method": method, "args": args})
        return number, answers

    def _say(self, message: dict[str, Any]) -> None:
        if not self._over:
            self._writer.write(lines.line(message))

    async def _listen(self) -> None:
        try:
            while text := await self._reader.readline():
                message = json.loads(text)
                if message["id"] in self._waiting:
                    self._waiting[message["id"]].put_nowait(message)
        except OSError:
            pass  # the end of a child that was killed
        self._end()

    def _end(self) -> None:
        self._over = True
        for answers in self._waiting.values():
            answers.put_nowait(None)


def _answer(message: dict[str, Any] | None) -> dict[str, Any]:
    if message is None:
        raise AdapterError("crashed", "the process of the store has ended", origin="instance")
    if "error" in message:
        raise lines.error_of(message["error"])
    return message
