"""Hosts that let plugins have, or see, more than they should."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from purra_hosts.process import program
from purra_hosts.process.inflight import InFlight
from purra_hosts.process.spawn import Child, Command, environment
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, Sabotage, broken
from purra_tck.saboteurs.host_stdio import spawning

__all__ = ["SABOTEURS"]


def _without(**limits: Any) -> Sabotage:
    """Limits of the process are set, but for these."""

    def sabotage(patch: Patch) -> None:
        limit = Child.limit
        patch(Child, "limit", lambda self, command: limit(self, replace(command, **limits)))

    return sabotage


def _inherits_ulimit(patch: Patch) -> None:
    patch(Child, "limit", lambda self, command: None)


def _caps_frames_only(patch: Patch) -> None:
    patch(InFlight, "_too_much", lambda self, call: None)


def _copies_environ(patch: Patch) -> None:
    def generous(host: Any, home: Any, granted: Any, own: Any) -> dict[str, str]:
        return {**host, **environment(host, home, granted, own)}

    patch(program, "environment", generous)


def _keeps_fds(options: dict[str, Any]) -> None:
    os.set_inheritable(options.pop("pass_fds")[0], True)
    options["close_fds"] = False


def _shared_tmp(patch: Patch) -> None:
    def shared(host: Any, home: Any, granted: Any, own: Any) -> dict[str, str]:
        return {**environment(host, home, granted, own), "TMPDIR": "/tmp"}

    patch(program, "environment", shared)


def _token_in_argv(patch: Patch) -> None:
    command_of = program.command_of
    from purra_hosts.process import instance

    def chatty(launch: Any, birth: Any) -> Command:
        command = command_of(launch, birth)
        return replace(command, argv=(*command.argv, *launch.secrets.values()))

    patch(instance, "command_of", chatty)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("host-OOM", "LIM-001", "beyond the cap", _without(memory_bytes=None)),
    broken("deadline-only", "LIM-002", "no end within", _without(cpu_s=None)),
    broken("inherits-ulimit", "LIM-003", "fewer than 64 files", _inherits_ulimit),
    broken("cap-on-frame-only", "LIM-004", "a stream ends within", _caps_frames_only),
    broken("os.environ-copy", "LIM-005", "that nobody granted", _copies_environ),
    broken("close_fds-False", "LIM-006", "descriptors beside", spawning(_keeps_fds)),
    broken("shared-tmp", "LIM-007", "the mode of tmp", _shared_tmp),
    broken("advertises-only", "LIM-008", "fewer than 48 open files", _inherits_ulimit),
    broken("token-in-argv", "LIM-010", "no secret in cmdline", _token_in_argv),
)
