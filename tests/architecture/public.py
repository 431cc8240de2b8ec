"""What others may import: these modules, and in them what `__all__` names. Everything else may move
without notice.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

__all__ = ["PUBLIC", "public_names"]

PUBLIC: Final = (
    "purra",
    "purra.adapters",
    "purra.contracts.call",
    "purra.contracts.clock",
    "purra.contracts.context",
    "purra.contracts.messages",
    "purra.contracts.model",
    "purra.contracts.policy",
    "purra.contracts.store",
    "purra.contracts.tool",
    "purra.errors",
    "purra.stores.memory",
    "purra.tools",
    "purra.values",
    "purra_bridge.ports.channel",
    "purra_bridge.ports.context",
    "purra_bridge.ports.model",
    "purra_bridge.ports.policy",
    "purra_bridge.ports.store",
    "purra_bridge.ports.tool",
    "purra_bridge.wire.codec",
    "purra_bridge.wire.errors",
    "purra_bridge.wire.events",
    "purra_bridge.wire.session",
    "purra_hosts.launch",
    "purra_sdk",
    "purra_sdk.items",
    "purra_sdk.testing",
    "purra_tck",
)


def public_names() -> Mapping[str, frozenset[str]]:
    """The names of each module."""
    return {name: frozenset(importlib.import_module(name).__all__) for name in PUBLIC}
