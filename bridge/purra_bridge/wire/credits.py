"""Windows: how much DATA may be under way. Both ends count the same bytes, from the header.

The cost of a DATA frame is its body length and `FRAME_COST_BYTES`, so many tiny or empty frames are
not free either. A sender may start a frame while its credit is above 0, so it overshoots by at most
one frame; a receiver therefore checks *before* it subtracts. Counting decoded sizes instead was
rejected: encoders differ, and credit leaks away until the stream stands still (H32).

The receiver's view is never behind the sender's: it adds credit when CREDIT is written, the sender
when it arrives. So a correct sender is never judged a cheat.
"""

from __future__ import annotations

from purra_bridge.wire.errors import ProtocolViolation

__all__ = ["FRAME_COST_BYTES", "ReceiveWindow", "SendWindow"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FRAME_COST_BYTES = 32
"""What a DATA frame costs besides its body."""


class SendWindow:
    """What we may still send. `credit` may be below 0 by one frame."""

    __slots__ = ("credit", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.credit = window

    def add(self, count: Any) -> None:
        """The peer has consumed `count` bytes.

        Raises `ProtocolViolation(flow)` for anything but a positive integer, and for more than was
        sent (STR-005).
        """
        if type(count) is not int or count <= 0:
            raise ProtocolViolation("flow", f"credit of {count!r}, not a positive count of bytes")
        if self.credit + count > self.window:
            raise ProtocolViolation("flow", f"credit of {count} bytes that were never sent")
        self.credit += count


class ReceiveWindow:
    """What the peer may still send, and what we have consumed but not told it yet."""

    __slots__ = ("due", "left", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.left = window
        self.due = 0

    def charge(self, cost: int) -> None:
        """A frame of `cost` has come in. Raises `ProtocolViolation(flow)` if it had no credit."""
        if self.left <= 0:
            raise ProtocolViolation("flow", f"DATA with no credit left of {self.window} bytes")
        self.left -= cost

    def consume(self, cost: int) -> int:
        """`cost` has been taken; returns the credit to send now, 0 while under half a window."""
        due = self.due + cost
        if cost < 0 or due > self.window - self.left:
            raise ValueError(f"{cost} bytes consumed that were not received, or consumed twice")
        if due * 2 < self.window:
            self.due = due
            return 0
        self.due = 0
        self.left += due
        return due
