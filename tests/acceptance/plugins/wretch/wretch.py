"""Tools that misbehave, each in its own way."""

from __future__ import annotations

import os
import time
from typing import Any

from purra_sdk import Plugin, tool

LINES = b"wretched\n" * 7000
MIB = 1024 * 1024


@tool(effect="world_read", name="wretch.print")
def speak(call: Any) -> str:
    """Prints by every road."""
    print("printed")
    os.write(1, b'{"jsonrpc": "2.0"}\n\x00\xff')
    return "printed"


@tool(effect="world_read", name="wretch.flood")
def flood(call: Any, mib: int) -> str:
    """Floods its log."""
    left = mib * MIB
    while left > 0:
        left -= os.write(2, LINES)
    return "flooded"


@tool(effect="world_read", name="wretch.nan")
def nan(call: Any) -> Any:
    """No number."""
    return {"value": [float("nan")]}


@tool(effect="world_read", name="wretch.surrogate")
def surrogate(call: Any) -> Any:
    """Half a character."""
    return {"value": "half \ud800"}


@tool(effect="world_read", name="wretch.large")
def large(call: Any) -> Any:
    """10 MiB."""
    return "x" * (10 * MIB)


@tool(effect="world_read", name="wretch.object")
def thing(call: Any) -> Any:
    """What has no encoding."""
    return {"value": object()}


@tool(effect="world_read", name="wretch.nothing")
def nothing(call: Any) -> Any:
    """Nothing at all."""


@tool(effect="world_read", name="wretch.sleep")
def sleep(call: Any) -> Any:
    """Past every deadline, and hears no cancel."""
    time.sleep(600)


@tool(effect="world_read", name="wretch.good")
def good(call: Any) -> str:
    """What any tool does."""
    return "good"


plugin = Plugin(tools=[speak, flood, nan, surrogate, large, thing, nothing, sleep, good])
