"""The seccomp filter as data: what the kernel would answer, found by running the program here."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from purra_hosts.isolation.bpf import Bits, Check, NoneOf, OneOf, Rule, When, assemble
from purra_hosts.isolation.seccomp import Wish, rules
from purra_hosts.isolation.syscalls import MACHINES, Machine

ALLOW, KILL, ENOSYS, EPERM, EACCES = "allow", "kill", 38, 1, 13
PID, HOST, SIBLING = 4711, 4000, 4712
STRICTEST: Final = Wish("none", subprocess=False, pid=PID, host=HOST, landlock=7)
X86, ARM = MACHINES["x86_64"], MACHINES["aarch64"]
NEWNS, NEWUSER, THREAD, SIGCHLD = 0x00020000, 0x10000000, 0x00010000, 17
UNIX, INET, INET6, NETLINK, STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 10, 16, 1, 2, 3, 5
CLOEXEC: Final = 0o2000000
FASTOPEN: Final = 0x20000000


def run(program: bytes, audit: int, number: int, *arguments: int) -> str | int:
    """What the kernel's machine does with one system call: `allow`, `kill` or an errno."""
    words = [item & 2**64 - 1 for item in (*arguments, *(0,) * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number & 2**32 - 1, audit, 0, *words)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, operand = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == 0x54:
            accumulator &= operand
        elif code == 0x15:
            at += if_true if accumulator == operand else if_false
        elif code == 0x35:
            at += if_true if accumulator >= operand else if_false
        elif code == 0x45:
            at += if_true if accumulator & operand else if_false
        else:
            assert code == 0x06, hex(code)
            verdict = {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(operand)
            return verdict or operand & 0xFFFF


def answer(wish: Wish, name: str, *arguments: int, machine: Machine = X86) -> str | int:
    """What a worker of that wish gets for a call."""
    program = assemble(rules(wish), machine)
    return run(program, machine.audit, machine.numbers[name], *arguments)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_what_is_no_call_of_this_machine(machine: Machine) -> None:
    """Protocol, isolation: another architecture is killed; x32 and unjudged calls are not there."""
    program = assemble(rules(STRICTEST), machine)
    assert run(program, 0x40000003, 102) == KILL
    assert run(program, machine.audit, 0) == ALLOW
    assert run(program, machine.audit, 0x40000000) == ENOSYS
    assert run(program, machine.audit, 0x40000029) == ENOSYS
    assert run(program, machine.audit, machine.newest) == ALLOW
    assert run(program, machine.audit, machine.newest + 1) == ENOSYS
    assert run(program, machine.audit, -1) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("network", ["none", "ports", "any"])
@pytest.mark.parametrize("subprocess", [False, True])
@pytest.mark.parametrize("landlock", [0, 2, 7])
def test_denied_whatever_is_granted(
    machine: Machine, network: str, subprocess: bool, landlock: int
) -> None:
    """Isolation, standard: no tracing, no namespaces, no ways around Landlock, with every grant."""
    wish = Wish(network, subprocess, PID, HOST, landlock)  # type: ignore[arg-type]
    never = "ptrace process_vm_readv process_vm_writev pidfd_getfd io_uring_setup bpf unshare setns"
    never += " userfaultfd perf_event_open keyctl mount umount2 pivot_root fsopen move_mount chroot"
    never += " open_by_handle_at kexec_load init_module personality shmget mq_open setresuid reboot"
    for name in never.split():
        assert answer(wish, name, machine=machine) == EPERM, name
    assert answer(wish, "clone3", machine=machine) == ENOSYS
    for flag in (NEWNS, NEWUSER, 0x40000000, 0x02000000, 0x04000000, 0x08000000, 0x20000000):
        assert answer(wish, "clone", flag | SIGCHLD, machine=machine) == EPERM
        assert answer(wish, "clone", flag | THREAD, machine=machine) == EPERM
    assert answer(wish, "socketpair", UNIX, DGRAM, machine=machine) == EACCES
    assert answer(wish, "socketpair", UNIX, RAW | CLOEXEC, machine=machine) == EACCES
    assert answer(wish, "socketpair", UNIX, STREAM | CLOEXEC, machine=machine) == ALLOW
    assert answer(wish, "socketpair", UNIX, SEQPACKET, machine=machine) == ALLOW
    assert answer(wish, "socket", UNIX, STREAM, machine=machine) == EACCES
    assert answer(wish, "fcntl", 3, 8, HOST, machine=machine) == EPERM
    assert answer(wish, "fcntl", 3, 1030, 3, machine=machine) == ALLOW
    assert answer(wish, "ioctl", 0, 0x5412, machine=machine) == EPERM
    assert answer(wish, "ioctl", 0, 0x5401, machine=machine) == ALLOW
    assert answer(wish, "prlimit64", HOST, 7, machine=machine) == EPERM
    assert answer(wish, "prlimit64", 0, 7, machine=machine) == ALLOW
    assert answer(wish, "sched_setaffinity", SIBLING, machine=machine) == EPERM
    assert answer(wish, "sched_setaffinity", PID, machine=machine) == ALLOW
    assert answer(wish, "setpriority", 0, HOST, machine=machine) == EPERM
    assert answer(wish, "setpriority", 2, 0, machine=machine) == EPERM
    assert answer(wish, "setpriority", 0, 0, machine=machine) == ALLOW


def test_threads_only() -> None:
    """Protocol, isolation: without the grant `clone` makes threads, and nothing else works."""
    thread = 0x3D0F00
    assert answer(STRICTEST, "clone", thread) == ALLOW
    assert answer(STRICTEST, "clone", SIGCHLD) == EPERM
    assert answer(STRICTEST, "clone", 0x4100 | SIGCHLD) == EPERM  # vfork, as posix_spawn does it
    for name in ("fork", "vfork", "execve", "execveat"):
        assert answer(STRICTEST, name) == EPERM
    assert answer(STRICTEST, "prctl", 1, 0) == EPERM
    assert answer(STRICTEST, "prctl", 15, 0) == ALLOW
    granted = replace(STRICTEST, subprocess=True)
    assert answer(granted, "clone", SIGCHLD) == ALLOW
    for name in ("fork", "vfork", "execve", "execveat"):
        assert answer(granted, name) == ALLOW


def test_the_high_half_of_an_argument_hides_nothing() -> None:
    """The kernel reads an int of these; so does the filter, and neither sees what is above."""
    above = 1 << 32
    assert answer(STRICTEST, "clone", above | SIGCHLD) == EPERM
    assert answer(STRICTEST, "kill", above | HOST) == EPERM
    ports = replace(STRICTEST, network="ports")
    assert answer(ports, "socket", above | UNIX, STREAM) == EACCES
    assert answer(ports, "sendto", 3, 0, 0, above | FASTOPEN) == EACCES


def test_no_network() -> None:
    """Protocol, isolation: network none is no socket of any kind."""
    for family in (UNIX, INET, INET6, NETLINK, 17, 38, 40):
        assert answer(STRICTEST, "socket", family, STREAM) == EACCES
    for name in ("connect", "bind", "listen"):
        assert answer(STRICTEST, name) == EACCES
    assert answer(STRICTEST, "sendto", 3, 0, 0, 0) == ALLOW


def test_ports_are_plain_tcp() -> None:
    """Protocol, isolation: MSG_FASTOPEN, MPTCP and UDP would get past Landlock's ports."""
    wish = replace(STRICTEST, network="ports")
    for family in (INET, INET6):
        assert answer(wish, "socket", family, STREAM | CLOEXEC, 0) == ALLOW
        assert answer(wish, "socket", family, STREAM, 6) == ALLOW
        assert answer(wish, "socket", family, STREAM, 262) == EACCES
        assert answer(wish, "socket", family, STREAM, 132) == EACCES
        assert answer(wish, "socket", family, DGRAM, 17) == EACCES
        assert answer(wish, "socket", family, RAW, 6) == EACCES
    assert answer(wish, "socket", NETLINK, STREAM, 0) == EACCES
    assert answer(wish, "connect") == ALLOW
    assert answer(wish, "bind") == answer(wish, "listen") == EACCES
    assert answer(wish, "sendto", 3, 0, 0, FASTOPEN | 0x4000) == EACCES
    assert answer(wish, "sendmsg", 3, 0, FASTOPEN) == EACCES
    assert answer(wish, "sendmmsg", 3, 0, 1, FASTOPEN) == EACCES
    assert answer(wish, "sendto", 3, 0, 0, 0x4000) == answer(wish, "sendmsg", 3, 0, 0) == ALLOW


def test_any_network_is_still_no_unix_socket() -> None:
    """docker.sock and D-Bus are ways out of the jail, not networks."""
    wish = replace(STRICTEST, network="any")
    assert answer(wish, "socket", UNIX, STREAM) == answer(wish, "socket", 17, RAW) == EACCES
    assert answer(wish, "socket", INET, DGRAM, 17) == answer(wish, "socket", INET6, STREAM) == ALLOW
    assert answer(wish, "socket", NETLINK, RAW, 0) == ALLOW  # addresses of this machine
    assert answer(wish, "socket", NETLINK, RAW, 15) == EACCES
    assert answer(wish, "bind") == answer(wish, "listen") == answer(wish, "connect") == ALLOW


def test_signals_to_itself_only() -> None:
    """Protocol, isolation: before Landlock 6 has scopes, the filter alone sees to it."""
    for landlock in (0, 5, 7):
        wish = replace(STRICTEST, landlock=landlock)
        assert answer(wish, "kill", PID, 9) == answer(wish, "kill", 0, 9) == ALLOW
        assert answer(wish, "tgkill", PID, PID + 5, 6) == ALLOW
        for number in (HOST, SIBLING, -1, -HOST, 1):
            assert answer(wish, "kill", number, 0) == EPERM
            assert answer(wish, "tgkill", number, number, 0) == EPERM
            assert answer(wish, "rt_sigqueueinfo", number, 0) == EPERM
        assert answer(wish, "pidfd_send_signal") == answer(wish, "pidfd_open", HOST) == EPERM
        assert answer(wish, "tkill", HOST) == (ALLOW if landlock == 7 else EPERM)


def test_signals_to_programs_of_its_own() -> None:
    """With the grant, children are signalled; the host is not, also where Landlock cannot help."""
    granted = replace(STRICTEST, subprocess=True)
    assert answer(granted, "kill", SIBLING) == ALLOW  # for Landlock to judge
    assert answer(granted, "kill", -1) == EPERM
    old = replace(granted, landlock=5)
    assert answer(old, "kill", PID + 1) == ALLOW
    for number in (HOST, -HOST, -1):
        assert answer(old, "kill", number) == EPERM
    assert answer(old, "tkill", HOST) == answer(old, "tgkill", HOST, HOST) == EPERM
    assert answer(old, "pidfd_send_signal", 3) == EPERM


@pytest.mark.parametrize(("landlock", "verdict"), [(0, EPERM), (2, EPERM), (3, ALLOW), (7, ALLOW)])
def test_truncate_where_landlock_does_not_know_it(landlock: int, verdict: str | int) -> None:
    """Protocol, isolation: before version 3 `truncate` cuts files that may not be written."""
    assert answer(replace(STRICTEST, landlock=landlock), "truncate") == verdict


HEADERS: Final = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_numbers_are_the_kernel_s(name: str) -> None:
    """Every number against the header that this machine has, where it has one."""
    if not HEADERS[name].exists():
        pytest.skip(f"no {HEADERS[name]} here to compare with")
    defined = {
        match[1]: int(match[2])
        for match in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[name].read_text())
    }
    known = {call: number for call, number in MACHINES[name].numbers.items() if call in defined}
    assert len(known) > 60
    assert known == {call: defined[call] for call in known}


def test_machines_lack_only_what_they_lack() -> None:
    """A rule about a call that is missing from a table would silently do nothing."""
    names = {
        rule.name for landlock in (0, 7) for rule in rules(replace(STRICTEST, landlock=landlock))
    }
    assert names - set(X86.numbers) == set()
    assert names - set(ARM.numbers) == {"fork", "vfork", "iopl", "ioperm", "modify_ldt"}


def test_checks_of_one_argument() -> None:
    """The assembler: each kind of check, at its edges."""
    machine = Machine(7, {"call": 5}, newest=9)
    cases: list[tuple[Check, dict[int, str | int]]] = [
        (OneOf(2, (1, 3)), {0: 22, 1: ALLOW, 2: 22, 3: ALLOW, 4: 22}),
        (OneOf(2, (1,), mask=0xF), {0x11: ALLOW, 0x12: 22}),
        (NoneOf(2, (1, 3)), {0: ALLOW, 1: 22, 2: ALLOW, 3: 22}),
        (Bits(2, 6), {0: ALLOW, 1: ALLOW, 2: 22, 4: 22, 9: ALLOW}),
        (Bits(2, 6, needed=True), {0: 22, 1: 22, 2: ALLOW, 6: ALLOW}),
        (When(2, 3, (NoneOf(2, (3,)),)), {2: ALLOW, 3: 22, 4: ALLOW}),
    ]
    for check, answers in cases:
        program = assemble([Rule("call", 22, (check, NoneOf(1, (99,))))], machine)
        for value, verdict in answers.items():
            assert run(program, 7, 5, 0, 0, value) == verdict, (check, value)
            assert run(program, 7, 5, 0, 99, value) == 22
        assert run(program, 7, 6, 0, 99, 0) == ALLOW


def test_what_cannot_be_assembled() -> None:
    """Two rules about one call would leave the second without effect; long jumps do not exist."""
    with pytest.raises(ValueError, match="two rules"):
        assemble([Rule("ptrace", 1), Rule("ptrace", 13)], X86)
    with pytest.raises(ValueError, match="a rule of"):
        assemble([Rule("ioctl", 1, (NoneOf(1, tuple(range(200))),))], X86)
