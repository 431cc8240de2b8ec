"""A plugin that does what a test asks for, good or bad."""

# mypy: ignore-errors

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from purra_sdk import Plugin, PluginError, batched, store, tool


@tool(effect="pure")
def echo(call, value=None):
    return value


@tool(effect="world_read")
def slow(call, started="", release=""):
    """Runs until the file `release` is there, or its caller has gone."""
    if started:
        open(started, "w").close()
    while not (release and os.path.exists(release)):
        if call.cancelled:
            return "cancelled"
        time.sleep(0.002)
    return "released"


@tool(effect="world_write")
def deaf(call, started="", seconds=600):
    """Ignores every cancel."""
    if started:
        open(started, "w").close()
    time.sleep(seconds)
    if started:
        open(started + ".landed", "w").close()
    return "late"


@tool(effect="world_read")
def die(call, number=9, status=None, text="", started=""):
    if text:
        sys.stderr.write(text)
        sys.stderr.flush()
    if started:
        open(started, "w").close()
    if status is not None:
        os._exit(status)
    os.kill(os.getpid(), number)
    time.sleep(600)


@tool(effect="world_read")
def environ(call):
    with open("/proc/self/environ", "rb") as file:
        block = file.read().decode("utf-8", "replace")
    with open("/proc/self/cmdline", "rb") as file:
        line = file.read().decode("utf-8", "replace")
    return {
        "environ": dict(os.environ),
        "block": block,
        "cmdline": line,
        "cwd": os.getcwd(),
        "pid": os.getpid(),
    }


@tool(effect="world_read")
def noise(call):
    """Writes to stdout by every road there is, in the middle of a call."""
    print("printed")
    os.write(1, b"written\n")
    subprocess.run([sys.executable, "-I", "-S", "-c", "print('by a child')"], check=True)
    return "clean"


@tool(effect="world_read")
def flood(call, mib=1):
    block = b"x" * 79 + b"\n"
    for _ in range(mib * 16):
        os.write(2, block * 819)
    return "done"


@tool(effect="world_read")
def child(call, detach=False):
    """Leaves a process behind; its pid."""
    code = "import time; time.sleep(600)"
    made = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=detach)
    return made.pid


@tool(effect="world_read")
def garble(call):
    """Writes what is no frame into the channel."""
    for name in os.listdir("/proc/self/fd"):
        try:
            end = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            if end.family == socket.AF_UNIX:
                end.send(b"\xff" * 64)
        except OSError:
            pass  # the SDK's own pair, or one that is full
        finally:
            end.close()
    time.sleep(600)


@tool(effect="world_read")
def shell(call, started):
    """Waits for a program that does not end; its process id stands in `started`."""
    code = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}.'); time.sleep(600)"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, started], check=True)
    return "ended"


@tool(effect="world_read")
def progress(call, count=3):
    for number in range(count):
        call.progress(number)
    return count


@tool(effect="world_read")
def fail(call):
    raise PluginError("rate_limited", "later", after_ms=250, detail={"n": 1})


@tool(effect="world_read")
def unencodable(call):
    return object()


@tool(effect="world_read")
def stop_itself(call):
    os.kill(os.getpid(), signal.SIGSTOP)
    return "continued"


@tool(effect="world_read")
def big(call, size):
    return "x" * size


@tool(effect="world_read")
def spin(call):
    while True:
        pass


@tool(effect="world_read")
def hold(call, on=True):
    call.setup.hold(on)
    return os.getpid()


@tool(effect="world_read")
def ask(call, adapter, method, args, times=1):
    """Asks the host; the answers, or the codes and messages of the errors."""
    answers = []
    for _ in range(times):
        try:
            answers.append(call.ask(adapter, method, args))
        except PluginError as error:
            answers.append([error.code, error.message])
    return answers


@store("bench")
class Bench:
    """Streams: `read` counts, `blob_put` takes an upload, `blob_get` gives bytes."""

    def __init__(self, setup):
        self.setup = setup

    def read(self, call, **_):
        size = call.args.get("size", 0)
        for number in range(call.args["count"]):
            yield [number, "x" * size] if size else number
        return {"count": call.args["count"]}

    @batched
    def commit(self, calls):
        return [len(calls) for _ in calls]

    def blob_put(self, call, **_):
        total = 0
        for chunk in call.chunks():
            total += len(chunk)
            if total >= call.args.get("stop_after", 1 << 60):
                break
        return {"size": total}

    def blob_get(self, call, **_):
        wait = call.args.get("wait", "")
        while wait and not os.path.exists(wait) and not call.cancelled:
            time.sleep(0.002)
        left = call.args["size"]
        while left > 0:
            step = min(call.args.get("step", 65536), left)
            yield b"\x00" * step
            left -= step


plugin = Plugin(
    tools=[
        echo,
        slow,
        deaf,
        die,
        environ,
        noise,
        flood,
        child,
        shell,
        garble,
        progress,
        fail,
        unencodable,
        stop_itself,
        big,
        spin,
        hold,
        ask,
    ],
    stores=[Bench],
)
_ = threading  # loaded here, as any real plugin would
