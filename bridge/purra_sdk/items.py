"""What a model's `generate` yields: the items of the model contract, made by one function each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["content", "finish", "reasoning", "tool_call", "usage"]


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
