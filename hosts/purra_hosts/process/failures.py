"""The errors that this host makes itself: what, whose fault, what is known of the execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Launch
from purra_hosts.process.spawn import Exit

__all__ = ["again", "before_sending", "crash", "isolation_missing", "spawn_failed"]

_LIMITS: Final = {24: "cpu", 31: "system call"}
"""Signals by which the kernel ends a process that went beyond a limit: SIGXCPU, SIGSYS."""


def spawn_failed(launch: Launch, program: str, error: Exception) -> WireError:
    """The program cannot be run: names it and the errno, with no traceback (SUP-018)."""
    number = error.errno if isinstance(error, OSError) else None
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return WireError(
        "spawn_failed",
        f"{launch.label}: cannot run {program}: {reason}",
        detail={"plugin": launch.plugin, "program": program, "errno": number},
    )


def isolation_missing(launch: Launch, axes: Mapping[str, str]) -> WireError:
    """The host manifest demands a level that this machine does not have. `axes`: those that are
    missing, with the reason.
    """
    reasons = "; ".join(f"{axis}: {why}" for axis, why in axes.items())
    return WireError(
        "isolation_unavailable",
        f"{launch.label}: isolation level {launch.isolation.level} is required: {reasons}",
        detail={"plugin": launch.plugin, "axes": dict(axes)},
    )


def crash(launch: Launch, where: dict[str, Any], how: Exit | None, stderr: str) -> WireError:
    """The process ended (`crashed`) or closed its channel and lives on (`closed`).

    `where` holds instance and generation, `how` is None while the process is there.
    """
    detail = {"plugin": launch.plugin, **where, "stderr": stderr}
    if how is None:
        return WireError("closed", f"{launch.label} closed its channel", detail=detail)
    detail |= {"exit": how.status, "signal": how.signal}
    if how.signal in _LIMITS:
        detail["limit"] = _LIMITS[how.signal]
    last = stderr.strip().rpartition("\n")[2][:200]
    said = f": {last}" if last else ""
    return WireError("crashed", f"{launch.label} {how}{said}", detail=detail)


def again(error: WireError, executed: str) -> WireError:
    """The same error for another call. Each waiter gets its own: a raised exception collects the
    traceback of whoever raised it.
    """
    return WireError(
        error.code,
        error.message,
        origin=error.origin,
        executed=executed,
        retry=error.retry,
        after_ms=error.after_ms,
        detail=error.detail,
    )


def before_sending(code: str, message: str) -> WireError:
    """A call that never left the host."""
    return WireError(code, message, executed="no")
