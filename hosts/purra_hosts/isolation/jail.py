"""The jail from the inside: what a worker does to itself before foreign code runs in it.

The bootstrap loads this file by path and calls `tie_to_parent` and `restrict`; the host runs it as
a program to find out what the machine allows (`purra_hosts.isolation.machine`). It knows how to ask
the kernel, and decides nothing: which paths, ports and system calls, what each axis may claim and
what is tried afterwards stands in the policy, which the host computed.

The order matters. no_new_privs first: without it neither of the others is allowed. Then Landlock,
because it opens the granted paths; then seccomp, which would not let it. Both bind only the thread
that calls them and what it starts later, so all of it comes before the first thread.

What was achieved is not what the calls returned but what is then impossible: one forbidden thing
per axis is tried, and an axis where it succeeds, or fails for another reason, reads `none`.

System calls go through `_ctypes` directly: 0.6 ms, where the `ctypes` package costs 3.7 ms.
"""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Libc", "UnavailableError", "landlock_abi", "restrict", "tie_to_parent"]

EXIT_ORPHANED = 1
SIGKILL = 9

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

SYS_OPENAT2 = 437
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
"""The same on every architecture, as all calls since 424."""
LANDLOCK_CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
RULE_NET_PORT = 2
AT_FDCWD = -100
RESOLVE_NO_SYMLINKS = 4
DIRECTORY_MODE = 0o040000
FILE_KIND_MASK = 0o170000
RULESET_BYTES = {1: 8, 4: 16, 6: 24}
"""Size of the ruleset's description from which ABI on: file system, network, scopes."""
CAPABILITY_VERSION = 0x20080522

EPERM, EACCES = 1, 13

FIRM = ("enforced", "granted")
"""How a claim begins that satisfies a demand."""


class UnavailableError(Exception):
    """An axis that the host demands is not there. `axes`: reason by axis."""

    def __init__(self, axes: dict[str, str]) -> None:
        super().__init__("; ".join(f"{axis}: {why}" for axis, why in axes.items()))
        self.axes = axes


class Libc:
    """The C library of this process, as far as it is needed here."""

    def __init__(self) -> None:
        import _ctypes

        cell = _ctypes._SimpleCData
        self._ctypes = _ctypes
        self._program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        self._word = type("c_ulong", (cell,), {"_type_": "L"})
        self._byte = type("c_char", (cell,), {"_type_": "c"})
        self._functions = {
            name: self._function(name, type("c_result", (cell,), {"_type_": kind}))
            for name, kind in (("syscall", "l"), ("prctl", "i"), ("capget", "i"), ("capset", "i"))
        }

    def _function(self, name: str, result: Any) -> Any:
        flags = self._ctypes.FUNCFLAG_CDECL | self._ctypes.FUNCFLAG_USE_ERRNO
        kind = type(name, (self._ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": result})
        return kind(self._ctypes.dlsym(self._program, name))

    def call(self, name: str, *arguments: Any) -> int:
        """Calls `syscall`, `prctl`, `capget` or `capset`: whole numbers go as machine words, bytes
        and buffers by their address. Raises `OSError`.
        """
        words = [self._word(item) if type(item) is int else item for item in arguments]
        result: int = self._functions[name](*words)
        if result < 0:
            number = self._ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def buffer(self, data: bytes) -> tuple[Any, int]:
        """A writable copy of `data`, and its address for as long as the copy is held."""
        kind: Any = type(
            "buffer", (self._ctypes.Array,), {"_type_": self._byte, "_length_": len(data)}
        )
        copy = kind.from_buffer_copy(data)
        return copy, self._ctypes.addressof(copy)


def tie_to_parent(parent: int) -> None:
    """Asks the kernel to kill this process when the thread that spawned it ends (SUP-015).

    `parent` was read at the start: its death before this call shows as another parent, its death
    before the start as a channel without WELCOME. Best effort: where it is not possible the end of
    the channel is what is left.
    """
    if sys.platform != "linux":
        return
    try:
        Libc().call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


def landlock_abi(libc: Libc) -> int:
    """The version of Landlock that the kernel has. Raises `OSError`: none."""
    return libc.call("syscall", SYS_LANDLOCK_CREATE_RULESET, 0, 0, LANDLOCK_CREATE_RULESET_VERSION)


def restrict(policy: dict[str, Any], parent: int) -> dict[str, str]:
    """Carries out the host's policy, for good; what was achieved, per axis that the policy names.

    `parent`: the host, as this process sees it. Raises `UnavailableError` if an axis that the
    policy demands is not achieved.
    """
    os.environ.update(policy.get("env", {}))
    failed = _apply(policy)
    achieved: dict[str, str] = {}
    for axis, (claim, mechanisms) in policy.get("axes", {}).items():
        lacking = [f"{name}: {failed[name]}" for name in mechanisms if name in failed]
        achieved[axis] = f"none: {lacking[0]}" if lacking else claim
    for axis, *trial in policy.get("canaries", ()):
        got_through = _try(trial, parent)
        if got_through and not achieved[axis].startswith("none"):
            achieved[axis] = f"none: {got_through}"
    lost = {
        axis: achieved.get(axis, "none")
        for axis in policy.get("demanded", ())
        if not achieved.get(axis, "none").startswith(FIRM)
    }
    if lost:
        raise UnavailableError(lost)
    return achieved


def _apply(policy: dict[str, Any]) -> dict[str, str]:
    """Takes each step that the policy has; why not, by mechanism."""
    steps: list[tuple[str, Callable[[Libc, Any], object]]] = [
        ("capabilities", _drop_capabilities),
        ("landlock", _landlock),
        ("seccomp", _seccomp),
    ]
    wanted = [(name, step) for name, step in steps if policy.get(name) is not None]
    failed: dict[str, str] = {}
    if not wanted:
        return failed
    try:
        libc = Libc()
        libc.call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError) as error:
        return dict.fromkeys([name for name, _ in wanted], _said(error))
    for name, step in wanted:
        try:
            step(libc, policy[name])
        except (OSError, AttributeError) as error:
            failed[name] = _said(error)
    return failed


def _said(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


def _drop_capabilities(libc: Libc, kept: int) -> None:
    """What root can do beyond its own files: raising limits again, tracing, loading modules."""
    header, _ = libc.buffer(struct.pack("=Ii", CAPABILITY_VERSION, 0))
    found, _ = libc.buffer(bytes(24))
    libc.call("capget", header, found)
    low_effective, low_permitted, _, high_effective, high_permitted, _ = struct.unpack(
        "=6I", bytes(found)
    )
    if not low_permitted | high_permitted:
        return
    effective = (low_effective | high_effective << 32) & kept
    permitted = (low_permitted | high_permitted << 32) & kept
    low, high = 0xFFFFFFFF, 32
    words = (effective & low, permitted & low, 0, effective >> high, permitted >> high, 0)
    libc.call("capset", header, struct.pack("=6I", *words))


def _landlock(libc: Libc, rules: dict[str, Any]) -> None:
    """`fs`, `net`, `scoped`: what is denied unless a rule allows it. `paths`: [path, rights, file
    rights, follow]; one that does not exist is left out. `ports`: [port, rights].
    """
    size = max(size for abi, size in RULESET_BYTES.items() if abi <= rules["abi"])
    handled = struct.pack("=QQQ", rules["fs"], rules["net"], rules["scoped"])[:size]
    ruleset = libc.call("syscall", SYS_LANDLOCK_CREATE_RULESET, handled, size, 0)
    try:
        for path, rights, file_rights, follow in rules["paths"]:
            try:
                beneath = _open_path(libc, path, follow)
            except OSError:
                continue
            try:
                folder = os.fstat(beneath).st_mode & FILE_KIND_MASK == DIRECTORY_MODE
                rule = struct.pack("=Qi", rights if folder else file_rights, beneath)
                libc.call("syscall", SYS_LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0)
            finally:
                os.close(beneath)
        for port, rights in rules["ports"]:
            rule = struct.pack("=QQ", rights, port)
            libc.call("syscall", SYS_LANDLOCK_ADD_RULE, ruleset, RULE_NET_PORT, rule, 0)
        libc.call("syscall", SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _open_path(libc: Libc, path: str, follow: bool) -> int:
    """A handle on what a rule is for. Raises `OSError`.

    The host has resolved the links of a grant already: one that is there now was put there since,
    perhaps by a plugin that may write beside it, and would turn the grant into another.
    """
    flags = os.O_PATH | os.O_CLOEXEC
    if follow:
        return os.open(path, flags)
    how = struct.pack("=QQQ", flags, 0, RESOLVE_NO_SYMLINKS)
    return libc.call("syscall", SYS_OPENAT2, AT_FDCWD, os.fsencode(path), how, len(how))


def _seccomp(libc: Libc, program: bytes) -> None:
    """`program`: instructions of 8 bytes each."""
    instructions, address = libc.buffer(program)
    description = struct.pack("HxxxxxxQ", len(program) // 8, address)
    libc.call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, description, 0, 0)
    del instructions  # the kernel has its own copy now


# Trying the forbidden things. Each says what got through, "" if nothing did.


def _try(trial: list[Any], parent: int) -> str:
    name, *arguments = trial
    return {"open": _try_open, "fork": _try_fork, "call": _try_call, "connect": _try_connect}[name](
        [parent if item == "parent" else item for item in arguments]
    )


def _try_open(arguments: list[Any]) -> str:
    """[path]: reading it must be denied."""
    (path,) = arguments
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return "" if error.errno == EACCES else f"opening {path}: {_said(error)}"
    return f"{path} could be opened"


def _try_fork(arguments: list[Any]) -> str:
    """[]: there must be no second process."""
    try:
        child = os.fork()
    except OSError as error:
        return "" if error.errno == EPERM else f"fork: {_said(error)}"
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "a process could be started"


def _try_call(arguments: list[Any]) -> str:
    """[what, errno, number, arguments ...]: the system call must fail with `errno`."""
    what, wanted, *words = arguments
    try:
        result = Libc().call("syscall", *words)
    except OSError as error:
        return "" if error.errno == wanted else f"{what}: {_said(error)}"
    if result > 2:
        os.close(result)  # a descriptor, and not one of the standard ones
    return f"{what} was possible"


def _try_connect(arguments: list[Any]) -> str:
    """[what, number of socket, number of connect, family, address]: TCP must be denied."""
    what, make, connect, family, address = arguments
    libc = Libc()
    try:
        end = libc.call("syscall", make, family, 1, 0)
    except OSError as error:
        return f"{what}: no socket: {_said(error)}"
    try:
        libc.call("syscall", connect, end, address, len(address))
    except OSError as error:
        return "" if error.errno == EACCES else f"{what}: {_said(error)}"
    finally:
        os.close(end)
    return f"{what} was possible"


def main() -> None:
    """The machine's probe: a policy comes in on stdin, what was achieved goes out, as literals."""
    import marshal

    policy = marshal.loads(sys.stdin.buffer.read())
    sys.stdout.write(repr(restrict(policy, os.getppid())))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
