"""How a run stands when nobody works on it any more: the value that callers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from purra.journal.state import RunState

__all__ = ["Result", "result_of", "result_value"]


@dataclass(frozen=True, slots=True)
class Result:
    """`status` is never "running" (RUN-09): completed, failed, canceled, or resting for a person.

    `error`: `{code, message, origin}` unless completed. `usage`: tokens of all attempts. `effects`:
    every write with what is known of it; effects are never said to be undone (invariant 7).
    """

    run: str
    status: Literal["completed", "failed", "canceled", "blocked", "waiting"]
    text: str
    usage: Mapping[str, Any]
    error: Mapping[str, Any] | None = None
    effects: tuple[Mapping[str, Any], ...] = field(default=())


def result_of(state: RunState) -> Result:
    """The result of a run that has ended or rests."""
    if state.terminal is not None:
        end = state.terminal
        effects = tuple(end["effects"])
        text = end.get("text", "")
        return Result(state.run, state.status, text, end["usage"], end.get("error"), effects)  # type: ignore[arg-type]
    if state.blocked:
        names = {effect["call"]: effect["tool"] for effect in state.effects}
        names |= {call.id: call.name for call in state.batch.calls.values()} if state.batch else {}
        calls = ", ".join(f"{names.get(call, 'it')} (call {call})" for call in state.blocked)
        error = {
            "code": "effect_unknown",
            "message": f"it is not known whether {calls} took effect",
            "origin": "kernel",
        }
        status: Literal["blocked", "waiting"] = "blocked"
    else:
        error = {"code": "approval_pending", "message": "a call waits for a person", "origin": ""}
        status = "waiting"
    effects = tuple(dict(effect) for effect in state.effects)
    return Result(state.run, status, "", state.usage.value(), error, effects)


def result_value(result: Result) -> dict[str, Any]:
    """The strict value for CLI JSON."""
    return {
        "status": result.status,
        "text": result.text,
        "usage": dict(result.usage),
        "error": dict(result.error) if result.error else None,
        "effects": [dict(effect) for effect in result.effects],
        "run": result.run,
    }
