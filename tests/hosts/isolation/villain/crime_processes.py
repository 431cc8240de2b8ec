"""Attacks on other processes, on the machine, and on the jail's own limits. `target`: `host`,
`sibling` (process ids), `address` (of a secret in the host's memory), `canary` (device and inode of
a file that the host has open)."""

# mypy: ignore-errors

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import resource
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Keeps the interpreter's lock during a call: a raw clone while another thread has it would leave
# the child waiting for that for ever.
_libc = ctypes.PyDLL(None, use_errno=True)
_X86 = platform.machine() == "x86_64"
_TRUE = "/bin/true"


def _call(number, *arguments):
    words = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    _libc.syscall.restype = ctypes.c_long
    result = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _waited(pid):
    """For the new process of an attack: gone before anything else happens."""
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return f"a process {pid}"


# Signals.


def signal_host(target):
    os.kill(target["host"], 0)
    return "possible"


def signal_sibling(target):
    os.kill(target["sibling"], 0)
    return "possible"


def signal_group_of_host(target):
    os.killpg(os.getpgid(target["host"]), 0)
    return "possible"


def signal_everybody(target):
    os.kill(-1, 0)
    return "possible"


def signal_thread_of_host(target):
    _call(234 if _X86 else 131, target["host"], target["host"], 0)
    return "possible"


def signal_by_thread_number(target):
    _call(200 if _X86 else 130, target["host"], 0)
    return "possible"


def signal_with_value(target):
    info = ctypes.create_string_buffer(struct.pack("=iii", 0, 0, -1), 128)
    _call(129 if _X86 else 138, target["host"], 0, info)
    return "possible"


def signal_by_descriptor(target):
    handle = os.pidfd_open(target["host"])
    try:
        signal.pidfd_send_signal(handle, 0)
    finally:
        os.close(handle)
    return "possible"


def let_the_kernel_signal(target):
    near, far = os.pipe()
    try:
        fcntl.fcntl(near, fcntl.F_SETOWN, target["host"])
    finally:
        os.close(near)
        os.close(far)
    return "possible"


# Tracing and memory.


def trace_host(target):
    _call(101 if _X86 else 117, 0x4206, target["host"], 0, 0)
    _call(101 if _X86 else 117, 0x4207, target["host"], 0, 0)  # PTRACE_INTERRUPT
    os.waitpid(target["host"], 0x40000000)
    _call(101 if _X86 else 117, 17, target["host"], 0, 0)
    return "traced"


def trace_sibling(target):
    _call(101 if _X86 else 117, 0x4206, target["sibling"], 0, 0)
    _call(101 if _X86 else 117, 0x4207, target["sibling"], 0, 0)
    os.waitpid(target["sibling"], 0x40000000)
    _call(101 if _X86 else 117, 17, target["sibling"], 0, 0)
    return "traced"


def copy_host_memory(target):
    buffer = ctypes.create_string_buffer(16)
    here = struct.pack("=QQ", ctypes.addressof(buffer), 16)
    there = struct.pack("=QQ", target["address"], 16)
    _call(310 if _X86 else 270, target["host"], here, 1, there, 1, 0)
    return bytes(buffer)


def write_host_memory_directly(target):
    buffer = ctypes.create_string_buffer(16)
    here = struct.pack("=QQ", ctypes.addressof(buffer), 0)
    there = struct.pack("=QQ", target["address"], 0)
    _call(311 if _X86 else 271, target["host"], here, 1, there, 1, 0)
    return "possible"


def take_descriptor_of_host(target):
    handle = os.pidfd_open(target["host"])
    try:
        return os.fstat(_call(438, handle, 0, 0))
    finally:
        os.close(handle)


def compare_with_host(target):
    return _call(312 if _X86 else 272, os.getpid(), target["host"], 1, 0, 0)


def limit_of_host(target):
    return resource.prlimit(target["host"], resource.RLIMIT_NOFILE)


def processors_of_host(target):
    os.sched_setaffinity(target["host"], os.sched_getaffinity(target["host"]))
    return "possible"


def priority_of_host(target):
    os.setpriority(os.PRIO_PROCESS, target["host"], os.getpriority(os.PRIO_PROCESS, target["host"]))
    return "possible"


def scheduling_of_host(target):
    os.sched_setscheduler(target["host"], os.SCHED_OTHER, os.sched_param(0))
    return "possible"


# Processes.


def fork(target):
    return _waited(os.fork())


def fork_bomb(target):
    made = []
    for _ in range(20):
        made.append(_waited(os.fork()))
    return len(made)


def clone(target):
    return _waited(_call(56 if _X86 else 220, signal.SIGCHLD, 0, 0, 0, 0))


def clone3(target):
    arguments = struct.pack("=8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    return _waited(_call(435, arguments, len(arguments)))


def run_program(target):
    return subprocess.run([_TRUE], check=True).returncode


def read_outside_in_a_child(target):
    ran = subprocess.run(["cat", f"{target['outside']}/secret"], capture_output=True)
    if not ran.stdout:
        raise PermissionError(13, ran.stderr.decode())
    return ran.stdout


def signal_host_from_a_child(target):
    ran = subprocess.run(["kill", "-0", str(target["host"])], capture_output=True)
    if ran.returncode:
        raise PermissionError(1, ran.stderr.decode())
    return "possible"


def connect_from_a_child(target):
    code = f"import socket; socket.create_connection(('127.0.0.1', {target['tcp']}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True)
    if ran.returncode:
        raise PermissionError(13, ran.stderr.decode()[-200:])
    return "connected"


def spawn_program(target):
    return _waited_for(os.posix_spawn(_TRUE, [_TRUE], {}))


def _waited_for(pid):
    os.waitpid(pid, 0)
    return f"a process {pid}"


def shell(target):
    if os.system("true") != 0:
        raise PermissionError(1, "no shell")
    return "a shell"


def become_program(target):
    """Where there can be a child it stays with that: else this process would be gone."""
    with contextlib.suppress(PermissionError):
        return _waited_for(os.posix_spawn(_TRUE, [_TRUE], {}))
    return os.execv(_TRUE, [_TRUE])


def run_from_memory(target):
    handle = os.memfd_create("program")
    with open("/bin/true", "rb") as program:
        os.write(handle, program.read())
    return _waited_for(os.posix_spawn(f"/proc/self/fd/{handle}", ["x"], {}))


def clear_tie_to_host(target):
    _libc.prctl.restype = ctypes.c_int
    if _libc.prctl(1, ctypes.c_ulong(0), 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return "it would outlive its host"


def leave_group(target):
    os.setpgid(0, 0)
    os.setpgid(0, os.getppid())
    return "left"


# Namespaces and the machine. In a thread that ends with it, so that what follows is where it was.


def _in_a_thread(attack):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(attack).result()


def _unshared(flag):
    _in_a_thread(lambda: _call(272 if _X86 else 97, flag))
    return "made"


def user_namespace(target):
    """Denied to every process with threads, so this one shows only that it is not allowed."""
    return _unshared(0x10000000)


def network_namespace(target):
    return _unshared(0x40000000)


def mount_namespace(target):
    return _unshared(0x00020000)


def namespace_by_clone(target):
    return _waited(_call(56 if _X86 else 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))


def namespace_of_init(target):
    handle = os.open(f"/proc/{target['host']}/ns/uts", os.O_RDONLY)
    try:
        _in_a_thread(lambda: _call(308 if _X86 else 268, handle, 0))
    finally:
        os.close(handle)
    return "entered"


def change_root(target):
    os.chroot("/")
    return "possible"


def mount(target):
    _call(165 if _X86 else 40, b"none", b"/mnt", b"tmpfs", 0, b"size=4k")
    _call(166 if _X86 else 39, b"/mnt", 0)
    return "mounted"


def new_mount(target):
    os.close(_call(430, b"tmpfs", 0))
    return "opened"


def program_in_kernel(target):
    attributes = ctypes.create_string_buffer(struct.pack("=IIII", 1, 4, 4, 1), 128)
    os.close(_call(321 if _X86 else 280, 0, attributes, 128))
    return "a map of bpf"


def performance_events(target):
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 128, 0), 128)
    os.close(_call(298 if _X86 else 241, attributes, 0, -1, -1, 0))
    return "counting"


def fault_handler(target):
    os.close(_call(323 if _X86 else 282, os.O_CLOEXEC | 1))
    return "handling page faults"


def keyring(target):
    return _call(250 if _X86 else 219, 0, -3, 1)


def shared_memory(target):
    identity = _call(29 if _X86 else 194, 0, 4096, 0o600 | 0o1000)
    _call(31 if _X86 else 195, identity, 0, 0)
    return identity


def message_queue(target):
    os.close(_call(240 if _X86 else 180, b"purra-villain", 0o102, 0o600, 0))
    _call(241 if _X86 else 181, b"purra-villain")
    return "a queue"


def kernel_log(target):
    return _call(103 if _X86 else 116, 10, 0, 0)


def personality(target):
    return _call(135 if _X86 else 92, 0x0040000)


def become_another_user(target):
    os.setresuid(-1, -1, -1)
    return "possible"


# What is inherited, and limits.


def inherited_descriptor(target):
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.fstat(int(name))
        except OSError:
            continue
        if [found.st_dev, found.st_ino] == target["canary"]:
            return f"descriptor {name}"
    raise PermissionError(1, "none")


def inherited_sockets(target):
    """Everything that is a socket and not the channel."""
    found = [
        name
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
        and os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    ]
    if len(found) > 1:
        return found
    raise PermissionError(1, "only the channel")


def inherited_environment(target):
    if "PURRA_VILLAIN_CANARY" in os.environ:
        return os.environ["PURRA_VILLAIN_CANARY"]
    with open("/proc/self/environ", "rb") as file:
        if b"PURRA_VILLAIN_CANARY" in file.read():
            return "in /proc/self/environ"
    raise PermissionError(1, "not there")


def raise_own_limit(target):
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (hard * 2, hard * 2))
    except ValueError as error:
        raise PermissionError(1, str(error)) from error
    return "raised"


def more_memory_than_granted(target):
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    block = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.close()
    return f"a GiB, with a limit of {hard}"


def more_descriptors_than_granted(target):
    opened = []
    try:
        for _ in range(2000):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return len(opened)
