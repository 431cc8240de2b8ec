"""How much a plugin was called, and how it did: numbers alone, nothing of what was said."""

from __future__ import annotations

__all__ = ["Figures"]


class Figures:
    """Of the calls of one route since it was made. `ended`: those with a result or an error,
    whoever made it; `failed`: those with an error. What a caller gave up counts as neither.
    """

    __slots__ = ("_took_s", "ended", "failed", "longest_s")

    def __init__(self) -> None:
        self.ended = 0
        self.failed = 0
        self.longest_s = 0.0
        """Of one call, from its arrival here to its end, waiting included."""
        self._took_s = 0.0

    def end(self, took_s: float, failed: bool) -> None:
        """One more call has ended."""
        self.ended += 1
        self.failed += failed
        self._took_s += took_s
        self.longest_s = max(self.longest_s, took_s)

    @property
    def mean_s(self) -> float:
        """Of all calls that have ended; 0 without any."""
        return self._took_s / self.ended if self.ended else 0.0
