"""Leaves when imported."""

from __future__ import annotations

import sys

sys.exit("bye")
