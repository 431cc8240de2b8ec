"""Plugins of the kernels that run on a store, as those tell of them (`bulletin`): for tables, for
people, for programs. Of a kernel that is not running the last word is kept, and never shown as if
it were how things are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from purra.runs.kernels import KernelInfo
from purra_hosts.app.printing import moment

__all__ = ["TITLES", "described", "level", "of_plugin", "row", "value"]

TITLES: Final = (
    "kernel",
    "plugin",
    "version",
    "state",
    "pid",
    "generation",
    "isolation",
    "calls",
    "restarts",
    "last error",
)
_DEMANDED: Final = ("fs", "net", "exec", "ipc", "env")
"""Axes of the level `standard`."""
_HOSTS_OWN: Final = "env"
"""An axis that is kept at the level `none` as well."""


def level(isolation: Mapping[str, str]) -> str:
    """What was achieved, in a word: `standard`, `none`, or `without` what is missing of it; "" if
    nothing runs."""
    if not isolation:
        return ""
    short = [
        axis
        for axis in _DEMANDED
        if not isolation.get(axis, "none").startswith(("enforced", "granted"))
    ]
    if not short:
        return "standard"
    if set(_DEMANDED) - set(short) <= {_HOSTS_OWN}:
        return "none"
    return f"without {', '.join(short)}"


def of_plugin(
    kernels: Iterable[KernelInfo], plugin: str | None = None
) -> Iterator[tuple[KernelInfo, str, Mapping[str, Any]]]:
    """Each kernel that has the plugin (None = any), with the plugin's id and status."""
    for kernel in kernels:
        for name, status in (kernel.plugins or {}).items():
            if plugin in (None, name):
                yield kernel, name, status


def row(kernel: KernelInfo, plugin: str, status: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells below `TITLES`."""
    now = kernel.state == "running"
    return (
        kernel.kernel,
        plugin,
        status["version"],
        _state(kernel, status),
        str(status.get("pid") or "") if now else "",
        str(status["generation"]),
        level(status.get("isolation", {})),
        str(status.get("calls", "")) if now else "",
        str(status.get("restarts", "")),
        _error(status),
    )


def value(kernel: KernelInfo, plugin: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """The strict value of `--json`. `state` is that of the kernel where it is not running."""
    return {
        "kernel": kernel.kernel,
        "kernel_state": kernel.state,
        "kernel_pid": kernel.process.get("pid"),
        "agent": kernel.agent,
        "since_ms": kernel.since_ms,
        "plugin": plugin,
        **status,
        "state": _state(kernel, status),
        "level": level(status.get("isolation", {})),
    }


def described(kernel: KernelInfo, status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines about a plugin in one kernel: what they are about, and the text."""
    pid = kernel.process.get("pid", "?")
    since = moment(kernel.since_ms)
    yield "kernel", f"{kernel.kernel}, {kernel.state}, pid {pid}, since {since}"
    if kernel.state != "running":
        yield "last seen", f"{status['version']}, {status['state']}"
    else:
        pid = f", pid {status['pid']}" if status.get("pid") else ""
        yield "runs as", f"{status['version']}, {status['state']}{pid}"
        yield "calls", f"{status.get('calls', 0)} open, {status.get('queued', 0)} waiting"
    if status.get("ended"):
        ended, failed = status["ended"], status["failed"]
        took = f"{status['mean_ms']:g} ms each, {status['longest_ms']:g} ms the longest"
        yield "", f"{ended} ended, {failed} of them with an error; {took}"
    restarts = status.get("restarts", 0)
    yield "generation", f"{status['generation']}, {restarts} restart{'' if restarts == 1 else 's'}"
    isolation = status.get("isolation", {})
    if isolation:
        yield "isolation", level(isolation)
        for axis, claim in isolation.items():
            yield "", f"{axis} {claim}"
    yield "last error", _error(status) or "none"


def _state(kernel: KernelInfo, status: Mapping[str, Any]) -> str:
    return str(status.get("state", "")) if kernel.state == "running" else kernel.state


def _error(status: Mapping[str, Any]) -> str:
    error = status.get("last_error")
    return f"{error['code']}: {error['message']}" if error else ""
