"""Landlock's rights, by version of the kernel's interface. Pure.

Rights that a version does not know cannot be asked for, so the same policy is weaker on an older
kernel; what is missing is made up for by seccomp where that is possible (`seccomp`): `truncate`
below version 3, signals and abstract sockets below 6. Ports below 4 cannot be made up for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from purra_hosts.isolation.folders import Folder

__all__ = ["NEWEST", "PORTS_SINCE", "ruleset"]

NEWEST: Final = 7
"""The last version whose additions were looked at; a newer kernel is asked for this one."""
PORTS_SINCE: Final = 4

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR = 1 << 4, 1 << 5, 1 << 6, 1 << 7
_MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 8, 1 << 9, 1 << 10, 1 << 11
_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 12, 1 << 13, 1 << 14, 1 << 15

_SINCE: Final = {1: _REFER - 1, 2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
"""File system rights that came with each version."""

_READ: Final = _READ_FILE | _READ_DIR
_CHANGE: Final = (
    _READ
    | _WRITE_FILE
    | _TRUNCATE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
)
"""All but device nodes and sockets, which are ways to something else."""
_OF_FILES: Final = _READ_FILE | _WRITE_FILE | _TRUNCATE | _EXECUTE
"""What a rule about a file may name."""

_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPES: Final = 1 | 2
"""Abstract UNIX sockets and signals stay inside."""
_SCOPES_SINCE: Final = 6


def ruleset(version: int, folders: Iterable[Folder], ports: Iterable[int] | None) -> dict[str, Any]:
    """What the worker gives to the kernel (`purra_hosts.isolation.jail`), for `version` >= 1.

    `ports`: TCP ports to connect to; None = the network is not Landlock's business here.
    """
    version = min(version, NEWEST)
    known = sum(rights for since, rights in _SINCE.items() if since <= version)
    with_ports = ports is not None and version >= PORTS_SINCE
    paths = []
    for folder in folders:
        rights = (_CHANGE if folder.write else _READ) | (_EXECUTE if folder.execute else 0)
        rights &= known
        paths.append([folder.path, rights, rights & _OF_FILES, folder.follow])
    return {
        "abi": version,
        "fs": known,
        "net": _BIND_TCP | _CONNECT_TCP if with_ports else 0,
        "scoped": _SCOPES if version >= _SCOPES_SINCE else 0,
        "paths": paths,
        "ports": [[port, _CONNECT_TCP] for port in sorted(ports or ())] if with_ports else [],
    }
