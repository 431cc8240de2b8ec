"""Tools that write lines to one file, and can be made to hang."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from purra_sdk import Plugin, tool

sys.path.append(str(Path(__file__).parents[1]))
from fuse import burn

LOOK_S = 0.01


@tool(effect="world_write", name="hand.write")
def write(call: Any, line: str) -> dict[str, Any]:
    """Appends a line."""
    config = call.setup.config
    burn(config.get("fuse", ""), "tool:before", go_on=False)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    descriptor = os.open(config["file"], flags, 0o600)
    os.write(descriptor, (line + "\n").encode())
    os.close(descriptor)
    burn(config.get("fuse", ""), "tool:after", go_on=False)
    return {"written": line}


@tool(effect="irreversible", name="hand.burn")
def burn_it(call: Any) -> dict[str, Any]:
    """Removes the file."""
    os.unlink(call.setup.config["file"])
    return {"burnt": True}


@tool(effect="world_read", name="hand.look")
def look(call: Any) -> dict[str, Any]:
    """How many lines there are."""
    try:
        with open(call.setup.config["file"]) as file:
            return {"lines": len(file.readlines())}
    except FileNotFoundError:
        return {"lines": 0}


def _hang(call: Any, heed: bool) -> dict[str, Any]:
    call.progress("hanging")
    never = threading.Event()
    while not (heed and call.cancelled):
        never.wait(LOOK_S)
    return {"stopped": True}


@tool(effect="world_read", name="hand.stare")
def stare(call: Any, heed: bool) -> dict[str, Any]:
    """Reads and does not end by itself."""
    return _hang(call, heed)


@tool(effect="world_write", name="hand.dig")
def dig(call: Any, heed: bool) -> dict[str, Any]:
    """Writes and does not end by itself."""
    return _hang(call, heed)


plugin = Plugin(tools=[write, burn_it, look, stare, dig])
