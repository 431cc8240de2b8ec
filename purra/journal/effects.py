"""What `decide` asks for. Each effect has a deterministic id, so that the shell can reconcile.

A `Record` is a fact that follows from the state alone: the shell journals it at once and decides
again. All others take time; the shell starts what is missing and stops what is no longer asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from purra.journal.events import Fact

__all__ = ["AssembleContext", "CallModel", "CallTool", "Effect", "Preflight", "Record", "WaitUntil"]


@dataclass(frozen=True, slots=True)
class Record:
    """Journal `fact`. `durable`: the commit must survive loss of power."""

    fact: Fact
    durable: bool = False


@dataclass(frozen=True, slots=True)
class AssembleContext:
    """Ask the context providers. Ends with `context.assembled` or `context.failed`."""

    @property
    def id(self) -> str:
        return "context"


@dataclass(frozen=True, slots=True)
class CallModel:
    """Make attempt `attempt`. Ends with `model.round`, `attempt.failed`, `attempt.superseded`."""

    attempt: int

    @property
    def id(self) -> str:
        return f"model:{self.attempt}"


@dataclass(frozen=True, slots=True)
class Preflight:
    """Check the whole batch of `round`. Ends with `tool.batch.admitted` or `tool.batch.refused`."""

    round: int

    @property
    def id(self) -> str:
        return f"preflight:{self.round}"


@dataclass(frozen=True, slots=True)
class CallTool:
    """Claim call `call` for the `claim`-th time and dispatch it. Ends with
    `tool.call.completed`."""

    call: str
    claim: int

    @property
    def id(self) -> str:
        return f"call:{self.call}:{self.claim}"


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Wait for the wall clock. Ends with `timer.fired`, or with `approval.expired` for a call."""

    timer: str
    at_ms: int

    @property
    def id(self) -> str:
        return f"timer:{self.timer}:{self.at_ms}"


Effect = Record | AssembleContext | CallModel | Preflight | CallTool | WaitUntil
