"""The checks, a file per group of rules. `of(suite)` collects them; a suite is found by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from purra_tck.checks import Check

__all__ = ["MODULES", "of"]

MODULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "host": (
            "host_framing",
            "host_values",
            "host_handshake",
            "host_calls",
            "host_streams",
            "host_cancel",
            "host_lifecycle",
            "host_supervision",
            "host_restarts",
            "host_shutdown",
            "host_stdio",
            "host_limits",
            "host_advertised",
            "host_capabilities",
            "host_registry",
            "host_deaths",
            "host_inproc",
        ),
        "manifest": ("manifest", "manifest_running"),
        "model": ("model", "model_failures"),
        "tool": ("tool", "tool_effects"),
        "context": ("context",),
        "compression": ("compression",),
        "store": (
            "store_streams",
            "store_documents",
            "store_leases",
            "store_scans",
            "store_crashes",
            "store_processes",
            "store_values",
            "store_files",
        ),
    }
)
"""Suite -> modules of this package that hold a `CHECKS`."""


def of(suite: str) -> Mapping[str, Check]:
    """Every check of a suite, by rule id."""
    checks: dict[str, Check] = {}
    for name in MODULES[suite]:
        checks.update(importlib.import_module(f"purra_tck.suites.{name}").CHECKS.all())
    return checks
