"""What handlers yield and return: the payloads of the contracts, made by one function each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Outcome", "content", "finish", "outcome", "reasoning", "tool_call", "usage"]


def reasoning(text: str) -> dict[str, Any]:
    """A piece of a model's reasoning: diagnostic, never shown, never in history (OUT-02)."""
    return {"t": "reasoning", "text": text}


def content(text: str) -> dict[str, Any]:
    """A piece of a model's answer."""
    return {"t": "content", "text": text}


def tool_call(index: int, id: str = "", name: str = "", arguments: str = "") -> dict[str, Any]:  # noqa: A002 - the contract's word
    """A fragment of call number `index`: `id` and `name` once each, `arguments` is JSON text that
    the caller joins (MOD-09). Empty means: not in this fragment.
    """
    item: dict[str, Any] = {"t": "call", "index": index}
    if id:
        item["id"] = id
    if name:
        item["name"] = name
    if arguments:
        item["arguments"] = arguments
    return item


def usage(input_tokens: int | None = None, output_tokens: int | None = None) -> dict[str, Any]:
    """Tokens used so far; None = the provider did not say, which is not zero (MOD-13)."""
    return {"t": "usage", "input_tokens": input_tokens, "output_tokens": output_tokens}


def finish(reason: str, native: str = "") -> dict[str, Any]:
    """The one end of a model's stream: `stop`, `tool_calls`, `length`, `filtered` or `other`, and
    the provider's own word for it (MOD-03).
    """
    return {"t": "finish", "reason": reason, "native": native}


class Outcome:
    """A tool's result with more than its value; made by `outcome`."""

    __slots__ = ("body",)

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body


def outcome(
    value: Any,
    *,
    effect_state: str = "",
    step: str = "",
    display: dict[str, Any] | None = None,
    **more: Any,
) -> Outcome:
    """What a tool returns when its value alone does not say everything.

    `effect_state`: `not_started`, `committed`, `unknown`. `step`: `continue` or `complete` (the run
    ends after this batch). `display`: for people, never for the model. `more`: `planning` (`keep`,
    `replan`), `is_error`, `code`, `events`, `artifacts`. What is left out takes the default of the
    tool contract.
    """
    body = {"value": value, **more}
    if effect_state:
        body["effect_state"] = effect_state
    if step:
        body["step"] = step
    if display:
        body["display"] = display
    return Outcome(body)
