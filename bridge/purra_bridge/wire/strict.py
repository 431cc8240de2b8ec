"""What a strict value may be (design invariant 8): bounds and types, for all who check one."""

from __future__ import annotations

__all__ = ["FROZEN", "INT_MAX", "INT_MIN", "MAX_DEPTH"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 64
"""Containers inside each other in one value."""
INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
FROZEN: Any = type(type.__dict__)
"""mappingproxy: the maps of values that the kernel has frozen."""
