"""How to mend what a rule found: a sentence for each rule that authors of plugins meet."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

__all__ = ["mends"]


@cache
def mends() -> Mapping[str, str]:
    """Rule id -> what to do. Rules of hosts and stores have none: their texts say it."""
    text = files("purra_tck").joinpath("mends.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))
