"""Whether a plugin may be started now, and what callers are told while it may not.

The memory around `purra_hosts.restarts`, which decides: one per route, without clock and loop. Each
failure is judged once; then either the next start has a time before which callers *wait* (`held`),
or the circuit is open and callers are *refused*. Being ready closes it.
"""

from __future__ import annotations

from collections.abc import Callable

from purra_bridge.wire.errors import WireError
from purra_hosts.restarts import (
    Again,
    Failure,
    History,
    Quarantine,
    RestartPolicy,
    after_failure,
)

__all__ = ["Circuit"]

_NEVER = float("inf")


class Circuit:
    """`failure`: why callers are refused, None while they are not. `last_error`: of the last
    instance that failed. `open_s`: when the next start may be tried.
    """

    def __init__(
        self, label: str, policy: RestartPolicy | None, chance: Callable[[], float]
    ) -> None:
        """`policy`: None = what has failed stays down. `chance`: in [0, 1), for jitter."""
        self._label = label
        self._policy = policy
        self._chance = chance
        self._history = History()
        self.failure: WireError | None = None
        self.last_error: WireError | None = None
        self.open_s = 0.0

    def held(self, now_s: float) -> bool:
        """No start may be tried yet."""
        return now_s < self.open_s

    @property
    def down(self) -> bool:
        """No start will be tried until somebody asks for one."""
        return self.open_s == _NEVER

    def refusal(self, now_s: float) -> WireError | None:
        """What callers are told at once, None if they may wait."""
        return self.failure if self.held(now_s) else None

    def close(self) -> None:
        """An instance is ready, or an operator wants a start whatever has been."""
        self.failure = None
        self.open_s = 0.0

    def fell(self, error: WireError, ran_s: float | None, now_s: float) -> None:
        """An instance failed; `ran_s` after it was ready, None if it never was."""
        self.last_error = error
        failure = Failure(error.code, ran_s)
        self._history, verdict = after_failure(
            self._policy, self._history, failure, now_s, self._chance()
        )
        if isinstance(verdict, Again):
            self.open_s = now_s + verdict.after_s
        elif isinstance(verdict, Quarantine):
            self.open_s = now_s + verdict.for_s
            self.failure = WireError(
                "quarantined",
                f"{self._label}: {verdict.reason}: {error.message}",
                after_ms=int(verdict.for_s * 1000),
                detail=error.detail,
            )
        else:
            self.open_s = _NEVER
            self.failure = error
