"""Deliberately broken subjects: how the kit proves that it can fail.

A rule does not count before a saboteur is killed by it, with the message that its author expected,
while the reference subjects stay green. `purra_tck.selftest` tries all of them.

A module here holds `SABOTEURS`, and may hold `REFERENCES`: the subjects that must pass. Both are
factories of what the suite's own checks take, so a saboteur goes through everything that a real
subject goes through.

This package is also imported by broken plugins, in their own small processes. So nothing of the kit
is imported here before somebody asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from typing import Any

    OpenSubject = Callable[[], AbstractAsyncContextManager[Any]]

__all__ = ["MODULES", "Saboteur", "of", "references"]

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "host": (
            "host",
            "host_framing",
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
            "host_capabilities",
            "host_registry",
            "host_deaths",
            "host_inproc",
            "host_universal",
        ),
        "manifest": ("plugin_manifest",),
        "model": ("plugin_model",),
        "tool": ("plugin_tool",),
        "context": ("plugin_context",),
        "compression": ("plugin_compression",),
        "store": ("store",),
    }
)
"""Suite -> modules of this package that hold `SABOTEURS`."""


class Saboteur:
    """One broken subject.

    `name`: as in the rule table. `kills`: patterns of the rules that must catch it. `message`:
    what `expected`, `observed` or the reason of each such verdict must contain; "" for a universal
    saboteur, which each rule catches in its own words. `make`: opens it, as `Plan.open` does.
    `dies`: how many of those rules must be red: `each`, `asked` for each that is not n/a, `any`, or
    `never` for one that the kit must not mind. `verdicts`: what counts as killed; a SHOULD rule
    says `warn` for `fail`. `twice`: run each check two times. `timeout_s`: for one run of a check,
    0 = the kit's own.
    """

    __slots__ = ("dies", "kills", "make", "message", "name", "timeout_s", "twice", "verdicts")

    def __init__(
        self,
        name: str,
        kills: tuple[str, ...],
        message: str,
        make: OpenSubject,
        **how: Any,
    ) -> None:
        self.name = name
        self.kills = kills
        self.message = message
        self.make = make
        self.dies: str = how.pop("dies", "each")
        self.verdicts: tuple[str, ...] = how.pop("verdicts", ("fail", "warn"))
        self.twice: bool = how.pop("twice", False)
        self.timeout_s: float = how.pop("timeout_s", 0.0)
        if how or self.dies not in ("each", "asked", "any", "never"):
            raise ValueError(f"saboteur {name}: {how or self.dies} is not known")

    @property
    def universal(self) -> bool:
        """Whether it is broken in a way that has nothing to do with any one rule."""
        return any("*" in pattern for pattern in self.kills)


def of(suite: str) -> tuple[Saboteur, ...]:
    """The saboteurs of a suite. Raises `ValueError` if two have one name."""
    found: dict[str, Saboteur] = {}
    for module in MODULES[suite]:
        for saboteur in importlib.import_module(f"purra_tck.saboteurs.{module}").SABOTEURS:
            if saboteur.name in found:
                raise ValueError(f"two saboteurs of the {suite} suite are called {saboteur.name}")
            found[saboteur.name] = saboteur
    return tuple(found.values())


def references(suite: str) -> Mapping[str, OpenSubject]:
    """The subjects that must pass the suite, by name."""
    found: dict[str, OpenSubject] = {}
    for module in MODULES[suite]:
        known = importlib.import_module(f"purra_tck.saboteurs.{module}")
        found.update(getattr(known, "REFERENCES", {}))
    return found
