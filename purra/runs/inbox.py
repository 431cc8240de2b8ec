"""What an inbox entry means to the run's owner. Pure, and strict: entries come from outside.

Bodies: `{"kind": "cancel", "by"}`, `{"kind": "decision", "call", "decision", "by", "text"?,
"arguments"?}`, `{"kind": "reconcile", "call", "effect_state", "evidence", "by"}`, `{"kind":
"wake"}`. An entry that means nothing is taken in all the same, and nothing follows from it: a bad
entry must never stop a run or be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from purra.journal.events import Fact
from purra.journal.state import Call, RunState
from purra.values import digest

__all__ = ["Fits", "facts_of"]

Fits = Callable[[Call, Mapping[str, Any]], bool]
"""Whether edited arguments may run: schema and scope are checked again (HITL-02)."""


def facts_of(state: RunState, entry: int, body: Any, fits: Fits) -> list[Fact]:
    """`inbox.taken`, and the fact that the entry stands for, if it fits the state."""
    facts = [Fact("inbox.taken", {"entry": entry, "body": body})]
    if not isinstance(body, Mapping):
        return facts
    call = state.batch.calls.get(str(body.get("call"))) if state.batch else None
    if body.get("kind") == "decision" and call is not None and call.phase == "asked":
        facts += _decision(call, body, fits)
    elif body.get("kind") == "reconcile" and call is not None and _doubted(state, call):
        facts += _reconciliation(call, body)
    return facts


def _doubted(state: RunState, call: Call) -> bool:
    """Evidence may come before an owner has named the blocker (TOOL-20)."""
    return call.in_doubt or call.id in state.blocked


def _decision(call: Call, body: Mapping[str, Any], fits: Fits) -> list[Fact]:
    decision = body.get("decision")
    data: dict[str, Any] = {"call": call.id, "decision": decision, "by": str(body.get("by", ""))}
    if decision in ("respond", "reject") and isinstance(body.get("text"), str):
        data["text"] = body["text"]
    if decision == "edit":
        arguments = body.get("arguments")
        if not isinstance(arguments, Mapping) or not fits(call, arguments):
            return []  # the call stays pending
        data.update(arguments=arguments, digest=digest(arguments))
    if decision not in ("approve", "edit", "reject", "respond"):
        return []
    return [Fact("approval.decided", data, call.seq)]


def _reconciliation(call: Call, body: Mapping[str, Any]) -> list[Fact]:
    known = body.get("effect_state")
    evidence = body.get("evidence")
    if known not in ("committed", "not_started") or not evidence:
        return []  # neither proof, or both at once, proves nothing (TOOL-20)
    data = {
        "call": call.id,
        "effect_state": known,
        "evidence": evidence,
        "by": str(body.get("by", "")),
    }
    return [Fact("run.reconciled", data, call.seq)]
