"""Which of the offered tools can be used for what, and calls of them that their schemas admit.

A tool is known by the shape of its schema and its name, not by its plugin, so the model works with
any tool of that shape. A tool is used only if everything that it requires can be given, which keeps
a tool that writes from being taken for one that reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Asked", "ToolUse", "Toolbox", "toolbox"]


class Asked(NamedTuple):
    """One call to make."""

    name: str
    arguments: dict[str, Any]


class ToolUse(NamedTuple):
    """An offered tool and the properties of its schema."""

    name: str
    properties: Mapping[str, Any]
    required: frozenset[str]

    def takes(self, name: str, kind: str) -> bool:
        """Whether there is a parameter `name` of type `kind`."""
        schema = self.properties.get(name)
        return isinstance(schema, Mapping) and schema.get("type") == kind

    def ask(self, **wanted: Any) -> Asked:
        """A call with those of the wanted arguments that the tool takes, within their bounds."""
        arguments: dict[str, Any] = {}
        for name, value in wanted.items():
            kind = _KINDS[type(value)]
            if self.takes(name, kind):
                arguments[name] = _bounded(self.properties[name], value)
        return Asked(self.name, arguments)


class Toolbox(NamedTuple):
    """The tools that can be used; None = not offered."""

    search: ToolUse | None
    read: ToolUse | None
    list: ToolUse | None

    @property
    def usable(self) -> bool:
        """Whether files can be searched, one way or another."""
        return self.search is not None or (self.list is not None and self.read is not None)


_KINDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer"}


def toolbox(offers: list[Any]) -> Toolbox:
    """Sorts the offered tools by what they are good for; the first of a kind is taken."""
    tools = [tool for offer in offers if (tool := _tool(offer)) is not None]
    return Toolbox(
        search=_first(tools, "pattern", {"pattern", "path"}, ("grep", "search", "find", "")),
        read=_first(tools, "path", {"path"}, ("read", "cat", "view")),
        list=_first(tools, "path", {"path"}, ("list", "ls", "tree")),
    )


def _tool(offer: Any) -> ToolUse | None:
    parameters = offer.get("parameters") or {}
    properties = parameters.get("properties") or {}
    if not isinstance(properties, Mapping):
        return None
    return ToolUse(offer["name"], properties, frozenset(parameters.get("required") or ()))


def _first(
    tools: list[ToolUse], parameter: str, given: set[str], names: tuple[str, ...]
) -> ToolUse | None:
    """The first tool, by the order of `names`, that takes `parameter` and needs only `given`."""
    fitting = [tool for tool in tools if tool.takes(parameter, "string") and tool.required <= given]
    for part in names:
        for tool in fitting:
            if part in tool.name.casefold():
                return tool
    return None


def _bounded(schema: Mapping[str, Any], value: Any) -> Any:
    if type(value) is int:
        return max(schema.get("minimum", value), min(schema.get("maximum", value), value))
    return value[: schema.get("maxLength", len(value))] if isinstance(value, str) else value
