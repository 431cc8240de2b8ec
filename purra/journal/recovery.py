"""The one ledger that decides every retry and every second chance (invariant 11, REC-01..10).

A cause without a row has no second chance (REC-02). Budgets count per run and cause, stand in the
journal, and a takeover does not reset them (REC-03). A decision holds no content: cause, action,
budget (REC-08).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from purra.journal.events import Fact
from purra.journal.state import Failure

__all__ = ["RULES", "Rule", "ruling"]

Action = Literal["retry", "tell_model"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`budget`: allowed recoveries per run. `backoff_ms`: doubled for each one already used."""

    action: Action
    budget: int
    backoff_ms: int = 0


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        # The model's transport: a new attempt, if nothing of the old one was seen.
        "upstream_stream_interrupted": Rule("retry", 2, 200),
        "rate_limited": Rule("retry", 3, 1000),
        "upstream": Rule("retry", 2, 500),
        "overloaded": Rule("retry", 2, 500),
        "empty_response": Rule("retry", 1),
        "malformed_tool_batch": Rule("retry", 1),
        # The model's own slips: it is told what was wrong and goes on.
        "unknown_tool": Rule("tell_model", 3),
        "invalid_tool_arguments_json": Rule("tell_model", 3),
        "invalid_tool_arguments_shape": Rule("tell_model", 3),
        "tool_arguments_too_large": Rule("tell_model", 2),
        "too_many_calls": Rule("tell_model", 2),
        "write_batch_refused": Rule("tell_model", 2),
        "permission_denied": Rule("tell_model", 3),
    }
)
"""Second chances by cause."""


def ruling(failure: Failure, used: int, now_ms: int) -> Fact:
    """The decision on `failure`, `used` recoveries of its cause into the run.

    `now_ms` is the time of the event that failed, so that folding again decides the same.
    """
    rule = RULES.get(failure.code)
    budget = rule.budget if rule else 0
    seen = failure.visible and rule is not None and rule.action == "retry"
    allowed = rule is not None and used < budget and not seen
    data: dict[str, Any] = {
        "cause": failure.code,
        "action": rule.action if rule and allowed else "stop",
        "allowed": allowed,
        "used": used + allowed,
        "budget": budget,
    }
    if failure.attempt:
        data["attempt"] = failure.attempt
    if rule and allowed and rule.action == "retry":
        wait_ms = max(failure.retry_after_ms, rule.backoff_ms << used)
        if wait_ms:
            data["not_before_ms"] = now_ms + wait_ms
    return Fact("recovery.decided", data, failure.seq)
