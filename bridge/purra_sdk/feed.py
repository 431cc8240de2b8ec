"""The items of one generator on their way into frames.

An item that comes alone is written at once. Items that come faster than a write is worth are kept
and leave as one frame: that is most of the speed of a stream, and costs a lone item nothing
(perf, B). What is kept leaves with the next write of anybody, so at the latest when the standby
looks. How many are kept follows from what the last frame weighed: at most about
`FRAME_BYTES`, because a frame is also what overshoots the caller's window.
"""

from __future__ import annotations

from time import monotonic

from purra_bridge.wire.errors import WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .link import Link

__all__ = ["Feed"]

GAP_S = 0.000_25
"""An item after a longer gap is written at once: about what a write and a wake-up cost, tenfold."""
KEEP_S = 0.001
"""Nothing is kept longer while items keep coming."""
FRAME_BYTES = 8 * 1024
ITEMS_MAX = 512


class Feed:
    """What a stream has produced and not framed yet. All of it: lock held.

    `fault`: why an item could not be sent; the stream must end then.
    """

    __slots__ = ("_call_id", "_items", "_last_s", "_limit", "_link", "_written_s", "fault")

    def __init__(self, link: Link, call_id: int) -> None:
        self._link = link
        self._call_id = call_id
        self._items: list[Any] = []
        self._limit = 1
        self._last_s = 0.0
        self._written_s = 0.0
        self.fault: BaseException | None = None

    def add(self, item: Any) -> bool:
        """Takes one item; whether it is time to write."""
        if type(item) is bytes or type(item) is bytearray:
            self.frame()
            self._link.session.chunk(self._call_id, bytes(item))
            return True
        items = self._items
        items.append(item)
        if len(items) == 1:
            self._link.held.append(self.frame)
        now = monotonic()
        due = (
            now - self._last_s > GAP_S
            or len(items) >= self._limit
            or now - self._written_s > KEEP_S
        )
        self._last_s = now
        if due:
            self._written_s = now
        return due

    def frame(self) -> None:
        """Makes frames of what was kept."""
        items, self._items = self._items, []
        if not items:
            return
        session = self._link.session
        before = session.pending_bytes
        try:
            session.items(self._call_id, items)
        except (ValueError, WireError):
            self._one_by_one(items)
            return
        weight = max(1, session.pending_bytes - before)
        fit = FRAME_BYTES * len(items) // weight
        self._limit = max(1, min(fit, self._limit * 2, ITEMS_MAX))

    def _one_by_one(self, items: list[Any]) -> None:
        """Sends what stands before the item that is no strict value, then says which it was."""
        for item in items:
            try:
                self._link.session.items(self._call_id, [item])
            except (ValueError, WireError) as refused:
                self.fault = refused
                return
