"""A channel that says what a test wrote down, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from typing import Any, Self

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError

__all__ = ["ScriptedChannel"]


class ScriptedChannel:
    """`answer` is the value of RESULT, or the `WireError` of ERROR; `items` come before it."""

    def __init__(self, answer: Any = None, items: tuple[Any, ...] = ()) -> None:
        self._answer = answer
        self._items = items
        self.requests: list[Request] = []
        self.uploaded = b""
        self.closed = 0

    async def call(self, request: Request, on_item: Callable[[Any], None] | None = None) -> Any:
        self.requests.append(request)
        for item in self._items:
            if on_item is not None:
                on_item(item)
        return self._end()

    def stream(self, request: Request) -> ScriptedItems:
        self.requests.append(request)
        return ScriptedItems(self, list(self._items))

    async def upload(self, request: Request, chunks: AsyncIterable[bytes]) -> Any:
        self.requests.append(request)
        async for chunk in chunks:
            self.uploaded += chunk
        return self._end()

    def _end(self) -> Any:
        if isinstance(self._answer, WireError):
            raise self._answer
        return self._answer


class ScriptedItems:
    """The items of one stream."""

    def __init__(self, channel: ScriptedChannel, items: list[Any]) -> None:
        self._channel = channel
        self._items = items
        self.result: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._items:
            return self._items.pop(0)
        self.result = self._channel._end()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._channel.closed += 1
