"""What goes along with every call to an adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CallContext"]


def _ignore(_item: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class CallContext:
    """The circumstances of one call. The host supplies them; a model never does.

    `timeout_s`: what is left of the call's time, None = no limit of its own.
    `idempotency_key`: the same text for each try of one effect, "" where the tool has none.
    `trace`: run, thread, attempt and ordinal, for logs; no authority rests on it.
    `exclusive`: the call is a write that must not share its instance (protocol, messages, 2).
    `progress`: takes strict values that the adapter reports on its way; may be dropped.
    """

    timeout_s: float | None = None
    idempotency_key: str = ""
    trace: dict[str, str] = field(default_factory=dict)
    exclusive: bool = False
    progress: Callable[[Any], None] = _ignore
