"""Contract `purra.policy/1`: may this call happen?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from purra.contracts.call import CallContext

__all__ = ["CONTRACT", "Policy", "PolicyDecision", "PolicyRequest", "Verdict"]

CONTRACT = "purra.policy/1"

Verdict = Literal["allow", "deny", "deny_and_tell", "ask"]


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """One call that wants to run: who asks, which tool, which effect, with which arguments."""

    run: str
    session: str
    agent: str
    tool: str
    effect: str
    permission: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """`deny` ends the run; `deny_and_tell` gives the model a coded result; `ask` needs a person."""

    verdict: Verdict
    reason: str = ""


class Policy(Protocol):
    """Raising, a timeout or nonsense counts as deny (CAP-12); a policy cannot widen anything."""

    async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision: ...
