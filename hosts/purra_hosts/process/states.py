"""What may follow what in the life of an instance: one table, nothing else is legal.

    STARTING → HANDSHAKE → INIT → READY → DRAINING → STOPPING → TERM → KILL → REAPED
       │          │         │      ├→ TAINTED → DRAINING
       │          │         │      └→ UNRESPONSIVE → TERM
       └──────────┴─────────┴→ FAILED → TERM → KILL → REAPED        (and, at the end, ABANDONED)

A stop wins over a start (LIF-005), so STOPPING is reached from each step before READY too. Whatever
the state, the process may be gone at any moment: GONE leads to REAPED from wherever the instance
has been told to end; before that an end is a FAULT first.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = [
    "ANNOUNCED",
    "ENDED",
    "LIVE",
    "STARTS",
    "TABLE",
    "IllegalStepError",
    "State",
    "Step",
    "after",
]


class State(Enum):
    """Where one instance is. Only READY takes calls."""

    STARTING = "starting"
    HANDSHAKE = "handshake"
    INIT = "init"
    READY = "ready"
    TAINTED = "tainted"
    UNRESPONSIVE = "unresponsive"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"
    TERM = "term"
    KILL = "kill"
    REAPED = "reaped"
    ABANDONED = "abandoned"


class Step(Enum):
    """What happens to an instance."""

    SPAWNED = "spawned"
    WELCOMED = "welcomed"
    OFFERED = "offered"
    """READY arrived and equals the manifest."""
    LEAVE = "leave"
    """Somebody wants it to end in order, the host or the plugin itself."""
    TAINT = "taint"
    """A call did not end within the grace time after its cancel."""
    SILENT = "silent"
    """No bytes and no answer to a PING for too long."""
    FAULT = "fault"
    """It died, broke the protocol, or did not start."""
    DRAINED = "drained"
    """No call is left, or their time is over."""
    DEAF = "deaf"
    """It is still there after the time this state gives it."""
    CONDEMN = "condemn"
    """It must not do anything more, not even end in order."""
    GONE = "gone"
    """The process was reaped."""


class IllegalStepError(Exception):
    """A step that is not in the table: a fault of the host."""


STARTS: Final = frozenset({State.STARTING, State.HANDSHAKE, State.INIT})
LIVE: Final = STARTS | {State.READY}
"""Nothing has gone wrong and nobody has asked it to end."""
ENDED: Final = frozenset({State.REAPED, State.ABANDONED})

TABLE: Final[dict[tuple[State, Step], State]] = {
    (State.STARTING, Step.SPAWNED): State.HANDSHAKE,
    (State.HANDSHAKE, Step.WELCOMED): State.INIT,
    (State.INIT, Step.OFFERED): State.READY,
    **{(state, Step.LEAVE): State.STOPPING for state in STARTS},
    **{(state, Step.FAULT): State.FAILED for state in LIVE},
    (State.READY, Step.LEAVE): State.DRAINING,
    (State.READY, Step.TAINT): State.TAINTED,
    (State.READY, Step.SILENT): State.UNRESPONSIVE,
    (State.TAINTED, Step.LEAVE): State.DRAINING,
    (State.DRAINING, Step.DRAINED): State.STOPPING,
    (State.DRAINING, Step.FAULT): State.FAILED,
    (State.STOPPING, Step.FAULT): State.FAILED,
    (State.UNRESPONSIVE, Step.DEAF): State.TERM,
    (State.STOPPING, Step.DEAF): State.TERM,
    (State.FAILED, Step.DEAF): State.TERM,
    (State.FAILED, Step.CONDEMN): State.KILL,
    (State.TERM, Step.DEAF): State.KILL,
    (State.KILL, Step.DEAF): State.ABANDONED,
    **{
        (state, Step.GONE): State.REAPED
        for state in (State.UNRESPONSIVE, State.STOPPING, State.FAILED, State.TERM, State.KILL)
    },
}

ANNOUNCED: Final[dict[State, str]] = {
    State.STARTING: "plugin.starting",
    State.HANDSHAKE: "plugin.handshaking",
    State.INIT: "plugin.initializing",
    State.READY: "plugin.ready",
    State.TAINTED: "plugin.tainted",
    State.UNRESPONSIVE: "plugin.unresponsive",
    State.DRAINING: "plugin.draining",
    State.STOPPING: "plugin.stopping",
    State.FAILED: "plugin.crashed",
    State.TERM: "plugin.terminated",
    State.KILL: "plugin.killed",
    State.REAPED: "plugin.stopped",
    State.ABANDONED: "plugin.abandoned",
}
"""The event each state is announced by, once per instance."""


def after(state: State, step: Step) -> State:
    """The next state. Raises `IllegalStepError` where the table has none."""
    try:
        return TABLE[state, step]
    except KeyError:
        raise IllegalStepError(f"{step.name} in {state.name}") from None
