"""A plugin that attacks its host. Each attack returns its evidence, or raises what stopped it.

`attack` runs one of them; `work` one of the honest jobs that a jail must not get in the way of.
Attacks come from the test's own list of targets, so that at level none, where they must get
through, they do no harm.
"""

# mypy: ignore-errors

import ctypes
import mmap
import os
import socket
import subprocess

import crime_files
import crime_processes
import crime_sockets
import honest

from purra_sdk import Plugin, ToolError, tool

ATTACKS = {
    name: function
    for crimes in (crime_files, crime_sockets, crime_processes)
    for name, function in vars(crimes).items()
    if callable(function) and getattr(function, "__module__", "") == crimes.__name__
    if not name.startswith("_")
}
JOBS = {
    name: function
    for name, function in vars(honest).items()
    if callable(function) and getattr(function, "__module__", "") == "honest"
    if not name.startswith("_")
}


@tool(effect="world_read")
def attack(call, name, target):
    """The evidence that the attack got through, or what stopped it."""
    try:
        evidence = ATTACKS[name](target)
    except OSError as error:
        return {"stopped": type(error).__name__, "errno": error.errno}
    except Exception as error:  # a mistake of the attack itself: its test must not pass
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"evidence": str(evidence)[:200]}


@tool(effect="world_read")
def names(call):
    return {"attacks": sorted(ATTACKS), "jobs": sorted(JOBS)}


@tool(effect="world_read")
def work(call, name, target):
    """What the job gives; its failures are the test's."""
    return JOBS[name](target)


@tool(effect="world_read")
def foreign(call):
    """A call of another architecture, where other numbers mean other things."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


@tool(effect="world_read")
def open_path(call, path, mode):
    """Opens a file, as an honest plugin would."""
    with open(path, mode) as file:
        return file.read() if mode == "r" else file.write("x")


@tool(effect="world_read")
def look_up(call, host, port):
    """Connects to a host, as an honest plugin would."""
    with socket.create_connection((host, port), timeout=5):
        return "connected"


@tool(effect="world_read")
def variable(call, name):
    return os.environ.get(name)


@tool(effect="world_read")
def start(call, program):
    """Starts a program, as an honest plugin would."""
    try:
        return subprocess.run([program], check=True).returncode
    except OSError as error:
        raise ToolError(f"{program} cannot be started") from error


plugin = Plugin(tools=[attack, names, work, foreign, open_path, look_up, variable, start])
