"""Hosts in their plugins' process that are broken in one way each."""

from __future__ import annotations

from typing import Any

from purra_hosts.isolation.policy import AXES, Jail
from purra_hosts.process.inflight import InFlight
from purra_sdk.ledger import Ledger
from purra_tck.drivers.inproc import InprocDriver
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken, opened

__all__ = ["REFERENCES", "SABOTEURS"]


def _passes_by_reference(patch: Patch) -> None:
    """What a handler returns is what its caller gets: the very same object."""
    objects: dict[int, Any] = {}
    succeed, returned = Ledger.succeed, InFlight.returned

    def keeping(self: Ledger, call: Any, value: Any) -> None:
        objects[call.id] = value
        succeed(self, call, value)

    def handing_on(self: InFlight, call_id: int, value: Any) -> None:
        if call_id in objects and type(value) is dict:
            value = {**value, "value": objects.pop(call_id)}
        returned(self, call_id, value)

    patch(Ledger, "succeed", keeping)
    patch(InFlight, "returned", handing_on)


def _claims_isolation(patch: Patch) -> None:
    patch(Jail, "achieved", lambda self, said: dict.fromkeys(AXES, "enforced: by good manners"))


SABOTEURS: tuple[Saboteur, ...] = (
    broken(
        "passes-by-reference",
        "FRM-018",
        "after the plugin changed what it had returned",
        _passes_by_reference,
        driver=InprocDriver,
    ),
    broken(
        "claims-isolation",
        "CAP-008",
        "told as 'enforced",
        _claims_isolation,
        driver=InprocDriver,
    ),
)
REFERENCES: dict[str, Any] = {"inproc": lambda: opened(InprocDriver())}
