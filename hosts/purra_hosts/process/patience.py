"""How long a start may still take, stage by stage."""

from __future__ import annotations

from purra_hosts.process.alarm import NEVER
from purra_hosts.process.timings import Timings

__all__ = ["Patience"]


class Patience:
    """Times are the loop's. `due_s`: when the present stage is over at the latest."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._stage_s = 0.0
        self._latest_s = NEVER
        self.due_s = NEVER

    def spawned(self, now_s: float) -> float:
        """HELLO is waited for; until when."""
        self._stage_s = self._timings.hello_s
        self.due_s = now_s + self._stage_s
        return self.due_s

    def welcomed(self, now_s: float) -> float:
        """READY is waited for; until when, unless the plugin asks for more."""
        self._stage_s = self._timings.ready_s
        self._latest_s = now_s + self._timings.ready_longest_s
        self.due_s = now_s + self._stage_s
        return self.due_s

    def extended(self, now_s: float, more_s: float) -> float:
        """The plugin asks for more, and gets it up to a bound (H04)."""
        self.due_s = min(max(now_s + more_s, self.due_s), self._latest_s)
        return self.due_s

    def forgive(self, now_s: float) -> None:
        """The host itself stood still: the stage begins anew (H68)."""
        if self.due_s != NEVER:
            self.due_s = max(self.due_s, now_s + self._stage_s)
            self._latest_s = max(self._latest_s, self.due_s)

    def over(self) -> None:
        """Nothing is waited for any more."""
        self.due_s = NEVER
