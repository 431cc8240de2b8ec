"""Hosts that choke on what plugins print, or tell it wrongly."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from purra_hosts.process.logs import Logs
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS", "spawning"]


def spawning(change: Callable[[dict[str, Any]], None]) -> Callable[[Patch], None]:
    """A sabotage of how processes are started: `change` gets the options of `Popen`."""

    def sabotage(patch: Patch) -> None:
        real = subprocess.Popen

        def start(argv: Any, **options: Any) -> Any:
            change(options)
            return real(argv, **options)

        patch(subprocess, "Popen", start)

    return sabotage


def _undrained(patch: Patch) -> None:
    attach = Logs.attach

    def once(self: Logs, loop: Any, stdout: int | None, stderr: int | None) -> None:
        attach(self, loop, stdout, stderr)
        if stderr is not None:
            loop.remove_reader(stderr)  # it will be read when the process has ended

    patch(Logs, "attach", once)


def _stderr_to_devnull(options: dict[str, Any]) -> None:
    options["stderr"] = subprocess.DEVNULL


def _channel_is_fd_1(options: dict[str, Any]) -> None:
    options["stdout"] = options["pass_fds"][0]


def _strict_lines(patch: Patch) -> None:
    line = Logs._line

    def strict(self: Logs, pipe: Any) -> None:
        pipe.partial.decode("utf-8")
        line(self, pipe)

    patch(Logs, "_line", strict)


def _untagged(patch: Patch) -> None:
    init = Logs.__init__

    def bare(self: Logs, tags: Any, *arguments: Any) -> None:
        init(self, {"plugin": tags["plugin"]}, *arguments)

    patch(Logs, "__init__", bare)


def _logs_secrets(patch: Patch) -> None:
    init = Logs.__init__

    def naive(self: Logs, tags: Any, sink: Any, _secrets: Any = ()) -> None:
        init(self, tags, sink)

    patch(Logs, "__init__", naive)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("undrained-stderr", "IOC-001", "the puppet does write", _undrained),
    broken("stderr-to-devnull", "IOC-002", "with crashed", spawning(_stderr_to_devnull)),
    broken("protocol-on-fd1", "IOC-003", "a process that does", spawning(_channel_is_fd_1)),
    broken("readline-strict", "IOC-004", "7 lines of stdout", _strict_lines),
    broken("untagged", "IOC-005", "the instance in the records", _untagged),
    broken("logs-secret", "IOC-006", "without the secret", _logs_secrets),
)
