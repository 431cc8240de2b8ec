"""Hosts that are broken in one way each: the reference process host with one piece replaced.

The puppets stay good, and go through the same checks. A saboteur replaces attributes of the host's
classes while its subject is open; so it can break what no setting reaches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from purra_tck.drivers.host import HostDriver
from purra_tck.drivers.process import ProcessDriver
from purra_tck.saboteurs import Saboteur
from purra_tck.subjects.host import HostSubject, subject_of

__all__ = ["REFERENCES", "SABOTEURS", "Patch", "broken", "opened"]

PATIENCE_S: Final = 2.5
"""How long a check waits for a broken host; many of them never answer."""
_ABSENT: Final = object()


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __call__(self, owner: Any, name: str, value: Any) -> None:
        """`owner`: a class or module."""
        self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Puts everything back, the last one first."""
        for owner, name, value in reversed(self._before):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


Sabotage = Callable[[Patch], None]


def broken(
    name: str, kills: str | tuple[str, ...], message: str, sabotage: Sabotage, **how: Any
) -> Saboteur:
    """A process host after `sabotage`. `how`: as for `Saboteur`, and `driver` of another host, and
    `patience_s` of the checks.
    """
    driver: type[HostDriver] = how.pop("driver", ProcessDriver)
    patience_s: float = how.pop("patience_s", PATIENCE_S)

    @asynccontextmanager
    async def make() -> AsyncGenerator[HostSubject, None]:
        patch = Patch()
        try:
            sabotage(patch)
            async with subject_of(driver(), patience_s) as subject:
                yield subject
        finally:
            patch.undo()

    return Saboteur(name, (kills,) if isinstance(kills, str) else kills, message, make, **how)


@asynccontextmanager
async def opened(driver: HostDriver) -> AsyncGenerator[HostSubject, None]:
    """A host as it is; the name of a reference is the kind of its host."""
    async with subject_of(driver) as subject:
        yield subject


REFERENCES: dict[str, Any] = {"process": lambda: opened(ProcessDriver())}
SABOTEURS: tuple[Saboteur, ...] = ()
