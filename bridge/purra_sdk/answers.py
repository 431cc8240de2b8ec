"""What the wire says of an outcome: exceptions become errors, and their text stays here.

An exception that the author did not mean for others may quote a secret or a prompt, so the caller
gets its class and the log its traceback. Only the classes of `errors` speak for themselves.
"""

from __future__ import annotations

import sys

from purra_bridge.wire.errors import WireError
from purra_bridge.wire.events import Failed

from .errors import CallCancelled, PluginError, StoreError, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["answer_of", "failure", "report", "tool_failure", "unsendable"]


def failure(error: BaseException) -> WireError:
    """The ERROR that stands for an exception of a handler."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, CallCancelled):
        return WireError("cancelled", "stopped because it was cancelled", executed="yes")
    if isinstance(error, StoreError):
        detail: dict[str, Any] = {"store": {**error.detail, "code": error.code}}
        return WireError("failed_precondition", error.code, detail=detail)
    if isinstance(error, PluginError):
        detail = dict(error.detail)
        if error.effect_state is not None:
            detail["effect_state"] = error.effect_state
        return WireError(
            error.code,
            error.message,
            origin="plugin",
            executed="no" if error.effect_state == "not_started" else "yes",
            after_ms=error.after_ms,
            detail=detail,
        )
    if isinstance(error, ToolError):
        return WireError("internal", error.message, detail={"type": "ToolError"})
    name = type(error).__name__
    return WireError("internal", f"the handler raised {name}", detail={"type": name})


def tool_failure(error: ToolError) -> dict[str, Any]:
    """The RESULT that stands for an ordinary failure of a tool: the model may read it."""
    return {
        "value": {"error": error.message},
        "is_error": True,
        "code": error.code,
        "effect_state": error.effect_state,
    }


def unsendable(refused: BaseException) -> WireError:
    """The ERROR when an answer or item is no strict value: it costs that call only (H20, K26)."""
    if isinstance(refused, WireError):
        return refused  # too large
    return WireError("contract_violation", f"the handler's answer cannot be sent: {refused}")


def answer_of(event: Any) -> Any:
    """The value of a callback. Raises `PluginError` with the code that the host answered."""
    if type(event) is Failed:
        error = event.error
        raise PluginError(error.code, error.message, after_ms=error.after_ms, detail=error.detail)
    return event.value


def report(error: BaseException) -> None:
    """The traceback of an exception that nobody foresaw, to the log."""
    if isinstance(error, (ToolError, PluginError, StoreError, CallCancelled, WireError)):
        return
    try:
        # Written in C: the `traceback` module would be thirteen more modules to load.
        sys.__excepthook__(type(error), error, error.__traceback__)
    except BaseException:  # a plugin may have closed or replaced stderr
        pass
