"""Which system calls a jailed worker may not make, and why. Pure.

Landlock covers files, ports and, on newer kernels, signals. The rest is here, and everything that
would be a way around Landlock:

- **Sockets.** Landlock's ports are no network control: MSG_FASTOPEN and MPTCP pass by them, and
  UDP, UNIX paths and all other families are not covered. Without a grant there is no `socket`; what
  event loops need comes from `socketpair`, of connected kinds only: from one end of a *datagram*
  pair any UNIX path can be sent to.
- **Processes.** Threads only, unless the plugin may start programs. New namespaces never: in one
  of its own a process is root and may mount. `clone3` hides its flags in memory, where no filter
  sees them, so it does not exist (ENOSYS), and the C library falls back to `clone`.
- **Other processes.** Tracing, reading memory, taking descriptors, and signals to any process but
  itself; also through `F_SETOWN`, which lets the kernel send them. Limits, scheduling and priority
  may be set of itself only: the host has the same user.
- **The machine.** Mounting, modules, clocks, swap, and interfaces with a long record of holes
  (io_uring, bpf, userfaultfd, keyrings).
- **Names shared by a whole user** that files do not show: System V and POSIX message queues,
  semaphores and shared memory.
- **Becoming somebody else.** A change of user also clears the tie to the parent's life.

A denied call fails with an error and does not kill: a plugin can then say what it missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from purra_hosts.isolation.bpf import Bits, NoneOf, OneOf, Rule, When

__all__ = ["EACCES", "EPERM", "Network", "Wish", "rules"]

Network = Literal["none", "ports", "any"]

EPERM: Final = 1
EACCES: Final = 13
"""For sockets, as Landlock answers there."""
ENOSYS: Final = 38

_NEVER: Final = (
    # Other processes.
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "pidfd_getfd",
    "kcmp",
    # The view of the file system.
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "mount_setattr",
    "open_by_handle_at",
    "fanotify_init",
    "quotactl",
    "quotactl_fd",
    # Namespaces.
    "unshare",
    "setns",
    # Wide interfaces into the kernel.
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "personality",
    "modify_ldt",
    # The machine.
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "sethostname",
    "setdomainname",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "iopl",
    "ioperm",
    "acct",
    "syslog",
    "vhangup",
    # Shared by all processes of a user.
    "shmget",
    "shmat",
    "semget",
    "msgget",
    "mq_open",
    "mq_unlink",
    # Another user.
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setfsuid",
    "setfsgid",
    "setgroups",
)

_CLONE_NEW: Final = 0x7E020000
"""Every flag of `clone` that asks for a new namespace."""
_CLONE_THREAD: Final = 0x00010000
_MSG_FASTOPEN: Final = 0x20000000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_MASK = 1, 5, 0xF
_TCP: Final = 6
_PR_SET_PDEATHSIG: Final = 1
_SET_OWNER: Final = (8, 15)
"""`fcntl`: F_SETOWN, F_SETOWN_EX."""
_IOCTLS: Final = (0x5412, 0x541C, 0x8901, 0x8902)
"""TIOCSTI and TIOCLINUX type into a terminal; FIOSETOWN and SIOCSPGRP are F_SETOWN again."""
_SCHEDULING: Final = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
)
_EVERYBODY: Final = 0xFFFFFFFF
"""As a process id: -1."""
_SIGNALS: Final = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_LANDLOCK_TRUNCATE: Final = 3
_LANDLOCK_SIGNALS: Final = 6
"""From which version on Landlock covers `truncate`, and signals."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a worker may do. `pid`: its number as it sees it itself; `host`: its parent's.
    `landlock`: the version that is in force, 0 = none.
    """

    network: Network
    subprocess: bool
    pid: int
    host: int
    landlock: int


def rules(wish: Wish) -> Iterator[Rule]:
    """The whole filter, in the order in which it is tried."""
    yield from _processes(wish)
    yield from _sockets(wish.network)
    yield from _signals(wish)
    itself = OneOf(0, (0, wish.pid))
    for name in _SCHEDULING:
        yield Rule(name, EPERM, (itself,))
    yield Rule("setpriority", EPERM, (OneOf(0, (0,)), OneOf(1, (0, wish.pid))))
    yield Rule("ioprio_set", EPERM, (OneOf(0, (1,)), OneOf(1, (0, wish.pid))))
    yield Rule("ioctl", EPERM, (NoneOf(1, _IOCTLS),))
    if wish.landlock < _LANDLOCK_TRUNCATE:
        yield Rule("truncate", EPERM)
    for name in _NEVER:
        yield Rule(name, EPERM)


def _processes(wish: Wish) -> Iterator[Rule]:
    yield Rule("clone3", ENOSYS)
    if wish.subprocess:
        yield Rule("clone", EPERM, (Bits(0, _CLONE_NEW),))
        return
    yield Rule("clone", EPERM, (Bits(0, _CLONE_NEW), Bits(0, _CLONE_THREAD, needed=True)))
    for name in ("fork", "vfork", "execve", "execveat"):
        yield Rule(name, EPERM)
    # Else it could outlive its host.
    yield Rule("prctl", EPERM, (NoneOf(0, (_PR_SET_PDEATHSIG,)),))


def _sockets(network: Network) -> Iterator[Rule]:
    connected = OneOf(1, (_STREAM, _SEQPACKET), _TYPE_MASK)
    yield Rule("socketpair", EACCES, (OneOf(0, (_AF_UNIX,)), connected))
    if network == "none":
        for name in ("socket", "connect", "bind", "listen"):
            yield Rule(name, EACCES)
    elif network == "ports":
        tcp = (OneOf(1, (_STREAM,), _TYPE_MASK), OneOf(2, (0, _TCP)))
        yield Rule("socket", EACCES, (OneOf(0, (_AF_INET, _AF_INET6)), *tcp))
        yield Rule("bind", EACCES)
        yield Rule("listen", EACCES)
        for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            yield Rule(name, EACCES, (Bits(flags, _MSG_FASTOPEN),))
    else:
        families = OneOf(0, (_AF_INET, _AF_INET6, _AF_NETLINK))
        routes_only = When(0, _AF_NETLINK, (OneOf(2, (0,)),))
        yield Rule("socket", EACCES, (families, routes_only))


def _signals(wish: Wish) -> Iterator[Rule]:
    yield Rule("fcntl", EPERM, (NoneOf(1, _SET_OWNER),))
    scoped = wish.landlock >= _LANDLOCK_SIGNALS
    if not wish.subprocess:
        # Number 0 is its own group, which it leads and cannot leave.
        yield Rule("kill", EPERM, (OneOf(0, (0, wish.pid)),))
        for name in _SIGNALS[1:]:
            yield Rule(name, EPERM, (OneOf(0, (wish.pid,)),))
        yield Rule("pidfd_open", EPERM)
        yield Rule("pidfd_send_signal", EPERM)
        if not scoped:
            yield Rule("tkill", EPERM)
    elif scoped:
        yield Rule("kill", EPERM, (NoneOf(0, (_EVERYBODY,)),))
    else:
        # Its children's numbers are not known; the host's is, also as the leader of a group.
        named = (wish.host, -wish.host & 0xFFFFFFFF, _EVERYBODY)
        for name in _SIGNALS:
            yield Rule(name, EPERM, (NoneOf(0, named),))
        yield Rule("tkill", EPERM, (NoneOf(0, (wish.host,)),))
        yield Rule("pidfd_send_signal", EPERM)
