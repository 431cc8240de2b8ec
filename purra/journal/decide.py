"""decide(state) = the complete set of effects that should be running. Pure.

Rules of this file. Each rule looks at the state and gives the effects that it alone asks for, or
None when it has nothing to say; the first rule that speaks decides. The order is the order of
`RULES`: ends before repairs, repairs before progress. No rule knows about time, tasks or the past
of the shell, so resuming is the same call on the same state (invariant 12). What is not in the set
any more is stopped by the shell: cancel and deadline need no branch anywhere else.

A capability (planning, delegation, compaction) adds rules to the table; it adds no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from purra.context.budget import SAFETY_TOKENS
from purra.errors import CODES
from purra.journal.effects import (
    AssembleContext,
    CallModel,
    CallTool,
    Effect,
    Preflight,
    Record,
    WaitUntil,
)
from purra.journal.events import Fact
from purra.journal.fold import result_text
from purra.journal.recovery import ruling
from purra.journal.state import Batch, Call, RunState
from purra.limits import APPROVAL_TTL_MS, PARALLEL_CALLS

__all__ = ["RULES", "decide"]

Effects = tuple[Effect, ...]
Rule = Callable[[RunState], Effects | None]


def decide(state: RunState) -> Effects:
    """Every effect that should be running now. Records come first and alone.

    An ended run and a run without an owner ask for nothing.
    """
    if state.ended or not state.term:
        return ()
    for rule in RULES:
        effects = rule(state)
        if effects is not None:
            if state.deadline_passed or (effects and isinstance(effects[0], Record)):
                return effects
            return (*effects, WaitUntil("deadline", state.started["deadline_ms"]))
    return ()


# -- ending ---------------------------------------------------------------------------------------


def _ending(state: RunState) -> tuple[str, dict[str, Any]] | None:
    """The terminal kind and error, once the run can only end."""
    if state.cancel:
        by = state.cancel.get("by", "")
        return "run.canceled", _error("run_canceled", f"cancelled by {by}" if by else "")
    if state.deadline_passed:
        return "run.failed", _error("run_deadline_exceeded")
    if state.failure and state.failure.final:
        return "run.failed", _error(state.failure.code, state.failure.message, state.failure.origin)
    return None


def _error(code: str, message: str = "", origin: str = "kernel") -> dict[str, Any]:
    known = CODES.get(code)
    return {
        "code": code,
        "message": message or (known.meaning if known else code),
        "origin": origin,
    }


def _end(state: RunState) -> Effects | None:
    """Close what is open, then end. What still runs is not in the set, so the shell stops it."""
    ending = _ending(state)
    if ending is None:
        return None
    if state.attempt:
        return _superseded(state) if state.attempt.interrupted else ()
    calls = state.batch.calls.values() if state.batch else ()
    given_up = tuple(_given_up(call) for call in calls if call.phase not in ("claimed", "done"))
    if given_up:
        return given_up
    if any(call.phase == "claimed" for call in calls):
        return ()
    kind, error = ending
    return (_terminal(state, kind, error=error),)


def _given_up(call: Call) -> Record:
    unknown = call.phase == "interrupted" and not call.reads
    return _completed(
        call,
        "effect_unknown" if unknown else "tool_cancelled",
        "unknown" if unknown else "not_started",
    )


def _terminal(state: RunState, kind: str, **data: Any) -> Record:
    data["usage"] = state.usage.value()
    data["effects"] = [dict(effect) for effect in state.effects]
    return Record(Fact(kind, data, state.seq), durable=True)


def _failed(state: RunState, code: str, message: str = "") -> Effects:
    return (_terminal(state, "run.failed", error=_error(code, message)),)


# -- repairs after a takeover ---------------------------------------------------------------------


def _superseded(state: RunState) -> Effects:
    number = state.attempt.number if state.attempt else 0
    data = {"attempt": number, "code": "ownership_lost"}
    return (Record(Fact("attempt.superseded", data, state.seq)),)


def _repair(state: RunState) -> Effects | None:
    """What an earlier owner left open: give it up, do it again, or ask a person (REC-04, K50)."""
    if state.attempt and state.attempt.interrupted:
        return _superseded(state)
    calls = state.batch.calls.values() if state.batch else ()
    unknown = [*[call.id for call in calls if call.in_doubt], *state.unknown]
    if not set(unknown) <= set(state.blocked):
        named = ", ".join(f"{_name(state, call)} (call {call})" for call in unknown)
        data = {
            "code": "effect_unknown",
            "message": f"it is not known whether {named} took effect",
            "calls": unknown,
        }
        return (Record(Fact("run.blocked", data, state.seq), durable=True),)
    if not state.blocked:
        return None
    return _running(state.batch) if state.batch and state.batch.verdict == "admitted" else ()


def _name(state: RunState, call_id: str) -> str:
    for effect in state.effects:
        if effect["call"] == call_id:
            return str(effect["tool"])
    return state.batch.calls[call_id].name if state.batch else call_id


def _account(state: RunState) -> Effects | None:
    """Every failure passes the ledger before anything follows from it (invariant 11)."""
    failure = state.failure
    if failure is None or failure.final:
        return None
    if state.batch and state.batch.open:
        return ()  # the refused calls' results are part of the same commit
    used = state.recovered.get(failure.code, 0)
    return (Record(ruling(failure, used, state.now_ms)),)


# -- tools ----------------------------------------------------------------------------------------


def _completed(call: Call, code: str, effect_state: str = "not_started") -> Record:
    data = {
        "call": call.id,
        "name": call.name,
        "value": {"error": CODES[code].meaning},
        "is_error": True,
        "code": code,
        "effect_state": effect_state,
    }
    return Record(Fact("tool.call.completed", data, call.seq))


def _ask(state: RunState, batch: Batch, call: Call) -> Record:
    expires = min(batch.at_ms + APPROVAL_TTL_MS, state.started["deadline_ms"])
    data = {"call": call.id, "digest": call.plan["digest"], "expires_ms": expires}
    return Record(Fact("approval.requested", data, call.seq), durable=True)


def _tools(state: RunState) -> Effects | None:
    batch = state.batch
    if batch is None or not batch.open:
        return None
    if batch.verdict == "pending":
        return (Preflight(batch.round),)
    if batch.verdict == "refused":
        return ()
    calls = batch.calls.values()
    asks = [
        _ask(state, batch, call)
        for call in calls
        if call.phase == "admitted" and call.plan["approval"] == "required"
    ]
    if asks:
        return tuple(asks)
    return (_abort_rest(calls) if batch.failed else ()) or _running(batch)


def _abort_rest(calls: Iterable[Call]) -> Effects:
    """One failure starts no further call of its batch; what runs goes on (TOOL-25, K32)."""
    return tuple(
        _completed(call, "tool_batch_aborted")
        for call in calls
        if call.phase in ("admitted", "approved", "asked")
        or (call.phase == "interrupted" and call.reads)
    )


_READY: Final = ("admitted", "approved", "interrupted")
"""Phases in which a call may be claimed, once there is room and, for a lost one, it is
repeatable."""


def _running(batch: Batch) -> Effects:
    """Calls that are dispatched, or may be: the shell claims each before it starts it."""
    room = 1 if batch.serial else PARALLEL_CALLS
    for call in batch.calls.values():
        room -= call.phase == "claimed"
    effects: list[Effect] = []
    for call in batch.calls.values():
        if call.phase == "claimed":
            effects.append(CallTool(call.id, call.claims))
        elif call.phase == "asked":
            effects.append(WaitUntil(f"approval:{call.id}", call.expires_ms))
            room = 0 if batch.serial else room  # a serial batch keeps its order
        elif call.phase in _READY and call.repeatable and room > 0:
            effects.append(CallTool(call.id, call.claims + 1))
            room -= 1
    return tuple(effects)


# -- progress -------------------------------------------------------------------------------------


def _over_tokens(state: RunState, *, before: bool) -> str:
    limit = state.limits["max_tokens"]
    if not limit:
        return ""
    if before and state.usage.unreported:
        return "usage_unreported"
    used = state.usage.input_tokens + state.usage.output_tokens
    return "max_tokens_exceeded" if used > limit or (before and used == limit) else ""


def _answer(state: RunState) -> Effects | None:
    """A round without calls is the answer (OUT-04); so is a result that completes the step."""
    if state.final_round is not None:
        code = _over_tokens(state, before=False)
        if code:
            return _failed(state, code)
        if not state.promoted:
            data = {"round": state.rounds, "as": "final"}
            return (Record(Fact("output.promoted", data, state.seq)),)
        return (_terminal(state, "run.completed", text=state.final_text),)
    if state.complete_step and state.batch:
        text = next(
            result_text(call.result)
            for call in state.batch.calls.values()
            if call.result and call.result.get("step") == "complete"
        )
        return (_terminal(state, "run.completed", text=text, step="complete"),)
    return None


def _context(state: RunState) -> Effects | None:
    return (AssembleContext(),) if state.context is None else None


def _model(state: RunState) -> Effects | None:
    if state.attempt:
        return (CallModel(state.attempt.number),)
    if state.not_before_ms:
        return (WaitUntil("retry", state.not_before_ms),)
    if state.rounds >= state.limits["max_rounds"]:
        limit = state.limits["max_rounds"]
        return _failed(state, "max_rounds_exceeded", f"no answer after {limit} model rounds")
    code = _over_tokens(state, before=True)
    return _failed(state, code) if code else _open_stream(state)


def _open_stream(state: RunState) -> Effects:
    """The receipt: what will be asked, by digest, and how much may be answered (MOD-11, 15, 16)."""
    context = state.context or {}
    room = context["window"] - state.estimate - SAFETY_TOKENS
    if room <= 0:
        return _failed(
            state,
            "context_overflow",
            f"about {state.estimate} tokens in a window of {context['window']}",
        )
    ceiling = context["output_limit"]
    data = {
        "attempt": state.attempts + 1,
        "round": state.rounds + 1,
        "messages": state.transcript,
        "tools": state.started["components"].get("tools", ""),
        "max_tokens": min(room, ceiling),
        "source": "profile" if ceiling <= room else "room",
        "input_estimate": state.estimate,
    }
    return (Record(Fact("stream.opened", data, state.seq)),)


RULES: Final[tuple[Rule, ...]] = (
    _end,
    _repair,
    _account,
    _tools,
    _answer,
    _context,
    _model,
)
"""In the order in which they are asked."""
