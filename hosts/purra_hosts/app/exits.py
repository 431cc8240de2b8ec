"""Exit codes of the command line (protocol): one table for results, one rule for errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from purra.errors import CODES, PurraError

__all__ = [
    "BLOCKED",
    "CANCELED",
    "COMPLETED",
    "FAILED",
    "OF_STATUS",
    "SETUP",
    "USAGE",
    "of_error",
]

COMPLETED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
BLOCKED: Final = 3
"""Blocked or waiting: a person must do something."""
SETUP: Final = 4
"""Manifest, plugin, isolation: nothing ran."""
CANCELED: Final = 130

OF_STATUS: Final[Mapping[str, int]] = {
    "completed": COMPLETED,
    "failed": FAILED,
    "blocked": BLOCKED,
    "waiting": BLOCKED,
    "canceled": CANCELED,
}

_SETUP_CODES: Final = frozenset(
    {
        "spawn_failed",
        "handshake_timeout",
        "version_mismatch",
        "manifest_mismatch",
        "start_timeout",
        "isolation_unavailable",
        "quarantined",
    }
)
"""Host codes that mean: a plugin could not start."""


def of_error(error: PurraError) -> int:
    """2 for what the caller typed, 4 for what the operator set up, 1 for the rest."""
    known = CODES.get(error.code)
    if error.code in _SETUP_CODES or (known and known.blame == "operator"):
        return SETUP
    return USAGE if known and known.blame == "caller" else FAILED
