"""Which files a jailed worker may reach, from what is known of its launch. Reads nothing of them.

Everybody gets what an interpreter, TLS and the clock need, its own code, and a private home. What
else there is comes from the grants `fs.read` and `fs.write`, already absolute and with links
resolved.

Two decisions:

- A grant that names nothing when the worker starts grants nothing, for the kernel ties rights to
  what exists. The host does not make it: it cannot know whether a file or a folder is meant, and a
  wrong guess stays on the disk. It says so in the log; `unused` finds such grants.
- A grant inside a folder that the same plugin may write is dropped, as it adds nothing: else the
  plugin could put a link in its place, and have a larger grant at the next start.

Left out, so that "no files outside grants" can be said: `/etc/passwd` (then `pwd.getpwuid` raises
KeyError), `/dev/shm` (then semaphores of `multiprocessing` are denied: every process of the user
could reach them), and `/etc/ssl/private` and its like, which only matter to a host that is root.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from purra_hosts.launch import Launch

__all__ = ["Folder", "Place", "covering", "folders", "looks_up", "network_of", "unused"]

_LIBRARIES: Final = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64")
_SETTINGS: Final = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/etc/mime.types",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
    "/proc/self",
)
_CERTIFICATES: Final = (
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies/back-ends",
)
"""Without them `ssl.create_default_context` silently has no authorities (measured). Never the
folders of private keys beside them."""
_NAMES: Final = (
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
)
"""What looking up a host reads; only with a grant of the network."""
_PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")
_NIX_STORE: Final = "/nix/store"
"""There every library has a folder of its own; all of it may be read by anybody."""
_CANARIES: Final = ("/", "/etc", "/proc", "/var")
"""Folders that anybody may list. The first that is not granted is tried."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with everything below it, or a file. Reading is always allowed.

    `follow`: links in the path are followed; else a link there means that nothing is granted.
    """

    path: str
    write: bool = False
    execute: bool = False
    follow: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """Where the host keeps its things: `root`, with `staged` (what workers import of ours) and the
    worker's `home` in it. All absolute.
    """

    root: str
    staged: str
    home: str


def network_of(launch: Launch) -> str | tuple[int, ...]:
    """`none`, `any`, or the granted ports (their hosts are not enforced here)."""
    granted = launch.grants.get("network", "none")
    if granted in ("none", "any"):
        return str(granted)
    ports = tuple(sorted({int(endpoint.rpartition(":")[2]) for endpoint in granted}))
    return ports or "none"


def looks_up(launch: Launch) -> bool:
    """Whether the granted endpoints have names that only a name server knows."""
    if not isinstance(network_of(launch), tuple):
        return False
    hosts = {endpoint.rpartition(":")[0].strip("[]") for endpoint in launch.grants["network"]}
    return any(host != "localhost" and not _is_address(host) for host in hosts)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def folders(launch: Launch, place: Place) -> tuple[Folder, ...]:
    """Everything that the worker may reach."""
    return (*_needed(launch, place), *_granted(launch))


def unused(launch: Launch) -> tuple[str, ...]:
    """Grants to write that name nothing, and so are none: as the file system is now.

    Of a grant to read the plugin itself will say that the file is missing.
    """
    return tuple(
        folder.path
        for folder in _granted(launch)
        if folder.write and not os.path.lexists(folder.path)
    )


def covering(launch: Launch, place: Place) -> str:
    """A grant to write that reaches what the host itself runs from, or ""."""
    return next((p for p in _paths(launch, "fs.write") if _within(place.root, p)), "")


def canary(reachable: Sequence[Folder]) -> str:
    """A folder that must not be readable afterwards; "" if everything is granted."""
    tops = [folder.path for folder in reachable]
    return next((path for path in _CANARIES if path not in tops and not _inside(path, tops)), "")


def _needed(launch: Launch, place: Place) -> Iterator[Folder]:
    may_run = bool(launch.grants.get("subprocess"))
    interpreter = PurePath(os.path.realpath(launch.python)).parent.parent
    for path in (*_LIBRARIES, *_SETTINGS, *_CERTIFICATES):
        yield Folder(path)
    if network_of(launch) != "none":
        for path in _NAMES:
            yield Folder(path)
    if interpreter.is_relative_to(_NIX_STORE):
        yield Folder(_NIX_STORE, execute=may_run)
    for path in (str(interpreter / "lib"), str(interpreter / "lib64")):
        yield Folder(path)
    yield Folder(place.staged)
    for path in (str(launch.folder), *launch.sys_path):
        yield Folder(path, execute=may_run)
    yield Folder("/dev/null", write=True)
    yield Folder(place.home, write=True)
    if may_run:
        environment = PurePath(launch.python).parent.parent
        for path in (*_PROGRAMS, str(interpreter), f"{environment}/bin"):
            yield Folder(path, execute=True)
        yield Folder(f"{environment}/pyvenv.cfg")


def _granted(launch: Launch) -> Iterator[Folder]:
    may_run = bool(launch.grants.get("subprocess"))
    writable = _paths(launch, "fs.write")
    for path in writable:
        if not any(path != other and _within(path, other) for other in writable):
            yield Folder(path, write=True, follow=False)
    for path in _paths(launch, "fs.read"):
        if not _inside(path, writable):
            yield Folder(path, execute=may_run, follow=False)


def _paths(launch: Launch, kind: str) -> tuple[str, ...]:
    return tuple(launch.grants.get(kind, ()))


def _inside(path: str, tops: Sequence[str]) -> bool:
    return any(_within(path, top) for top in tops)


def _within(path: str, top: str) -> bool:
    return PurePath(path).is_relative_to(top)
