"""Writes a file when imported: where it is not there, no plugin code has run."""

from __future__ import annotations

from pathlib import Path

from purra_sdk import Plugin

Path("imported").write_text("yes")
plugin = Plugin()
