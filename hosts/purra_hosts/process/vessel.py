"""What carries one instance: a process of its own, or a thread of ours. The life is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from purra_hosts.process.spawn import Exit

__all__ = ["Vessel"]


class Vessel(Protocol):
    """Belongs to one event loop. `exit`: how it ended, None while it goes on."""

    exit: Exit | None

    @property
    def pid(self) -> int | None:
        """The process, None if it has none of its own."""

    def watch(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[Exit], None]) -> None:
        """Calls `on_exit` once, from the loop, when it has ended."""

    def signal_group(self, number: int) -> bool:
        """Signals it and all it left behind. False: that was not possible."""

    def kill_now(self) -> Exit | None:
        """Ends it without the loop. None: it would not end."""

    def close(self) -> None:
        """Stops watching."""
