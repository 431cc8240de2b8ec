"""When a plugin that failed is started again. Pure: no clock, no chance, no process.

    history, verdict = after_failure(policy, history, Failure(...), now_s, chance)

Three rules. A short series of failures is answered by waiting longer each time, with jitter, so
that many plugins that fell together do not rise together. A long one, within a window, opens the
circuit: calls fail fast, and after a while exactly one start is tried. What cannot become better by
trying again (a manifest that does not match) is never tried again. Crashes of a running plugin and
failures to start are counted apart: a plugin that starts well and crashes rarely must not be put
away because its first start needed three tries.

An interval without a failure, long enough, forgets everything before it (SUP-012).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = [
    "PERMANENT",
    "Again",
    "Down",
    "Failure",
    "History",
    "Quarantine",
    "RestartPolicy",
    "Verdict",
    "after_failure",
]

PERMANENT: Final = frozenset(
    {"version_mismatch", "manifest_mismatch", "isolation_unavailable", "capability_denied"}
)
"""Codes that the same start would fail with again (HSK-003, SUP-012)."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """`most` failures within `window_s` are answered by a restart, the next one by quarantine.

    Waits: `first_s`, doubled up to `longest_s`, less up to the share `jitter`. `healthy_s` of
    running forgets the past. `quarantine_s` doubles with each quarantine, up to
    `longest_quarantine_s`.
    """

    most: int = 3
    window_s: float = 60.0
    first_s: float = 0.2
    longest_s: float = 30.0
    jitter: float = 0.25
    healthy_s: float = 60.0
    quarantine_s: float = 30.0
    longest_quarantine_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One end that nobody asked for. `ran_s`: how long it was ready, None if it never was."""

    code: str
    ran_s: float | None


@dataclass(frozen=True, slots=True)
class History:
    """Times of recent failures, of running plugins and of starts; quarantines since it was well."""

    crashes_s: tuple[float, ...] = ()
    starts_s: tuple[float, ...] = ()
    quarantines: int = 0


@dataclass(frozen=True, slots=True)
class Again:
    """Start it again, `after_s` from now."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The circuit is open: fail fast for `for_s`, then try exactly one start."""

    for_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Down:
    """It stays down until somebody starts it."""


Verdict = Again | Quarantine | Down


def after_failure(
    policy: RestartPolicy | None, history: History, failure: Failure, now_s: float, chance: float
) -> tuple[History, Verdict]:
    """The new history and what to do. `chance` is in [0, 1); without a policy it stays down."""
    if policy is None or failure.code in PERMANENT:
        return history, Down()
    if failure.ran_s is None and failure.code == "protocol_violation":
        return history, Down()  # it does not speak the protocol at all (HSK-001)
    if failure.ran_s is not None and failure.ran_s >= policy.healthy_s:
        history = History()
    since_s = now_s - policy.window_s
    if failure.ran_s is None:
        recent_s = (*(at for at in history.starts_s if at > since_s), now_s)
        history = replace(history, starts_s=recent_s)
        what = "failed to start"
    else:
        recent_s = (*(at for at in history.crashes_s if at > since_s), now_s)
        history = replace(history, crashes_s=recent_s)
        what = "ended by itself"
    if len(recent_s) > policy.most or (history.quarantines and failure.ran_s is None):
        return _quarantined(policy, history, f"it {what} {len(recent_s)} times ({failure.code})")
    wait_s = min(policy.first_s * 2 ** (len(recent_s) - 1), policy.longest_s)
    return history, Again(wait_s * (1 - policy.jitter * chance))


def _quarantined(policy: RestartPolicy, history: History, reason: str) -> tuple[History, Verdict]:
    for_s = min(policy.quarantine_s * 2**history.quarantines, policy.longest_quarantine_s)
    # The counts begin anew: what follows is judged by the one start that is tried (half-open).
    return History(quarantines=history.quarantines + 1), Quarantine(for_s, reason)
