"""The forms that contract values have on the wire (spec, chapters 14 to 18), both ways.

Outgoing values are trusted and only spelled out here. Incoming ones are maps that the codec has
found to be strict values; `purra.contracts.answers` says whether they fit the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from purra.contracts import answers
from purra.contracts.context import ContextRequest
from purra.contracts.messages import Message, message_to_value
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    ModelRequest,
    Reasoning,
    ToolCallFragment,
    Usage,
)
from purra.contracts.policy import PolicyRequest
from purra.contracts.shapes import violation
from purra.contracts.store import Commit, Scan, op_to_value

__all__ = [
    "chunk_from_item",
    "commit_args",
    "context_args",
    "field",
    "messages_args",
    "model_args",
    "policy_args",
    "scan_args",
]

_CHUNK_TYPES: Final[Mapping[str, type[Chunk]]] = {
    "reasoning": Reasoning,
    "content": Content,
    "call": ToolCallFragment,
    "usage": Usage,
    "finish": Finish,
}


def field(value: object, name: str, where: str) -> Any:
    """The part `name` of a RESULT that wraps its answer in a map.

    Raises `AdapterError(contract_violation)` if there is none.
    """
    if not isinstance(value, dict) or name not in value:
        raise violation(where, f"a map with {name!r} expected")
    return value[name]


def model_args(request: ModelRequest) -> dict[str, Any]:
    """The arguments of `generate`."""
    return {
        "messages": [message_to_value(message) for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in request.tools
        ],
        "max_tokens": request.max_tokens,
        "params": request.params,
    }


def chunk_from_item(item: object) -> Chunk:
    """The chunk that one item of `generate` stands for.

    Raises `AdapterError(contract_violation)`.
    """
    kind = item.get("t") if type(item) is dict else None
    make = _CHUNK_TYPES.get(kind) if type(kind) is str else None
    if make is None:
        raise violation("chunk.t", "no known kind of chunk")
    return answers.chunk[make](item, "chunk")


def context_args(request: ContextRequest) -> dict[str, Any]:
    """The arguments of `demand`, and with a budget those of `provide`."""
    return {"run": request.run, "session": request.session, "prompt": request.prompt}


def messages_args(messages: Sequence[Message], budget: int) -> dict[str, Any]:
    """The arguments of `compress`."""
    return {"messages": [message_to_value(message) for message in messages], "budget": budget}


def policy_args(request: PolicyRequest) -> dict[str, Any]:
    """The arguments of `decide`."""
    return {
        "run": request.run,
        "session": request.session,
        "agent": request.agent,
        "tool": request.tool,
        "effect": request.effect,
        "permission": request.permission,
        "arguments": request.arguments,
    }


def commit_args(commit: Commit) -> dict[str, Any]:
    """The arguments of `commit`."""
    return {
        "ops": [op_to_value(op) for op in commit.ops],
        "key": commit.key,
        "require": commit.require,
        "durable": commit.durable,
    }


def scan_args(scan: Scan) -> dict[str, Any]:
    """The arguments of `scan`."""
    return {
        "prefix": scan.prefix,
        "after": scan.after,
        "limit": scan.limit,
        "reverse": scan.reverse,
        "lapsed_only": scan.lapsed_only,
    }
