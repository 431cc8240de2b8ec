"""A process of the kit that opens an author's store and does what it is told, line by line.

    python -m purra_tck.subjects.store_child MODULE:FUNCTION FOLDER

reads requests from standard input and answers on standard output (`store_lines`). It exists to be
killed and paused in the middle of what it does. It ends with its standard input.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, replace
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from purra.adapters import local_store
from purra.contracts.store import Document, Store
from purra.values import thaw
from purra_tck.subjects import store_lines as lines

__all__ = ["Child", "main"]

Pieces = MemoryObjectReceiveStream[bytes | Exception]


class Child:
    """The store, and what is under way in it. `say` writes one message."""

    def __init__(self, store: Store, say: Callable[[dict[str, Any]], None]) -> None:
        self._store = store
        self._say = say
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._uploads: dict[int, MemoryObjectSendStream[bytes | Exception]] = {}

    async def take(self, message: dict[str, Any], tasks: TaskGroup) -> None:
        """One message: a request, a piece of an upload, or the end of one of them."""
        number = message["id"]
        if "method" in message:
            sender, pieces = anyio.create_memory_object_stream[bytes | Exception](float("inf"))
            self._uploads[number] = sender
            tasks.start_soon(self._serve, number, message["method"], message["args"], pieces)
        elif "cancel" in message:
            if number in self._scopes:
                self._scopes[number].cancel()
        elif number in self._uploads:
            if "chunk" in message:
                await self._uploads[number].send(b64decode(message["chunk"]))
            elif "fail" in message:
                await self._uploads[number].send(ConnectionResetError(message["fail"]))
            else:
                await self._uploads.pop(number).aclose()

    async def _serve(self, number: int, method: str, args: Any, pieces: Pieces) -> None:
        with anyio.CancelScope() as scope:
            self._scopes[number] = scope
            try:
                if method == "watch":
                    await self._watch(number, args)
                    answer = None
                elif method == "blob_put":
                    answer = await self._store.blob_put(_arriving(pieces))
                else:
                    answer = await self._methods()[method](args)
            except Exception as error:  # whatever the author's store raises is its answer
                self._say({"id": number, "error": lines.error_value(error)})
            else:
                self._say({"id": number, "result": answer})
        self._scopes.pop(number, None)
        self._uploads.pop(number, None)
        pieces.close()

    def _methods(self) -> dict[str, Callable[[Any], Awaitable[Any]]]:
        store = self._store

        async def commit(args: Any) -> Any:
            done = await store.commit(lines.commit_of(args))
            return {"heads": done.heads, "revisions": done.revisions}

        async def read(args: Any) -> Any:
            page = await store.read(*args)
            return {"records": thaw(page.records), "head": page.head, "sealed": page.sealed}

        async def get(args: Any) -> Any:
            return [found and _document(found) for found in await store.get(args)]

        async def scan(args: Any) -> Any:
            page = await store.scan(lines.scan_of(args))
            return {"documents": [_document(d) for d in page.documents], "more": page.more}

        async def now(_: Any) -> Any:
            return await store.now()

        async def blob_get(args: Any) -> Any:
            return b64encode(await store.blob_get(*args)).decode()

        return {f.__name__: f for f in (commit, read, get, scan, now, blob_get)}

    async def _watch(self, number: int, prefix: str) -> None:
        async with aclosing(self._store.watch(prefix)) as watch:
            async for name in watch:
                self._say({"id": number, "item": name})


def _document(found: Document) -> dict[str, Any]:
    return asdict(replace(found, value=thaw(found.value)))


async def _arriving(pieces: Pieces) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece


async def _opened(address: str, folder: str, stack: AsyncExitStack) -> Store:
    """What the author's function gives: a store, something to wait for, or a context manager."""
    module, _, name = address.partition(":")
    made = getattr(importlib.import_module(module), name)(folder)
    if inspect.isawaitable(made):
        made = await made
    if hasattr(made, "__aenter__"):
        made = await stack.enter_async_context(made)
    return local_store(made)


async def main(address: str, folder: str) -> None:
    """Serves until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what the author's code prints must not look like an answer

    def say(message: dict[str, Any]) -> None:
        data = memoryview(lines.line(message))
        while data:
            data = data[os.write(answers, data) :]

    async with AsyncExitStack() as stack:
        try:
            store = await _opened(address, folder, stack)
        except Exception as error:  # whatever it is, the kit is told why there is no store
            say({"failed": f"{type(error).__name__}: {error}"})
            return
        child = Child(store, say)
        say({"ready": True})
        async with anyio.create_task_group() as tasks:
            async for text in anyio.wrap_file(sys.stdin):
                await child.take(lines.unpacked(json.loads(text)), tasks)
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
