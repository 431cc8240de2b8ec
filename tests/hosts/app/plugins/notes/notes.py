"""A tool that reports everything its worker was given."""

from __future__ import annotations

import os
from typing import Any

from purra_sdk import Plugin, tool


@tool(effect="world_read", name="notes.report")
def report(call: Any, text: str) -> dict[str, Any]:
    """Reports."""
    setup = call.setup
    return {
        "text": text,
        "config": setup.config,
        "grants": setup.grants,
        "secret": setup.secrets.get("TOKEN", ""),
        "in_environment": setup.secrets.get("TOKEN", "?") in str(dict(os.environ)),
        "colour": os.environ.get("NOTES_COLOUR", ""),
    }


@tool(effect="world_write", name="notes.write")
def write() -> None:
    """Never called."""


plugin = Plugin(tools=[report, write])
