"""A store in a plugin as the kernel's `Store`.

Commits are the kernel's most frequent calls. So their values get the quick look only that keeps
bytes and NaN out (the wire would carry bytes), and names and numbers are left to the plugin. A call
that fails the look, or that the plugin refuses as unreadable, is gone through properly, to name the
part that is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from typing import Any, Final

from purra.contracts import answers
from purra.contracts.shapes import violation
from purra.contracts.store import (
    Append,
    Commit,
    Document,
    Op,
    Page,
    Project,
    Put,
    Receipt,
    Scan,
    ScanPage,
)
from purra.stores import shape
from purra.values import is_strict
from purra_bridge.ports.channel import Channel, Request
from purra_bridge.ports.faults import store_error
from purra_bridge.ports.payloads import commit_args, field, scan_args
from purra_bridge.wire.errors import WireError

__all__ = ["HostedStore"]

RAW_WINDOW_BYTES: Final = 1024 * 1024
"""Credit of a blob's stream: the wire's default for raw bytes; the caller has to ask for it."""


class HostedStore:
    """The store `adapter` of the plugin behind `channel`."""

    def __init__(self, channel: Channel, adapter: str) -> None:
        self._channel = channel
        self._adapter = adapter

    async def commit(self, commit: Commit) -> Receipt:
        if not all(map(_is_strict, commit.ops)):
            shape.checked_commit(commit)  # raises
        found = await self._ask("commit", commit_args(commit), lambda: shape.checked_commit(commit))
        return answers.receipt(found, commit)

    async def read(self, stream: str, after: int, limit: int) -> Page:
        args = {"stream": stream, "after": after, "limit": limit}
        found = await self._ask("read", args, lambda: shape.require_page(stream, after, limit))
        return answers.page(found, limit)

    async def get(self, keys: Sequence[str]) -> tuple[Document | None, ...]:
        found = await self._ask("get", {"keys": list(keys)}, lambda: shape.require_keys(keys))
        return answers.documents(field(found, "documents", "get"), keys)

    async def scan(self, scan: Scan) -> ScanPage:
        found = await self._ask("scan", scan_args(scan), lambda: shape.require_scan(scan))
        return answers.scan_page(found, scan)

    async def watch(self, prefix: str) -> AsyncGenerator[str, None]:
        shape.require_prefix(prefix, "prefix")
        items = self._channel.stream(Request(self._adapter, "watch", {"prefix": prefix}))
        try:
            async for item in items:
                yield answers.watched_name(item, "watch")
        except WireError as error:
            raise store_error(error) from error
        finally:
            await items.aclose()

    async def now(self) -> int:
        return answers.clock_ms(field(await self._ask("now", {}), "now_ms", "now"), "now")

    async def blob_put(self, chunks: AsyncIterable[bytes]) -> str:
        try:
            found = await self._channel.upload(Request(self._adapter, "blob_put", {}), chunks)
        except WireError as error:
            raise store_error(error) from error
        return answers.digest_name(field(found, "digest", "blob_put"), "digest")

    async def blob_get(self, digest: str, offset: int, length: int) -> bytes:
        shape.require_blob_range(offset, length)
        args = {"digest": digest, "offset": offset, "length": length}
        items = self._channel.stream(
            Request(self._adapter, "blob_get", args, window_bytes=RAW_WINDOW_BYTES)
        )
        joined = bytearray()
        try:
            async for chunk in items:
                if not isinstance(chunk, (bytes, bytearray, memoryview)):
                    raise violation("blob", f"bytes expected, found {type(chunk).__name__}")
                joined += chunk
                if len(joined) > length:
                    raise violation("blob", f"more than the {length} bytes that were asked for")
        except WireError as error:
            raise store_error(error) from error
        finally:
            await items.aclose()
        return bytes(joined)

    async def _ask(self, method: str, args: Any, explain: Callable[[], object] = int) -> Any:
        """`explain` raises the precise error if the call itself is to blame for a refusal."""
        try:
            return await self._channel.call(Request(self._adapter, method, args))
        except WireError as error:
            if error.code in ("invalid_argument", "contract_violation"):
                explain()
            raise store_error(error) from error


def _is_strict(op: Op) -> bool:
    if type(op) is Append:
        return is_strict(op.records)
    if type(op) is Put:
        return is_strict(op.value)
    return type(op) is not Project or is_strict(op.payload)
