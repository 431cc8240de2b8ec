"""What an agent is, apart from the adapters it is bound to: who it is, what it is told, its bounds.

Values only. An embedder writes them by hand, an application lets `purra.manifest.host` read them
from its `[agent]` section; both give the same frozen type, which is checked here, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from purra.errors import PurraError
from purra.limits import MAX_ROUNDS, MAX_TOOL_CALLS, RUN_DEADLINE_S

__all__ = ["Agent", "Approvals", "PromptSection", "RunLimits", "SessionPolicy", "WriteBatch"]

WriteBatch = Literal["refuse", "serial"]
SessionPolicy = Literal["queue", "refuse"]
Approvals = Literal["none", "inbox"]


@dataclass(frozen=True, slots=True)
class PromptSection:
    """One named piece of the system prompt (PRE-02). Lower `order` stands earlier."""

    name: str
    order: int
    text: str


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Bounds of one run; each ends it with a code of its own.

    `max_rounds`, `max_tool_calls`: counts. `deadline_s`: wall time, waits included. `max_tokens`:
    input and output of all attempts together, None = not limited. `write_batch`: what becomes of a
    round that announces several writes, refused or run one after the other (design, gateway).

    Raises `PurraError(invalid_argument)` unless every bound is positive and finite: zero is never
    taken for "no limit".
    """

    max_rounds: int = MAX_ROUNDS
    max_tool_calls: int = MAX_TOOL_CALLS
    deadline_s: float = RUN_DEADLINE_S
    max_tokens: int | None = None
    write_batch: WriteBatch = "refuse"

    def __post_init__(self) -> None:
        bounds = {
            "max_rounds": self.max_rounds,
            "max_tool_calls": self.max_tool_calls,
            "deadline_s": self.deadline_s,
        }
        if self.max_tokens is not None:
            bounds["max_tokens"] = self.max_tokens
        for name, bound in bounds.items():
            if not (math.isfinite(bound) and bound > 0):
                raise PurraError(
                    "invalid_argument", "must be positive and finite", where=f"limits.{name}"
                )


@dataclass(frozen=True, slots=True)
class Agent:
    """Who runs: identity, prompt and bounds. Routing, credentials and databases are not part of it.

    `id` and `revision` go into every run's fingerprint. `session_policy`: a second run of a session
    waits its turn, or is refused with `session_busy`. `approvals`: where decisions come from;
    `none` = nobody can decide, so a call that needs approval fails with `approval_unavailable`.

    Raises `PurraError(invalid_argument)` for an empty id or revision and for two prompt sections of
    one name.
    """

    id: str
    revision: str
    prompt: tuple[PromptSection, ...] = ()
    limits: RunLimits = field(default_factory=RunLimits)
    session_policy: SessionPolicy = "queue"
    approvals: Approvals = "none"

    def __post_init__(self) -> None:
        for name, text in (("id", self.id), ("revision", self.revision)):
            if not text:
                raise PurraError("invalid_argument", "must not be empty", where=f"agent.{name}")
        names = [section.name for section in self.prompt]
        for name in names:
            if names.count(name) > 1:
                raise PurraError(
                    "invalid_argument", f"two sections are named {name!r}", where="agent.prompt"
                )

    @property
    def sections(self) -> tuple[PromptSection, ...]:
        """The prompt in the order in which the model gets it: by `order`, then by name."""
        return tuple(sorted(self.prompt, key=lambda section: (section.order, section.name)))
