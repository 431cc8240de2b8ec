"""The one place where a failure on the wire becomes an error of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from purra.errors import AdapterError, EffectState, Executed, PurraError, StoreError
from purra_bridge.wire.errors import WireError

__all__ = ["adapter_error", "store_error"]

_EXECUTED: Final[Mapping[str, Executed]] = {"no": "no", "maybe": "maybe", "yes": "yes"}
_EFFECT_STATES: Final[Mapping[Any, EffectState]] = {
    "not_started": "not_started",
    "committed": "committed",
    "unknown": "unknown",
}
_STORE_CODES: Final = frozenset({"conflict", "sealed", "lapsed", "storage", "not_found"})


def adapter_error(error: WireError, code: str = "") -> AdapterError:
    """`error` with nothing lost: code, origin and executed as they are, `retry` in the detail.

    `code`: what a contract calls it instead; the wire's code is then the detail's `cause`.
    `effect_state` is the plugin's own word, believed only if the plugin itself spoke: a host that
    lost the plugin knows what `executed` says and no more.
    """
    claimed = error.detail.get("effect_state") if error.origin == "plugin" else None
    cause = {"cause": error.code} if code else {}
    return AdapterError(
        code or error.code,
        error.message,
        origin=error.origin,
        executed=_EXECUTED.get(error.executed, "maybe"),
        effect_state=_EFFECT_STATES.get(claimed) if type(claimed) is str else None,
        retry_after_ms=error.after_ms,
        detail={**error.detail, **cause, "retry": error.retry},
    )


def store_error(error: WireError) -> PurraError:
    """`error` as the store contract spells it: the store's own refusals are `StoreError`, a call
    that it could not read is `PurraError(invalid_argument)`, all else is `AdapterError`.
    """
    told: Any = error.detail.get("store")
    if error.code == "failed_precondition" and isinstance(told, Mapping):
        code = told.get("code")
        if type(code) is str and code in _STORE_CODES:
            detail = {key: value for key, value in told.items() if key != "code"}
            return StoreError(code, error.message, detail=detail)
    if error.code == "invalid_argument":
        return PurraError("invalid_argument", error.message, detail=error.detail)
    return adapter_error(error)
