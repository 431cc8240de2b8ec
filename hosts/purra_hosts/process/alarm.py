"""One timer for any number of deadlines.

A timer per call costs a quarter of the throughput (measured); a call costs one comparison here, and
the timer is moved only for a deadline that is earlier than all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["NEVER", "Alarm"]

NEVER: Final = float("inf")
"""A deadline that does not exist."""


class Alarm:
    """Calls `ring(now_s, late_s)` when something is due; `ring` gives the next due time.

    Times are the loop's. `now_s` is never before what was due, whatever the clock's resolution.
    `late_s` is how late the loop itself was, which tells a stalled host from a silent plugin (H68).
    """

    __slots__ = ("_due", "_loop", "_ring", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ring: Callable[[float, float], float]
    ) -> None:
        self._loop = loop
        self._ring = ring
        self._due = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def by(self, when_s: float) -> None:
        """Rings at `when_s` or earlier."""
        if when_s < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due = when_s
            self._timer = self._loop.call_at(when_s, self._fire)

    def cancel(self) -> None:
        """Rings no more."""
        self._due = -NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        due, self._due, self._timer = self._due, NEVER, None
        now = max(self._loop.time(), due)
        self.by(self._ring(now, now - due))
