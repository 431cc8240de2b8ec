"""The last step of the gateway: one admitted, claimed call is dispatched and gets its one result.

What is known of a side effect is decided here and nowhere else, by the table of effect states: a
result of a write is `committed`; an error says itself whether it ran, and a write that may have run
is `unknown`; a read leaves nothing behind, so it is always `not_started`. Nothing is retried here.

Time. The adapter is told its time and asked to stop when it is up or the run ends; it then has
`TOOL_GRACE_S` to say what it knows before the await is ended (tables, effect states). A read has
nothing to say, so its await ends at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from purra.context.budget import estimate
from purra.contracts.call import CallContext, Stop
from purra.contracts.store import Store
from purra.contracts.tool import ToolResult, Tools, ToolSchema
from purra.errors import AdapterError, EffectState, ToolError
from purra.journal.events import Fact
from purra.journal.state import Call
from purra.limits import (
    DISPATCH_MARGIN_S,
    ERROR_TEXT_CHARS,
    EVENT_VALUE_DEPTH,
    RESULT_INLINE_BYTES,
    TOOL_GRACE_S,
)
from purra.time_limit import TimeLimit
from purra.values import canonical_text, deeper

__all__ = ["Dispatch"]


class Dispatch:
    """Runs claimed calls of one run.

    `store` takes results that are too large for a journal, or for the model: one result may fill a
    quarter of the `window` (tokens), so that a careless search does not end the run.
    """

    def __init__(self, run: str, store: Store, window: int) -> None:
        self._run = run
        self._store = store
        self._result_tokens = window // 4

    async def call(self, call: Call, schema: ToolSchema, tools: Tools, stop: Stop) -> Fact:
        """The `tool.call.completed` of a claimed call. Raises nothing but cancellation and bugs."""
        try:
            result = await self._answer(call, schema, tools, stop)
            return await self._completed(call, schema, result)
        except AdapterError as error:
            return self._fact(call, _adapter_failure(schema, error))
        except ToolError as error:
            return self._fact(call, _tool_failure(schema, error))

    async def _answer(self, call: Call, schema: ToolSchema, tools: Tools, stop: Stop) -> ToolResult:
        context = CallContext(
            timeout_s=schema.timeout_s,
            idempotency_key=call.key if schema.idempotency != "none" else "",
            trace={"run": self._run, "call": call.id},
            exclusive=not schema.reads and not schema.shared,
            stop=stop,
        )
        with TimeLimit(schema.timeout_s + DISPATCH_MARGIN_S) as limit:
            grace_s = 0.0 if schema.reads else TOOL_GRACE_S
            stop.on_request(lambda: limit.cut(grace_s))
            return await tools.call(schema.name, call.plan["arguments"], context)
        if stop.requested:
            raise AdapterError("tool_cancelled", "the call was cancelled", executed="maybe")
        raise AdapterError("tool_timeout", f"no answer in {schema.timeout_s:g} s", executed="maybe")

    async def _completed(self, call: Call, schema: ToolSchema, result: ToolResult) -> Fact:
        if not isinstance(result, ToolResult):
            raise AdapterError(
                "invalid_tool_result", f"{schema.name} gave no tool result", executed="yes"
            )
        data = _result_data(schema, result)
        text = canonical_text(data["value"])
        body = text.encode()
        if len(body) > RESULT_INLINE_BYTES or estimate(text, json=True) > self._result_tokens:
            data["blob"] = await self._store.blob_put(_once(body))
            data["bytes"] = len(body)
            data["value"] = self._beginning(text)
        return self._fact(call, data)

    def _beginning(self, text: str) -> str:
        """As much of `text` as fits both bounds. Cut between characters: none is ever halved."""
        fits = self._result_tokens * (2 if text.isascii() else 1)
        return text[:fits].encode()[:RESULT_INLINE_BYTES].decode(errors="ignore")

    def _fact(self, call: Call, data: dict[str, Any]) -> Fact:
        return Fact("tool.call.completed", {"call": call.id, "name": call.name, **data}, call.seq)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _result_data(schema: ToolSchema, result: ToolResult) -> dict[str, Any]:
    """Ports give checked results (`purra.contracts.answers`), so only what a journal adds is looked
    at here: how deep it may be."""
    data: dict[str, Any] = {
        "value": result.value,
        "is_error": result.is_error,
        "code": (result.code or "tool_failed") if result.is_error else "",
        "effect_state": _state_of_result(schema, result),
    }
    if result.step != "continue":
        data["step"] = result.step
    if result.planning != "keep":
        data["planning"] = result.planning
    extras = {"artifacts": result.artifacts, "display": result.display}
    if not result.is_error:
        extras["events"] = result.events  # of a failed call they are dropped (TOOL-21)
    data.update((name, extra) for name, extra in extras.items() if extra)
    if deeper(data["value"], EVENT_VALUE_DEPTH) or deeper(extras, EVENT_VALUE_DEPTH):
        what = f"{schema.name} gave a value that nests deeper than {EVENT_VALUE_DEPTH} levels"
        raise AdapterError("tool_result_encoding", what, executed="yes")
    return data


def _state_of_result(schema: ToolSchema, result: ToolResult) -> EffectState:
    if schema.reads:
        return "not_started"
    if result.effect_state is not None:
        return result.effect_state
    return "unknown" if result.is_error else "committed"


def _state_of_failure(schema: ToolSchema, error: AdapterError) -> EffectState:
    if schema.reads or error.executed == "no":
        return "not_started"
    if error.executed == "yes" and error.effect_state is not None:
        return error.effect_state
    return "unknown"


_RENAMED: Mapping[str, str] = {"deadline_exceeded": "tool_timeout", "cancelled": "tool_cancelled"}


def _adapter_failure(schema: ToolSchema, error: AdapterError) -> dict[str, Any]:
    """What the model may know of a failure: its code and whether the tool ran, no text
    (TOOL-22)."""
    code = _RENAMED.get(error.code, error.code)
    told: dict[str, Any] = {
        "error": f"{schema.name} failed: {code}",
        "executed": error.executed,
    }
    if "type" in error.detail:
        told["type"] = str(error.detail["type"])[:ERROR_TEXT_CHARS]
    return {
        "value": told,
        "is_error": True,
        "code": code,
        "effect_state": _state_of_failure(schema, error),
    }


def _tool_failure(schema: ToolSchema, error: ToolError) -> dict[str, Any]:
    state: EffectState = "not_started" if schema.reads else error.effect_state
    return {
        "value": {"error": error.message[:ERROR_TEXT_CHARS]},
        "is_error": True,
        "code": error.code,
        "effect_state": state,
    }
