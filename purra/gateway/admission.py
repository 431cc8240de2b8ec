"""The gateway's decision on a whole batch, before any of it starts: preflight, then policy.

One failure starts no handler (TOOL-09). What a policy says is journaled with the admission; a
policy that raises, is late or makes no sense denies (CAP-12). Nothing here can widen what
preflight allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from purra.agent import Agent
from purra.contracts.call import CallContext
from purra.contracts.policy import Policy, PolicyDecision, PolicyRequest
from purra.errors import CODES, PurraError
from purra.gateway.preflight import Admitted, AdmittedCall, Preflight, Refused
from purra.journal.events import Fact
from purra.journal.state import Batch, RunState
from purra.limits import POLICY_TIMEOUT_S

__all__ = ["Admission"]


class Admission:
    """Admits or refuses batches of one run."""

    def __init__(self, preflight: Preflight, policy: Policy | None, agent: Agent) -> None:
        self._preflight = preflight
        self._policy = policy
        self._agent = agent

    @property
    def at_once(self) -> bool:
        """Whether `decide` never waits."""
        return self._policy is None

    def check(self, state: RunState, batch: Batch) -> list[Fact]:
        """The facts of a batch that no policy is asked about."""
        verdict = self._verdict(state, batch)
        if isinstance(verdict, Refused):
            return _refused(batch, verdict.code, verdict.results)
        return self._admitted(batch, verdict, {})

    async def decide(self, state: RunState, batch: Batch) -> list[Fact]:
        """The facts of a batch; asks the policy about each call, in order."""
        verdict = self._verdict(state, batch)
        if isinstance(verdict, Refused) or self._policy is None:
            return self.check(state, batch)
        decisions: dict[str, PolicyDecision] = {}
        for call in verdict.calls:
            decision = await self._ask(self._policy, state, call)
            if decision.verdict in ("deny", "deny_and_tell"):
                return _denied(batch, call, decision)
            decisions[call.call] = decision
        return self._admitted(batch, verdict, decisions)

    def _verdict(self, state: RunState, batch: Batch) -> Admitted | Refused:
        return self._preflight.check(tuple(batch.calls.values()), state.calls_used)

    async def _ask(self, policy: Policy, state: RunState, call: AdmittedCall) -> PolicyDecision:
        request = PolicyRequest(
            run=state.run,
            session=state.started["session"],
            agent=self._agent.id,
            tool=call.schema.name,
            effect=call.schema.effect,
            permission=call.schema.permission,
            arguments=call.arguments,
        )
        try:
            with anyio.fail_after(POLICY_TIMEOUT_S):
                context = CallContext(timeout_s=POLICY_TIMEOUT_S, trace={"run": state.run})
                return await policy.decide(request, context)
        except (PurraError, TimeoutError) as error:
            return PolicyDecision("deny", f"policy_failed: {type(error).__name__}")

    def _admitted(
        self, batch: Batch, admitted: Admitted, decisions: dict[str, PolicyDecision]
    ) -> list[Fact]:
        plans = [_plan(call, decisions.get(call.call)) for call in admitted.calls]
        asks = [plan["call"] for plan in plans if plan["approval"] == "required"]
        if asks and self._agent.approvals == "none":
            code = "approval_unavailable"
            return _refused(batch, code, dict.fromkeys(asks, (code, CODES[code].meaning)))
        serial = len(plans) > 1 and any(plan["concurrency"] != "parallel" for plan in plans)
        return [
            Fact("output.promoted", {"round": batch.round, "as": "commentary"}, batch.seq),
            Fact(
                "tool.batch.admitted",
                {"round": batch.round, "calls": plans, "serial": serial},
                batch.seq,
            ),
        ]


def _plan(call: AdmittedCall, decision: PolicyDecision | None) -> dict[str, Any]:
    schema = call.schema
    ask = decision is not None and decision.verdict == "ask"
    plan: dict[str, Any] = {
        "call": call.call,
        "name": schema.name,
        "arguments": call.arguments,
        "digest": call.digest,
        "effect": schema.effect,
        "permission": schema.permission,
        "idempotency": schema.idempotency,
        "concurrency": schema.concurrency,
        "approval": "required" if ask else schema.approval,
        "timeout_ms": int(schema.timeout_s * 1000),
    }
    if call.recovered:
        plan["recovered"] = list(call.recovered)
    if decision is not None:
        plan["policy"] = {"verdict": decision.verdict, "reason": decision.reason}
    return plan


def _denied(batch: Batch, call: AdmittedCall, decision: PolicyDecision) -> list[Fact]:
    told = decision.verdict == "deny_and_tell"
    code = "permission_denied" if told else "policy_denied"
    reason = decision.reason or CODES[code].meaning
    return _refused(batch, code, {call.call: (code, reason)})


def _refused(batch: Batch, code: str, results: Mapping[str, tuple[str, str]]) -> list[Fact]:
    """No promotion, and one coded result per call: its own, or that a sibling stopped it."""
    facts = [
        Fact("output.promoted", {"round": batch.round, "as": "none"}, batch.seq),
        Fact("tool.batch.refused", {"round": batch.round, "code": code}, batch.seq),
    ]
    aborted = ("tool_batch_aborted", CODES["tool_batch_aborted"].meaning)
    for call in batch.calls.values():
        own_code, message = results.get(call.id, aborted)
        facts.append(
            Fact(
                "tool.call.completed",
                {
                    "call": call.id,
                    "name": call.name,
                    "value": {"error": message},
                    "is_error": True,
                    "code": own_code,
                    "effect_state": "not_started",
                },
                batch.seq,
            )
        )
    return facts
