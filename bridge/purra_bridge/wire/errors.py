"""Errors that cross the wire, each with a code, an origin and what is known of the execution.

Two kinds, apart by blame. A `WireError` costs one call: it is the body of an ERROR frame, or is
made by the near end when a call cannot be finished. A `ProtocolViolation` costs the connection: the
other end sent bytes that no correct peer sends, so nothing after them can be trusted.

The table of codes is protocol: programs read it, so a code never changes its meaning and is never
removed (a snapshot test holds it). Source: the wire specification, chapter errors.
"""

from __future__ import annotations

__all__ = ["CODES", "REASONS", "ProtocolViolation", "WireError", "too_large", "unreadable"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CODES: dict[str, tuple[str, str, str]] = {
    # code: (origin, executed, retry) where an ERROR does not say otherwise
    "spawn_failed": ("host", "no", "same"),
    "handshake_timeout": ("host", "no", "same"),
    "version_mismatch": ("host", "no", "never"),
    "manifest_mismatch": ("host", "no", "never"),
    "start_timeout": ("host", "no", "same"),
    "isolation_unavailable": ("host", "no", "never"),
    "overloaded": ("host", "no", "same"),
    "draining": ("host", "no", "same"),
    "retired": ("host", "no", "never"),
    "quarantined": ("host", "no", "same"),
    "not_active": ("host", "no", "same"),
    "capability_denied": ("host", "no", "never"),
    "too_large": ("host", "no", "other"),
    "crashed": ("instance", "maybe", "same"),
    "closed": ("instance", "maybe", "same"),
    "unresponsive": ("instance", "maybe", "same"),
    "tainted": ("instance", "maybe", "same"),
    "protocol_violation": ("instance", "maybe", "never"),
    "cancelled": ("caller", "maybe", "never"),
    "deadline_exceeded": ("caller", "maybe", "never"),
    "parent_gone": ("caller", "no", "never"),
    "invalid_argument": ("caller", "no", "other"),
    "unimplemented": ("plugin", "no", "never"),
    "not_found": ("plugin", "yes", "other"),
    "failed_precondition": ("plugin", "yes", "other"),
    "resource_exhausted": ("plugin", "yes", "same"),
    "rate_limited": ("plugin", "yes", "same"),
    "upstream": ("plugin", "yes", "same"),
    "contract_violation": ("plugin", "yes", "never"),
    "internal": ("plugin", "yes", "never"),
}
"""Every code with its origin, and its `executed` and `retry` when an error does not say them."""

_UNKNOWN = ("plugin", "maybe", "never")  # a newer peer may know codes that we do not

REASONS: tuple[str, ...] = (
    "bad_frame",  # a header or a connection message that cannot be read
    "before_hello",  # the first frame was not HELLO
    "out_of_order",  # legal in another state of the connection or the call
    "unknown_type",  # a type that must be understood (bit 7) and is not
    "unknown_id",  # an id that nobody issued
    "reused_id",  # a CALL on an id that was used before
    "duplicate_terminal",  # RESULT or ERROR after the terminal
    "after_terminal",  # DATA after the terminal
    "flow",  # DATA without credit, or credit that nobody spent
    "stdout_polluted",  # stdio mode: text where the preamble was due
)
"""Why a connection was given up: the `reason` of a `ProtocolViolation`."""

_FIELDS: dict[str, tuple[str, ...]] = {
    "origin": ("host", "instance", "caller", "plugin"),
    "executed": ("no", "maybe", "yes"),
    "retry": ("never", "same", "other"),
}


class WireError(Exception):
    """One call failed.

    `code` is a key of `CODES` (or newer), `message` one line for people, `origin` who failed (host,
    instance, caller, plugin), `executed` whether the handler ran (no, maybe, yes), `retry` how to
    try again (never, same, other), `after_ms` the wait that the other side asks for, `detail`
    strict values for programs.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        origin: str | None = None,
        executed: str | None = None,
        retry: str | None = None,
        after_ms: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        usual = CODES.get(code, _UNKNOWN)
        self.code = code
        self.message = message
        self.origin = usual[0] if origin is None else origin
        self.executed = usual[1] if executed is None else executed
        self.retry = usual[2] if retry is None else retry
        self.after_ms = after_ms
        self.detail: dict[str, Any] = {} if detail is None else detail

    def to_body(self) -> dict[str, Any]:
        """The body of an ERROR frame."""
        body: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "origin": self.origin,
            "executed": self.executed,
            "retry": self.retry,
        }
        if self.after_ms is not None:
            body["after_ms"] = self.after_ms
        if self.detail:
            body["detail"] = self.detail
        return body

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> WireError:
        """The error of an ERROR body whose field types were checked before (`messages.fault`).

        Words that we do not know (a newer peer) become the code's usual ones.
        """
        known = {
            name: body[name] if body.get(name) in words else None for name, words in _FIELDS.items()
        }
        return cls(
            body["code"],
            body["message"],
            after_ms=body.get("after_ms"),
            detail=body.get("detail"),
            **known,
        )


class ProtocolViolation(Exception):  # noqa: N818 - named for what it reports
    """The other end broke the protocol; the connection is over.

    `reason` is one of `REASONS`, `message` says what arrived and what was due. `events` holds what
    was decoded before it in the same read: those frames were good and must still be handled.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.events: list[Any] = []


def too_large(length: int, limit: int, executed: str = "no") -> WireError:
    """The error for a message of `length` bytes where `limit` are allowed."""
    return WireError(
        "too_large",
        f"a message of {length} bytes; the limit is {limit}",
        executed=executed,
        detail={"bytes": length, "limit": limit},
    )


def unreadable(what: str, refused: Any, executed: str = "yes") -> WireError:
    """The error for a body of ours that its decoder refused (`codec.ValueRefused`)."""
    detail = {} if refused.offset is None else {"offset": refused.offset}
    return WireError(
        "contract_violation", f"unreadable {what}: {refused}", executed=executed, detail=detail
    )
