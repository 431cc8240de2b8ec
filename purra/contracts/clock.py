"""Time and randomness, passed in so that tests can hold them still."""

from __future__ import annotations

import os
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the kernel gets time and chance from. Waiting goes through anyio, not through here."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people to read; never compared across machines."""

    def monotonic_s(self) -> float:
        """Seconds that never go back, for timeouts."""

    def token(self, size: int = 8) -> str:
        """`2 * size` random hex digits, for ids."""


class SystemClock:
    """The machine's own."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def token(self, size: int = 8) -> str:
        return os.urandom(size).hex()
