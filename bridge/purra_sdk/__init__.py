"""What a plugin author imports.

    from purra_sdk import Plugin, tool

    @tool(effect="pure")
    def add(left: int, right: int) -> int:
        return left + right

    plugin = Plugin(tools=[add])

Needs nothing but the standard library, and little of that: a start is measured in milliseconds,
and every module imported here is paid by every plugin.
"""

from __future__ import annotations

from .declare import Plugin, batched, context, model, policy, store, tool
from .outcomes import CallCancelled, PluginError, StoreError, ToolError, outcome

__all__ = [
    "CallCancelled",
    "Plugin",
    "PluginError",
    "StoreError",
    "ToolError",
    "batched",
    "context",
    "model",
    "outcome",
    "policy",
    "store",
    "tool",
]
