"""Comparing what a gate finds with the one list of exceptions (`exceptions.toml`)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["GATES", "hold"]

_FILE = Path(__file__).with_name("exceptions.toml")


@functools.cache
def _exceptions() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(_FILE.read_text())


GATES = tuple(_exceptions())


def hold(gate: str, found: Mapping[str, str]) -> None:
    """Fails unless `found` (place -> what is wrong there) equals the exceptions of `gate`."""
    excused = _exceptions()[gate]
    broken = [f"{place}: {what}" for place, what in found.items() if place not in excused]
    unneeded = [f"{place}: no longer breaks {gate!r}" for place in excused if place not in found]
    unreasoned = [f"{place}: no reason given" for place, why in excused.items() if len(why) < 10]
    problems = broken + unneeded + unreasoned
    assert not problems, "\n".join([f"gate {gate!r}:", *problems])
