"""What a handler raises or returns to say more than "it went wrong" or "here is the value".

An exception that is not of this file becomes `internal`: the caller learns its class, its text and
traceback go to the log only, because an exception's text may hold what the model must not read.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CallCancelled", "Outcome", "PluginError", "StoreError", "ToolError", "outcome"]


class PluginError(Exception):
    """A failure with a code of the wire (protocol, errors): of origin `plugin`, after it ran.

    `code`: `not_found`, `failed_precondition`, `resource_exhausted`, `rate_limited`, `upstream`,
    `invalid_argument`, `internal` ... `effect_state`: `not_started`, `committed` or `unknown`, what
    the adapter knows of its own side effect; None = it does not say. `after_ms`: when trying again
    may help. `detail`: strict values for programs, such as `{"status": 429}`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        effect_state: str | None = None,
        after_ms: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = str(message)
        self.effect_state = effect_state
        self.after_ms = None if after_ms is None else int(after_ms)
        self.detail = detail or {}


class ToolError(Exception):
    """An ordinary failure of a tool, which the model may read: it becomes a result, not an error.

    Unlike any other exception it says what is known of the effect, so that a failed write that did
    nothing does not block its run (tables, effect states).
    """

    def __init__(
        self, message: str, *, code: str = "tool_failed", effect_state: str = "not_started"
    ) -> None:
        super().__init__(message)
        self.message = str(message)
        self.code = code
        self.effect_state = effect_state


class StoreError(Exception):
    """A store refused or failed: `conflict`, `sealed`, `lapsed`, `storage` or `not_found`.

    `detail` says with what: `key` and `revision`, `stream` and `head`, `digest`, `errno`. Strict
    values only.
    """

    def __init__(self, code: str, **detail: Any) -> None:
        super().__init__(code if not detail else f"{code}: {detail}")
        self.code = code
        self.detail = detail


class CallCancelled(BaseException):
    """The caller gave the call up, or the connection ended, while a handler waited for it.

    Derived from BaseException, as asyncio's CancelledError is: `except Exception` around a wait for
    the next chunk must not turn a cancelled call into one that goes on.
    """


class Outcome:
    """A tool's result with more than its value; made by `outcome`."""

    __slots__ = ("body",)

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body


def outcome(
    value: Any,
    *,
    effect_state: str = "",
    step: str = "",
    display: dict[str, Any] | None = None,
    **more: Any,
) -> Outcome:
    """What a tool returns when its value alone does not say everything.

    `effect_state`: `not_started`, `committed`, `unknown`. `step`: `continue` or `complete` (the run
    ends after this batch). `display`: for people, never for the model. `more`: `planning` (`keep`,
    `replan`), `is_error`, `code`, `events`, `artifacts`. What is left out takes the default of the
    tool contract.
    """
    body = {"value": value, **more}
    if effect_state:
        body["effect_state"] = effect_state
    if step:
        body["step"] = step
    if display:
        body["display"] = display
    return Outcome(body)
