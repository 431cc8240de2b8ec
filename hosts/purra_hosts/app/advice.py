"""What to do about it, where an error does not say so itself: one table by code, one by how a run
stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from purra.errors import PurraError
from purra.runs.result import Result

__all__ = ["advised", "next_step"]

_START: Final = "`purra plugins doctor --manifest FILE` starts it and shows what it says"
_LOOK: Final = "what it printed says more: --logs shows that"
_BREACH: Final = "its answer breaks the contract of its kind; `purra tck plugin` finds where"

_BY_CODE: Final[Mapping[str, str]] = {
    "crashed": _START,
    "closed": _START,
    "spawn_failed": _START,
    "handshake_timeout": _START,
    "start_timeout": _START,
    "version_mismatch": "install a version of the plugin that fits this one",
    "manifest_mismatch": "it was changed while this ran; start again",
    "quarantined": "it is tried again in 30 s; the message says what it failed with",
    "unresponsive": "a handler holds its interpreter; --logs shows what it printed",
    "tainted": "a handler does not heed its cancel; --logs shows what it printed",
    "protocol_violation": _BREACH,
    "contract_violation": _BREACH,
    "internal": _LOOK,
    "storage": "the message says what the medium is short of; nothing was half written",
    "overloaded": "fewer at once, or more [limits] instances",
    "ownership_lost": "wait for it to end, or cancel it",
}
_BY_STATUS: Final[Mapping[str, str]] = {
    "failed": "`purra runs show {run} -m FILE` tells how it came to that",
    "blocked": "look what is true, then `purra runs reconcile {run} CALL -m FILE`",
    "waiting": "`purra approvals list -m FILE` shows what for",
}


def advised(error: PurraError) -> str:
    """The line about an error, which says what to do if that is known."""
    hint = "" if error.hint else _BY_CODE.get(error.code, "")
    return f"{error} ({hint})" if hint else str(error)


def next_step(result: Result) -> str:
    """What to do about a run that stands so; "" = nothing."""
    by_code = _BY_CODE.get((result.error or {}).get("code", ""), "")
    return by_code or _BY_STATUS.get(result.status, "").format(run=result.run)
