"""How many tokens fit, and who gets them (CTX-01..04). Pure.

Tokens are estimated without a tokenizer, the same way everywhere: a non-ASCII character counts 1,
ASCII text a quarter of its characters, ASCII JSON half (CTX-03). Adapters can know this rule; none
has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from purra.contracts.context import ContextClaim
from purra.contracts.messages import Message
from purra.errors import PurraError

__all__ = ["MESSAGE_OVERHEAD", "SAFETY_TOKENS", "allocate", "estimate", "estimate_message", "pool"]

MESSAGE_OVERHEAD: Final = 4
"""Tokens that a provider's own framing of one message takes."""
SAFETY_TOKENS: Final = 256
"""Kept free, because the estimate is one."""


def estimate(text: str, *, json: bool = False) -> int:
    """Estimated tokens of `text`: non-ASCII 1 each, ASCII 1/4 each, 1/2 in JSON; rounded up."""
    ascii_count = len(text) if text.isascii() else sum(1 for char in text if char < "\x80")
    per_token = 2 if json else 4
    return (len(text) - ascii_count) + -(-ascii_count // per_token)


def estimate_message(message: Message) -> int:
    """Estimated tokens of one message with its calls."""
    total = MESSAGE_OVERHEAD + estimate(message.content, json=message.role == "tool")
    for call in message.calls:
        total += MESSAGE_OVERHEAD + estimate(call.name) + estimate(call.arguments, json=True)
    return total


def pool(window: int, reserves: Sequence[int]) -> int:
    """Tokens left for context of a window after fixed reserves (output, tools, prompts, history).

    Raises `PurraError(fixed_reserves_exceed_window)`.
    """
    left = window - SAFETY_TOKENS - sum(reserves)
    if left < 0:
        raise PurraError(
            "fixed_reserves_exceed_window",
            f"fixed reserves of {sum(reserves) + SAFETY_TOKENS} tokens in a window of {window}",
            hint="use a model with a larger window, fewer tools, or a shorter prompt",
        )
    return left


def allocate(claims: Sequence[ContextClaim], tokens: int) -> tuple[int, ...]:
    """Tokens for each claim: all minimums first, then what is desired, by priority, then order.

    Raises `PurraError(minimum_context_demand_exceeds_pool)` (CTX-02).
    """
    least = sum(claim.minimum for claim in claims)
    if least > tokens:
        raise PurraError(
            "minimum_context_demand_exceeds_pool",
            f"the context providers need {least} tokens, {tokens} are left",
            hint="grant a smaller context or use a model with a larger window",
        )
    given = [claim.minimum for claim in claims]
    left = tokens - least
    by_priority = sorted(range(len(claims)), key=lambda index: (-claims[index].priority, index))
    for index in by_priority:
        more = min(left, max(0, claims[index].desired - given[index]))
        given[index] += more
        left -= more
    return tuple(given)
