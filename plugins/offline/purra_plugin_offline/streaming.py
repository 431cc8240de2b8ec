"""An answer as a stream that keeps to its allowance.

Tokens are estimated as everywhere in the system: a non-ASCII character is one, ASCII text a quarter
of its characters, JSON half, rounded up (CTX-03). An answer that is too long loses its last
passages first, whole ones; only if the rest does not fit either the text is cut, and the stream
ends with `length`, which says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from purra_plugin_offline.answering import Answer
from purra_plugin_offline.offers import Asked
from purra_sdk.items import content, finish, tool_call, usage

__all__ = ["estimate", "estimate_request", "stream"]

PIECE_CHARS = 32
"""About so many characters leave at once."""
_PIECE = re.compile(rf".{{1,{PIECE_CHARS}}}\S*", re.DOTALL)
MESSAGE_TOKENS = 4
"""What the framing of one message takes."""


def estimate(text: str, *, as_json: bool = False) -> int:
    """Estimated tokens of a text."""
    plain = len(text.encode("ascii", "ignore"))
    return (len(text) - plain) + -(-plain // (2 if as_json else 4))


def estimate_request(request: dict[str, Any]) -> int:
    """Estimated tokens of everything that the model is given."""
    total = 0
    for message in request["messages"]:
        total += MESSAGE_TOKENS + estimate(message["content"], as_json=message["role"] == "tool")
        for call in message.get("calls", ()):
            total += MESSAGE_TOKENS + estimate(call["arguments"], as_json=True)
    for tool in request.get("tools", ()):
        total += estimate(json.dumps(tool, ensure_ascii=False), as_json=True)
    return total


def stream(step: list[Asked] | Answer, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Items in order: text or calls, usage, exactly one finish."""
    allowed = request["max_tokens"]
    used = 0
    if isinstance(step, Answer):
        text, reason = _fitted(step, allowed)
        used = estimate(text)
        yield from (content(piece) for piece in _PIECE.findall(text))
    else:
        reason = "tool_calls"
        rounds = sum(message["role"] == "assistant" for message in request["messages"])
        for index, call in enumerate(step):
            arguments = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)
            cost = estimate(call.name) + estimate(arguments, as_json=True)
            if used + cost > allowed:
                reason = "length"
                break
            used += cost
            yield from _fragments(index, f"call-{rounds}-{index}", call.name, arguments)
    yield usage(estimate_request(request), used)
    yield finish(reason, reason)


def _fragments(index: int, name_id: str, name: str, arguments: str) -> Iterator[dict[str, Any]]:
    first, *rest = _PIECE.findall(arguments)
    yield tool_call(index, name_id, name, first)
    for piece in rest:
        yield tool_call(index, arguments=piece)


def _fitted(answer: Answer, allowed: int) -> tuple[str, str]:
    """The longest form of the answer within `allowed` tokens, and the reason to finish."""
    for count in range(len(answer.passages), min(1, len(answer.passages)) - 1, -1):
        text = answer.text(count)
        if estimate(text) <= allowed:
            return text, "stop"
    text = answer.text(min(1, len(answer.passages)))
    while text and estimate(text) > allowed:
        text = text[: -max(1, estimate(text) - allowed)]
    return text, "length"
