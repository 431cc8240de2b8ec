"""Time and randomness, passed in so that tests can hold them still."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the kernel gets time and chance from."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970: in events for people, and for a run's absolute deadline."""

    def token(self, size: int = 8) -> str:
        """`2 * size` random hex digits, for ids."""

    def alarm(self, at_ms: int, ring: Callable[[], object]) -> Callable[[], object]:
        """Calls `ring` from the event loop, once, when `wall_ms` has reached `at_ms`; a bit early
        is allowed. What it gives back calls the alarm off."""


class SystemClock:
    """The machine's own."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def token(self, size: int = 8) -> str:
        return os.urandom(size).hex()

    def alarm(self, at_ms: int, ring: Callable[[], object]) -> Callable[[], object]:
        wait_s = max(0, at_ms - self.wall_ms()) / 1000
        return asyncio.get_running_loop().call_later(wait_s, ring).cancel
