"""A projector as an application would ship it: found by the plugin's process, on its own path."""

from __future__ import annotations

from typing import Any

__all__ = ["counted"]


def counted(tables: Any, payload: int) -> None:
    tables.execute("CREATE TABLE IF NOT EXISTS counted(n INTEGER)")
    tables.execute("INSERT INTO counted VALUES (?)", (payload,))
