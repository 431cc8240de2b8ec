"""Time and randomness, passed in so that tests can hold them still."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

import anyio

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the kernel gets time and chance from."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970: in events for people, and for a run's absolute deadline."""

    def token(self, size: int = 8) -> str:
        """`2 * size` random hex digits, for ids."""

    async def wait(self, wake: anyio.Event, until_ms: int | None) -> None:
        """Returns when `wake` is set, or when `wall_ms` reaches `until_ms`, whichever is first."""


class SystemClock:
    """The machine's own."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def token(self, size: int = 8) -> str:
        return os.urandom(size).hex()

    async def wait(self, wake: anyio.Event, until_ms: int | None) -> None:
        if until_ms is None:
            await wake.wait()
            return
        # A timer on the loop: a cancel scope would cost more than the rest of a step's waiting.
        late = asyncio.get_running_loop().call_later(
            max(0, until_ms - self.wall_ms()) / 1000, wake.set
        )
        try:
            await wake.wait()
        finally:
            late.cancel()
