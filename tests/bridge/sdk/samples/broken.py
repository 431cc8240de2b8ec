"""Cannot be imported."""

from __future__ import annotations

raise RuntimeError("no database\nat the usual place")
