"""What is true of a run after its events so far. `fold` owns and changes it; nobody else does.

Everything that a step needs is here as a running total (tokens, digests, counts), so that a step
costs the same at round 1 and at round 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from purra.contracts.messages import Message
from purra.contracts.tool import READ_EFFECTS

__all__ = ["Attempt", "Batch", "Call", "Failure", "RunState", "Status", "UsageTotal"]

Status = Literal["new", "running", "waiting", "blocked", "completed", "failed", "canceled"]
CallPhase = Literal["announced", "admitted", "asked", "approved", "claimed", "interrupted", "done"]


@dataclass(slots=True)
class UsageTotal:
    """Tokens of all attempts. `unreported`: an attempt whose provider did not say (MOD-13)."""

    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    def value(self) -> dict[str, Any]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "unreported_attempts": self.unreported,
        }


@dataclass(slots=True)
class Attempt:
    """The open request to the model. `interrupted`: its owner lost the run."""

    number: int
    seq: int
    max_tokens: int
    interrupted: bool = False


@dataclass(slots=True)
class Call:
    """One announced tool call. `id` is attempt.ordinal; `alias` is the provider's own id."""

    id: str
    alias: str
    name: str
    text: str
    phase: CallPhase = "announced"
    plan: Mapping[str, Any] = field(default_factory=dict)
    """From `tool.batch.admitted`: arguments, digest, effect, idempotency, approval, timeout_ms."""
    key: str = ""
    """Idempotency key: the same for each claim, unlike any other call's (TOOL-17)."""
    claims: int = 0
    seq: int = 0
    """Of the event that brought the call to its phase."""
    expires_ms: int = 0
    result: Mapping[str, Any] | None = None

    @property
    def reads(self) -> bool:
        """Whether its effect class leaves nothing behind; a call that was never admitted does."""
        return self.plan.get("effect", "pure") in READ_EFFECTS

    @property
    def repeatable(self) -> bool:
        """Dispatching it (again) does no second effect: it never ran, reads, or honours its key."""
        keyed = self.plan.get("idempotency") in ("supported", "required")
        return not self.claims or self.reads or keyed

    @property
    def in_doubt(self) -> bool:
        """Whether its owner was lost between claim and receipt of an effect that happens once."""
        return self.phase == "interrupted" and not self.repeatable


@dataclass(slots=True)
class Batch:
    """The calls of one round, from announcement to the last result."""

    round: int
    seq: int
    at_ms: int
    calls: dict[str, Call]
    verdict: Literal["pending", "admitted", "refused"] = "pending"
    serial: bool = False
    done: int = 0
    """Calls that have their result."""
    failed: bool = False
    """One of the results is an error."""

    @property
    def open(self) -> bool:
        return self.done < len(self.calls)


@dataclass(slots=True)
class Failure:
    """Something failed; the ledger has not decided yet, or decided that it is the end."""

    code: str
    message: str
    seq: int
    origin: str = "kernel"
    attempt: int = 0
    visible: bool = False
    retry_after_ms: int = 0
    final: bool = False


@dataclass(slots=True)
class RunState:
    """The whole state. `ending` is set once the run can only end, with the status it ends in."""

    run: str = ""
    seq: int = 0
    status: Status = "new"
    started: Mapping[str, Any] = field(default_factory=dict)
    started_ms: int = 0
    now_ms: int = 0
    """When the last event happened: the only time that `decide` knows."""
    term: int = 0
    kernel: str = ""

    context: Mapping[str, Any] | None = None
    messages: list[Message] = field(default_factory=list)
    """The run's own conversation: the prompt, then rounds and results. Never rewritten."""
    transcript: str = ""
    """Rolling digest of `messages`."""
    estimate: int = 0
    """Estimated tokens of everything the model sees."""

    attempts: int = 0
    rounds: int = 0
    attempt: Attempt | None = None
    final_round: Mapping[str, Any] | None = None
    promoted: str = ""
    batch: Batch | None = None
    calls_used: int = 0
    usage: UsageTotal = field(default_factory=UsageTotal)
    effects: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Calls of `effects` of which nobody knows yet whether they took effect."""

    failure: Failure | None = None
    recovered: dict[str, int] = field(default_factory=dict)
    """Recoveries used, by cause; a takeover does not reset them (REC-03)."""
    not_before_ms: int = 0

    inbox: int = 0
    cancel: Mapping[str, Any] | None = None
    deadline_passed: bool = False
    blocked: tuple[str, ...] = ()
    complete_step: bool = False
    todos: Any = None
    terminal: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "canceled")

    @property
    def limits(self) -> Mapping[str, Any]:
        limits: Mapping[str, Any] = self.started["limits"]
        return limits

    @property
    def final_text(self) -> str:
        return str(self.final_round["text"]) if self.final_round else ""
