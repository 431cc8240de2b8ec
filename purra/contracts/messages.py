"""Provider-neutral messages: what a model sees (MOD-01). Immutable, strict values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from purra.errors import PurraError

__all__ = ["Message", "Role", "ToolCall", "message_from_value", "message_to_value"]

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model asked for: the provider's id (an alias), a name, raw argument text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A `tool` message answers the call `call_id`; only `assistant` carries calls."""

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise PurraError("invalid_argument", f"unknown role {self.role!r}", where="message")
        if self.role == "tool" and not self.call_id:
            raise PurraError("invalid_argument", "a tool message needs a call id", where="message")
        if self.calls and self.role != "assistant":
            raise PurraError("invalid_argument", f"a {self.role} message with calls")


def message_to_value(message: Message) -> dict[str, Any]:
    """The strict value that stands for a message on the wire and in digests."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        value["calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.calls
        ]
    if message.call_id:
        value["call_id"] = message.call_id
    if message.name:
        value["name"] = message.name
    return value


def message_from_value(value: Mapping[str, Any]) -> Message:
    """The message that a checked value stands for."""
    calls = tuple(
        ToolCall(call["id"], call["name"], call["arguments"]) for call in value.get("calls", ())
    )
    return Message(
        value["role"],
        value["content"],
        calls,
        value.get("call_id", ""),
        value.get("name", ""),
    )
