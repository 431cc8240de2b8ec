"""state = fold(state, event): the only place where the meaning of an event is written.

Rules of this file. One handler per kind, found by name. A handler is pure but for the state that it
owns and may change: no clock, no I/O, no chance. It raises `PurraError(illegal_event)` when the
event does not fit the state, before it changes anything; which kinds fit which phase of a run is
the table `LEGAL`, the rest are the handler's own conditions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from purra.context.budget import estimate_message
from purra.contracts.messages import Message, ToolCall, message_to_value
from purra.errors import PurraError
from purra.journal.events import KINDS, TERMINAL, Event
from purra.journal.state import Attempt, Batch, Call, Failure, RunState
from purra.values import canonical_text

__all__ = ["LEGAL", "fold", "fold_all", "result_text"]

_LIVE: Final = frozenset({"running", "waiting", "blocked"})
LEGAL: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset({"new"}) if kind == "run.started" else _LIVE for kind in KINDS
}
"""Kind -> run statuses in which it may come. An ended run takes nothing (RUN-08)."""


def fold(state: RunState, event: Event) -> RunState:
    """Takes `event` into `state` and gives the same, changed state back.

    Raises `PurraError(illegal_event)`, leaving the state as it was.
    """
    kind = KINDS.get(event.kind)
    if kind is None or state.status not in LEGAL[event.kind]:
        raise _illegal(state, event, f"not legal while {state.status}")
    if event.seq != state.seq + 1:
        raise _illegal(state, event, f"sequence {event.seq} after {state.seq}")
    if not event.data.keys() >= kind.fields:
        missing = sorted(kind.fields - event.data.keys())
        raise _illegal(state, event, f"without {', '.join(missing)}")
    if state.term == 0 and event.kind not in ("run.started", "run.owned"):
        raise _illegal(state, event, "before any owner")
    _HANDLERS[event.kind](state, event)
    state.seq, state.now_ms = event.seq, event.at_ms
    return state


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    """Folds each event in turn."""
    for event in events:
        fold(state, event)
    return state


def result_text(result: Mapping[str, Any]) -> str:
    """What the model reads of a call's result: text as it is, anything else as canonical JSON."""
    value = result["value"]
    text = value if isinstance(value, str) else canonical_text(value)
    if "blob" in result:
        text += f"\n[cut: the whole result has {result['bytes']} bytes, {result['blob']}]"
    return text


def _illegal(state: RunState, event: Event, why: str) -> PurraError:
    return PurraError(
        "illegal_event",
        f"{event.kind} {why}",
        where=f"run {state.run or event.run} event {event.seq}",
    )


def _say(state: RunState, message: Message) -> None:
    state.messages.append(message)
    state.estimate += estimate_message(message)
    chained = state.transcript + canonical_text(message_to_value(message))
    state.transcript = hashlib.sha256(chained.encode()).hexdigest()


# -- the run --------------------------------------------------------------------------------------


def _run_started(state: RunState, event: Event) -> None:
    state.run = event.run
    state.started, state.started_ms = event.data, event.at_ms
    state.status = "running"
    _say(state, Message("user", event.data["prompt"]))


def _run_owned(state: RunState, event: Event) -> None:
    term = event.data["term"]
    if term <= state.term:
        raise _illegal(state, event, f"term {term} after {state.term}")
    state.term = term
    state.kernel = event.data["kernel"]
    _stand(state)
    if state.attempt:
        state.attempt.interrupted = True
    for call in state.batch.calls.values() if state.batch else ():
        if call.phase == "claimed":
            call.phase = "interrupted"


def _stand(state: RunState) -> None:
    """What the run waits for, if it waits for a person."""
    calls = state.batch.calls.values() if state.batch else ()
    asked = any(call.phase == "asked" for call in calls)
    state.status = "blocked" if state.blocked else "waiting" if asked else "running"


def _run_ended(state: RunState, event: Event) -> None:
    if state.attempt or (state.batch and state.batch.open):
        raise _illegal(state, event, "while work is open")
    if event.kind == "run.completed" and state.failure:
        raise _illegal(state, event, "after a failure")
    state.terminal = {"kind": event.kind, **event.data}
    state.status = event.kind.removeprefix("run.")  # type: ignore[assignment]


def _run_blocked(state: RunState, event: Event) -> None:
    state.blocked = tuple(event.data["calls"])
    state.status = "blocked"


def _run_reconciled(state: RunState, event: Event) -> None:
    call = _call(state, event, "interrupted", "done")
    known = event.data["effect_state"]
    doubted = call.in_doubt or call.id in state.blocked
    if not doubted or known not in ("committed", "not_started"):
        raise _illegal(state, event, "of a call that is not in doubt, or without a proof")
    for effect in state.effects:
        if effect["call"] == call.id:
            effect["effect_state"] = known
    state.unknown = [unknown for unknown in state.unknown if unknown != call.id]
    if call.phase == "interrupted":
        _complete(state, call, _reconciled_result(call, known))
    state.blocked = tuple(blocked for blocked in state.blocked if blocked != call.id)
    _stand(state)


def _reconciled_result(call: Call, known: str) -> dict[str, Any]:
    return {
        "name": call.name,
        "value": {"reconciled": known},
        "is_error": known == "not_started",
        "code": "" if known == "committed" else "tool_failed",
        "effect_state": known,
    }


# -- context and model ----------------------------------------------------------------------------


def _context_assembled(state: RunState, event: Event) -> None:
    if state.context is not None:
        raise _illegal(state, event, "twice")
    state.context = event.data
    state.estimate += event.data["estimate"]


def _context_failed(state: RunState, event: Event) -> None:
    state.failure = Failure(event.data["code"], event.data["message"], event.seq)


def _context_compacted(state: RunState, event: Event) -> None:
    if state.context is None:
        raise _illegal(state, event, "before a context")


def _stream_opened(state: RunState, event: Event) -> None:
    number = event.data["attempt"]
    busy = state.attempt or (state.batch and state.batch.open) or state.context is None
    if busy or number != state.attempts + 1 or event.data["round"] != state.rounds + 1:
        raise _illegal(state, event, "out of turn")
    state.attempts = number
    state.attempt = Attempt(number, event.seq, event.data["max_tokens"])
    state.failure = None


def _closing(state: RunState, event: Event) -> Attempt:
    if not state.attempt or state.attempt.number != event.data["attempt"]:
        raise _illegal(state, event, "of an attempt that is not open")
    attempt, state.attempt = state.attempt, None
    return attempt


def _charge(state: RunState, usage: Mapping[str, Any]) -> None:
    if usage["input_tokens"] is None or usage["output_tokens"] is None:
        state.usage.unreported += 1
    state.usage.input_tokens += usage["input_tokens"] or 0
    state.usage.output_tokens += usage["output_tokens"] or 0


def _model_round(state: RunState, event: Event) -> None:
    data = event.data
    _closing(state, event)
    _charge(state, data["usage"])
    state.rounds = data["round"]
    state.promoted = ""
    state.final_round = None if data["calls"] else data
    state.batch = None
    asked = tuple(
        ToolCall(f"{data['attempt']}.{call['ordinal']}", call["name"], call["arguments"])
        for call in data["calls"]
    )
    _say(state, Message("assistant", data["text"], asked))
    if asked:
        aliases = [call["id"] for call in data["calls"]]
        calls = {
            call.id: Call(call.id, alias, call.name, call.arguments, seq=event.seq)
            for call, alias in zip(asked, aliases, strict=True)
        }
        state.batch = Batch(state.rounds, event.seq, event.at_ms, calls)


def _attempt_failed(state: RunState, event: Event) -> None:
    data = event.data
    attempt = _closing(state, event)
    _charge(state, data["usage"])
    state.failure = Failure(
        data["code"],
        data["message"],
        event.seq,
        data["origin"],
        attempt.number,
        data["visible"],
        data.get("retry_after_ms", 0),
    )


def _attempt_superseded(state: RunState, event: Event) -> None:
    attempt = _closing(state, event)
    # Nobody knows what it used, so it is charged what it was allowed (tables, events).
    state.usage.output_tokens += attempt.max_tokens
    state.usage.unreported += 1


def _output_promoted(state: RunState, event: Event) -> None:
    if event.data["round"] != state.rounds or state.promoted:
        raise _illegal(state, event, "of another round, or twice")
    state.promoted = event.data["as"]


# -- tools ----------------------------------------------------------------------------------------


def _call(state: RunState, event: Event, *phases: str) -> Call:
    call = state.batch.calls.get(event.data["call"]) if state.batch else None
    if call is None or call.phase not in phases:
        raise _illegal(state, event, f"of a call that is not {' or '.join(phases)}")
    return call


def _pending_batch(state: RunState, event: Event) -> Batch:
    batch = state.batch
    if batch is None or batch.round != event.data["round"] or batch.verdict != "pending":
        raise _illegal(state, event, "without a pending batch")
    return batch


def _tool_batch_admitted(state: RunState, event: Event) -> None:
    batch = _pending_batch(state, event)
    plans = {plan["call"]: plan for plan in event.data["calls"]}
    if plans.keys() != batch.calls.keys():
        raise _illegal(state, event, "for other calls than those announced")
    batch.verdict = "admitted"
    batch.serial = event.data["serial"]
    for call in batch.calls.values():
        call.phase, call.plan, call.seq = "admitted", plans[call.id], event.seq


def _tool_batch_refused(state: RunState, event: Event) -> None:
    batch = _pending_batch(state, event)
    batch.verdict = "refused"
    state.failure = Failure(event.data["code"], f"round {batch.round} was refused", event.seq)


def _tool_call_claimed(state: RunState, event: Event) -> None:
    call = _call(state, event, "admitted", "approved", "interrupted")
    if event.data["term"] != state.term:
        raise _illegal(state, event, "by an earlier owner")
    if call.phase == "interrupted" and not call.repeatable:
        raise _illegal(state, event, "again, though its effect may have happened")
    call.phase, call.seq, call.key = "claimed", event.seq, event.data["key"]
    call.claims += 1


def _tool_call_completed(state: RunState, event: Event) -> None:
    call = _call(
        state, event, "announced", "admitted", "asked", "approved", "claimed", "interrupted"
    )
    if event.data["effect_state"] != "not_started" and not call.claims:
        raise _illegal(state, event, "with an effect, though it was never claimed")
    call.seq = event.seq
    _complete(state, call, event.data)


def _complete(state: RunState, call: Call, result: Mapping[str, Any]) -> None:
    batch = state.batch
    assert batch is not None  # the call is one of its own
    call.phase, call.result = "done", result
    batch.done += 1
    batch.failed = batch.failed or result["is_error"]
    state.calls_used += 1
    state.complete_step = state.complete_step or result.get("step") == "complete"
    if call.claims and not call.reads and result["effect_state"] != "not_started":
        known = [effect for effect in state.effects if effect["call"] == call.id]
        if not known:
            state.effects.append(
                {
                    "call": call.id,
                    "tool": call.name,
                    "effect": call.plan["effect"],
                    "effect_state": result["effect_state"],
                }
            )
            if result["effect_state"] == "unknown":
                state.unknown.append(call.id)
    if not batch.open:
        for done in batch.calls.values():  # in the order of the calls, one result each (TOOL-26)
            text = result_text(done.result or {"value": ""})
            _say(state, Message("tool", text, (), done.id, done.name))


def _approval_requested(state: RunState, event: Event) -> None:
    call = _call(state, event, "admitted")
    call.phase, call.seq, call.expires_ms = "asked", event.seq, event.data["expires_ms"]
    state.status = "waiting"


def _approval_decided(state: RunState, event: Event) -> None:
    call = _call(state, event, "asked")
    decision = event.data["decision"]
    if decision not in ("approve", "edit", "reject", "respond"):
        raise _illegal(state, event, f"as {decision}")
    call.phase, call.seq = "approved", event.seq
    _stand(state)
    if decision == "edit":
        plan = dict(call.plan)
        plan.update(arguments=event.data["arguments"], digest=event.data["digest"])
        call.plan = plan
    elif decision in ("reject", "respond"):
        told = decision == "respond"
        _complete(
            state,
            call,
            {
                "name": call.name,
                "value": event.data.get("text", "") if told else {"error": "rejected by a person"},
                "is_error": not told,
                "code": "" if told else "approval_rejected",
                "effect_state": "not_started",
            },
        )


def _approval_expired(state: RunState, event: Event) -> None:
    call = _call(state, event, "asked")
    call.phase = "approved"
    _stand(state)
    _complete(
        state,
        call,
        {
            "name": call.name,
            "value": {"error": "nobody decided in time"},
            "is_error": True,
            "code": "approval_expired",
            "effect_state": "not_started",
        },
    )


# -- inbox, timers, ledger ------------------------------------------------------------------------


def _inbox_taken(state: RunState, event: Event) -> None:
    if event.data["entry"] <= state.inbox:
        raise _illegal(state, event, "twice")
    state.inbox = event.data["entry"]
    body = event.data["body"]
    if isinstance(body, Mapping) and body.get("kind") == "cancel" and not state.cancel:
        state.cancel = body


def _timer_fired(state: RunState, event: Event) -> None:
    if event.data["timer"] == "deadline":
        state.deadline_passed = True
    elif event.data["timer"] == "retry":
        state.not_before_ms = 0


def _recovery_decided(state: RunState, event: Event) -> None:
    if state.failure is None or state.failure.final:
        raise _illegal(state, event, "without a failure")
    if not event.data["allowed"]:
        state.failure.final = True
        return
    state.recovered[event.data["cause"]] = event.data["used"]
    state.not_before_ms = event.data.get("not_before_ms", 0)
    state.failure = None


def _todos_updated(state: RunState, event: Event) -> None:
    state.todos = event.data["todos"]


def _noted(state: RunState, event: Event) -> None:
    """Kept for people and reports; nothing follows from it."""


_HANDLERS: Final[Mapping[str, Callable[[RunState, Event], None]]] = {
    "run.started": _run_started,
    "run.owned": _run_owned,
    "context.assembled": _context_assembled,
    "context.failed": _context_failed,
    "context.compacted": _context_compacted,
    "stream.opened": _stream_opened,
    "model.round": _model_round,
    "attempt.failed": _attempt_failed,
    "attempt.superseded": _attempt_superseded,
    "output.promoted": _output_promoted,
    "tool.batch.admitted": _tool_batch_admitted,
    "tool.batch.refused": _tool_batch_refused,
    "tool.call.claimed": _tool_call_claimed,
    "tool.call.completed": _tool_call_completed,
    "approval.requested": _approval_requested,
    "approval.decided": _approval_decided,
    "approval.expired": _approval_expired,
    "inbox.taken": _inbox_taken,
    "timer.fired": _timer_fired,
    "recovery.decided": _recovery_decided,
    "budget.reserved": _noted,
    "budget.charged": _noted,
    "run.todos_updated": _todos_updated,
    "run.blocked": _run_blocked,
    "run.reconciled": _run_reconciled,
    "plugin.started": _noted,
    "plugin.stopped": _noted,
    "plugin.denied": _noted,
    **dict.fromkeys(TERMINAL, _run_ended),
}
