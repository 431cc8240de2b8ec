"""What goes between host and plugin, seen at the port: every call, its items and its end.

The kit counts effects and intervals here and not in the plugin: a plugin that is broken is a bad
witness, and a call that never went out had no effect whatever anybody says.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from purra.values import thaw
from purra_bridge.ports.channel import Channel, Items, Request
from purra_bridge.wire.errors import WireError

__all__ = ["Sent", "Tap", "TappedChannel"]

TAPPED: Final = 120
"""Messages that are kept for a report: the last ones."""
SHOWN_CHARS: Final = 400


@dataclass(slots=True)
class Sent:
    """One call that went out. Seconds since the tap was made; `ended_s` None: it goes on."""

    id: int
    request: Request
    began_s: float
    ended_s: float | None = None
    value: Any = None
    error: WireError | None = None
    items: list[Any] = field(default_factory=list)

    def overlaps(self, other: Sent) -> bool:
        """Whether both were on their way at one moment."""
        first, second = sorted((self, other), key=lambda sent: sent.began_s)
        return first.ended_s is None or second.began_s < first.ended_s


class Tap:
    """All calls of one subject, and the last messages decoded."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._kept: deque[tuple[float, int, str, str, int, Any]] = deque(maxlen=TAPPED)
        self.calls: list[Sent] = []
        self.said: list[str] = []
        """What plugins printed and logged, line by line."""

    def now_s(self) -> float:
        return time.perf_counter() - self._began_s

    def note(self, process: int, sender: str, kind: str, call: int, body: Any) -> None:
        """Records one message."""
        self._kept.append((self.now_s(), process, sender, kind, call, body))

    def rows(self) -> list[dict[str, Any]]:
        """The last messages, for a report."""
        return [
            {
                "ms": round(at_s * 1000, 2),
                "process": process,
                "from": sender,
                "kind": kind,
                "call": call,
                "decoded": repr(body)[:SHOWN_CHARS],
            }
            for at_s, process, sender, kind, call, body in self._kept
        ]

    def took(self, line: dict[str, Any]) -> None:
        """A log line of the host."""
        text = str(line.get("text", line.get("msg", line)))
        self.said.append(text)
        self.note(0, "plugin", "LOG", 0, text)


class TappedChannel:
    """Implements `purra_bridge.ports.channel.Channel` around another one."""

    def __init__(self, channel: Channel, tap: Tap, process: int) -> None:
        self._channel = channel
        self._tap = tap
        self._process = process

    async def call(self, request: Request, on_item: Callable[[Any], None] | None = None) -> Any:
        sent = self._begin(request)

        def take(item: Any) -> None:
            self._item(sent, item)
            if on_item is not None:
                on_item(item)

        try:
            return self._ended(sent, await self._channel.call(request, take))
        except WireError as error:
            self._failed(sent, error)
            raise
        finally:
            self._over(sent)

    def stream(self, request: Request) -> Items:
        return _TappedItems(self, self._channel, request)

    async def upload(self, request: Request, chunks: AsyncIterable[bytes]) -> Any:
        sent = self._begin(request)
        try:
            return self._ended(sent, await self._channel.upload(request, chunks))
        except WireError as error:
            self._failed(sent, error)
            raise
        finally:
            self._over(sent)

    def _begin(self, request: Request) -> Sent:
        sent = Sent(len(self._tap.calls) + 1, request, self._tap.now_s())
        self._tap.calls.append(sent)
        shown = f"{request.adapter}.{request.method} {thaw(request.args)!r}"
        self._tap.note(self._process, "host", "CALL", sent.id, shown)
        return sent

    def _item(self, sent: Sent, item: Any) -> None:
        sent.items.append(item)
        self._tap.note(self._process, "plugin", "DATA", sent.id, item)

    def _ended(self, sent: Sent, value: Any) -> Any:
        sent.ended_s, sent.value = self._tap.now_s(), value
        self._tap.note(self._process, "plugin", "RESULT", sent.id, value)
        return value

    def _failed(self, sent: Sent, error: WireError) -> None:
        sent.ended_s, sent.error = self._tap.now_s(), error
        whose = "host" if error.origin in ("host", "instance", "caller") else "plugin"
        self._tap.note(self._process, whose, "ERROR", sent.id, error.to_body())

    def _over(self, sent: Sent) -> None:
        """A task that was cancelled waits for no end."""
        if sent.ended_s is None:
            sent.ended_s = self._tap.now_s()
            self._tap.note(self._process, "host", "CANCEL", sent.id, "")


class _TappedItems:
    """Implements `purra_bridge.ports.channel.Items`."""

    def __init__(self, channel: TappedChannel, inner: Channel, request: Request) -> None:
        self._channel = channel
        self._request = request
        self._items = inner.stream(request)
        self._sent: Sent | None = None

    @property
    def result(self) -> Any:
        return self._items.result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        channel = self._channel
        sent = self._sent = self._sent or channel._begin(self._request)
        try:
            item = await self._items.__anext__()
        except StopAsyncIteration:
            if sent.ended_s is None:
                channel._ended(sent, self._items.result)
            raise
        except WireError as error:
            if sent.ended_s is None:
                channel._failed(sent, error)
            raise
        channel._item(sent, item)
        return item

    async def aclose(self) -> None:
        await self._items.aclose()
        if self._sent is not None:
            self._channel._over(self._sent)
