"""What goes along with every call to an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CallContext", "Stop"]


class Stop:
    """A request to give a call up that leaves its answer welcome.

    Unlike cancelling the awaiting task it does not end the await: an adapter that knows how to stop
    does so and then says what became of its effect. One that does not know is cancelled after the
    grace time (`purra.limits.TOOL_GRACE_S`).
    """

    __slots__ = ("_listeners", "requested")

    def __init__(self) -> None:
        self.requested = False
        self._listeners: list[Callable[[], object]] = []

    def request(self) -> None:
        """Asks once; asking again does nothing."""
        if not self.requested:
            self.requested = True
            for listener in self._listeners:
                listener()

    def on_request(self, listener: Callable[[], object]) -> None:
        """Calls `listener` when the stop is requested, at once if it was already."""
        self._listeners.append(listener)
        if self.requested:
            listener()


def _ignore(_item: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class CallContext:
    """The circumstances of one call. The kernel supplies them; a model never does.

    `timeout_s`: what is left of the call's time, None = no limit of its own.
    `idempotency_key`: the same text for each try of one effect, "" where the tool has none.
    `trace`: run, thread, attempt and ordinal, for logs; no authority rests on it.
    `exclusive`: the call is a write that must not share its instance (protocol, messages, 2).
    `progress`: takes strict values that the adapter reports on its way; may be dropped.
    `stop`: asks the adapter to give up and say what is known.
    """

    timeout_s: float | None = None
    idempotency_key: str = ""
    trace: Mapping[str, str] = field(default_factory=dict)
    exclusive: bool = False
    progress: Callable[[Any], None] = _ignore
    stop: Stop = field(default_factory=Stop)
