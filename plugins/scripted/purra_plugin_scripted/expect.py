"""What a step demands of the request that it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["problems"]

SHOWN_CHARS = 200
"""Of a text that is not as expected."""


def problems(expect: Mapping[str, Any], request: Mapping[str, Any]) -> list[str]:
    """Every expectation that does not hold, as a sentence with both sides. Empty: all hold."""
    found = []
    for key, wanted in expect.items():
        problem = _CHECKS[key](wanted, request)
        if problem:
            found.append(f"{key}: {problem}")
    return found


def _messages(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(request.get("messages", []))


def _last(request: Mapping[str, Any]) -> Mapping[str, Any]:
    messages = _messages(request)
    return messages[-1] if messages else {"role": "", "content": ""}


def _texts(wanted: str | list[str]) -> list[str]:
    return [wanted] if isinstance(wanted, str) else wanted


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "...")


def _equal(wanted: Any, actual: Any) -> str:
    return "" if wanted == actual else f"expected {wanted!r}, got {actual!r}"


def _count(wanted: int, request: Mapping[str, Any]) -> str:
    return _equal(wanted, len(_messages(request)))


def _roles(wanted: list[str], request: Mapping[str, Any]) -> str:
    return _equal(wanted, [message["role"] for message in _messages(request)])


def _last_role(wanted: str, request: Mapping[str, Any]) -> str:
    return _equal(wanted, _last(request)["role"])


def _last_equals(wanted: str, request: Mapping[str, Any]) -> str:
    content = _last(request)["content"]
    return "" if content == wanted else f"expected {wanted!r}, got {_shown(content)}"


def _last_contains(wanted: str | list[str], request: Mapping[str, Any]) -> str:
    content = _last(request)["content"]
    missing = [text for text in _texts(wanted) if text not in content]
    return f"{missing!r} not in {_shown(content)}" if missing else ""


def _everything(request: Mapping[str, Any]) -> list[str]:
    """Each text of the conversation: contents, and the arguments of calls."""
    texts = []
    for message in _messages(request):
        texts.append(message["content"])
        texts += [call["arguments"] for call in message.get("calls", [])]
    return texts


def _contains(wanted: str | list[str], request: Mapping[str, Any]) -> str:
    everything = _everything(request)
    missing = [text for text in _texts(wanted) if not any(text in part for part in everything)]
    return f"{missing!r} in none of {len(everything)} texts" if missing else ""


def _lacks(unwanted: str | list[str], request: Mapping[str, Any]) -> str:
    everything = _everything(request)
    present = [text for text in _texts(unwanted) if any(text in part for part in everything)]
    return f"{present!r} should not be there" if present else ""


def _tool_names(request: Mapping[str, Any]) -> list[str]:
    return sorted(tool["name"] for tool in request.get("tools", []))


def _tools(wanted: list[str], request: Mapping[str, Any]) -> str:
    return _equal(sorted(wanted), _tool_names(request))


def _tools_include(wanted: list[str], request: Mapping[str, Any]) -> str:
    missing = sorted(set(wanted) - set(_tool_names(request)))
    return f"{missing!r} not among {_tool_names(request)!r}" if missing else ""


def _max_tokens(wanted: int, request: Mapping[str, Any]) -> str:
    return _equal(wanted, request.get("max_tokens"))


def _params(wanted: dict[str, Any], request: Mapping[str, Any]) -> str:
    return _equal(wanted, request.get("params", {}))


_CHECKS: Mapping[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "messages": _count,
    "roles": _roles,
    "last_role": _last_role,
    "last_equals": _last_equals,
    "last_contains": _last_contains,
    "contains": _contains,
    "lacks": _lacks,
    "tools": _tools,
    "tools_include": _tools_include,
    "max_tokens": _max_tokens,
    "params": _params,
}
"""One check per key of `script.EXPECTATIONS`."""
