"""The plugin that most tests run: one tool per thing a handler may do."""

from __future__ import annotations

from purra_sdk import Plugin, tool


@tool(effect="pure")
def add(left: int, right: int) -> int:
    return left + right


plugin = Plugin(tools=[add])
