"""What a plugin is run with, as one line of JSON: for hosts that are in a process of their own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from purra_tck.drivers.host import PluginSpec

__all__ = ["from_text", "to_text"]


def to_text(spec: PluginSpec) -> str:
    """All its fields; the folder is a path."""
    return json.dumps(asdict(spec), default=str)


def from_text(text: str) -> PluginSpec:
    """The same spec again. Raises `ValueError` and `TypeError` for anything else."""
    told: dict[str, Any] = json.loads(text)
    told["folder"] = Path(told["folder"])
    told["offers"] = tuple((kind, name) for kind, name in told["offers"])
    told["command"] = tuple(told["command"])
    told["services"] = tuple(told["services"])
    return PluginSpec(**told)
