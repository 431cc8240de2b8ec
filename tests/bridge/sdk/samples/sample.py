"""The plugin that most tests run: one adapter method per thing that a handler may do."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from purra_sdk import (
    CallCancelled,
    Plugin,
    PluginError,
    StoreError,
    ToolError,
    batched,
    context,
    model,
    outcome,
    policy,
    store,
    tool,
)
from purra_sdk.items import content, finish, usage

print("hi from the import")

LIST_DESCRIPTORS = """
import os
for number in os.listdir("/proc/self/fd"):
    try:
        print(number, os.readlink(f"/proc/self/fd/{number}").split(":")[0])
    except OSError:
        pass
"""


@tool(effect="pure")
def add(left: int, right: int = 10) -> int:
    return left + right


@tool(effect="pure", name="sample.facts")
def facts(call: Any, asked: str) -> Any:
    """What the handler sees of its call and its process."""
    return {
        "call": lambda: {
            "adapter": call.adapter,
            "method": call.method,
            "key": call.key,
            "trace": call.trace,
            "deadline_ms": call.deadline_ms,
            "remaining": call.remaining_s,
            "cancelled": call.cancelled,
        },
        "env": lambda: dict(os.environ),
        "path": lambda: list(sys.path),
        "modules": lambda: sorted(sys.modules),
        "setup": lambda: {
            "config": call.setup.config,
            "secrets": call.setup.secrets,
            "grants": call.setup.grants,
            "plugin": call.setup.plugin,
            "generation": call.setup.generation,
            "state": call.setup.state,
        },
        "thread": lambda: [threading.get_ident(), threading.main_thread().ident],
        "stdin": lambda: sys.stdin.read(),
    }[asked]()


@tool(effect="pure")
def fail(how: str) -> Any:
    if how == "tool":
        raise ToolError("no such file", code="not_found", effect_state="not_started")
    if how == "plugin":
        raise PluginError("rate_limited", "slow down", after_ms=250, detail={"status": 429})
    if how == "committed":
        raise PluginError("upstream", "half done", effect_state="committed")
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "type":
        return len(5)  # type: ignore[arg-type]
    raise RuntimeError("the secret is 12345")


@tool(effect="pure")
def odd(what: str) -> Any:
    """Results that are no strict values."""
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    cycle: list[Any] = []
    cycle.append(cycle)
    return {
        "object": object(),
        "nan": {"nested": [1.0, float("nan")]},
        "huge": 2**64,
        "surrogate": "\ud800",
        "key": {1: "one"},
        "set": {1, 2},
        "deep": deep,
        "cycle": cycle,
        "long": "x" * 3_000_000,
    }[what]


@tool(effect="pure")
def rich() -> Any:
    return outcome({"n": 1}, effect_state="committed", step="complete", planning="replan")


@tool(effect="pure")
def speak(text: str) -> str:
    """Prints in every way there is."""
    print(text)
    print("no newline", end="")
    print()
    os.write(1, f"raw {text}\n".encode())
    os.write(2, f"err {text}\n".encode())
    subprocess.run(["/bin/echo", f"child {text}"], check=True)
    return "said"


def sockets() -> list[str]:
    """The sockets that this process has open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass  # the listing's own
    return [link for link in links if link.startswith("socket")]


def sockets_of_child(_: int) -> list[str]:
    return sockets()


@tool(effect="pure")
def descend(how: str) -> Any:
    """Starts other processes, and says what they inherited."""
    if how == "exec":
        command = [sys.executable, "-I", "-S", "-c", LIST_DESCRIPTORS]
        run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
        return run(command, close_fds=False).stdout  # so that only close-on-exec protects
    if how == "pool":
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.map(sockets_of_child, [1])
    if how == "fork":
        read, write = os.pipe()
        sys.stderr.flush()
        if os.fork() == 0:
            child = os.fork()  # a child of the child, with other files where ours were
            if child:
                os.waitpid(child, 0)
            else:
                os.write(write, repr(sockets()).encode())
            return "a child that comes back as if it were the worker"
        os.close(write)
        return os.read(read, 4096).decode()
    raise ToolError(how)


@tool(effect="pure")
def tell(call: Any, level: str) -> str:
    call.log(level, "one", n=1)
    call.log("warning", "two", thing=object(), nan=float("nan"))
    call.setup.log("info", "not tied to a call")
    return "told"


@tool(effect="pure")
def steps(call: Any, count: int) -> int:
    for number in range(count):
        call.progress({"step": number})
    return count


@tool(effect="pure")
def generated(count: int) -> Iterator[Any]:
    for number in range(count):
        yield {"step": number}
    return count


@tool(effect="pure")
def nap(call: Any, seconds: float, until_cancelled: bool = False) -> str:
    """Blocks the thread, as C code or a system call would."""
    until = time.monotonic() + seconds
    call.progress("started")
    if not until_cancelled:
        time.sleep(seconds)
        return "slept"
    while time.monotonic() < until:
        if call.cancelled:
            return "noticed"
        time.sleep(0.001)
    return "not noticed"


@tool(effect="pure")
def spin(seconds: float) -> str:
    """Keeps the interpreter busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return "spun"


@tool(effect="pure")
def meet(call: Any) -> str:
    """Returns only if two of these run at once."""
    call.setup.state["barrier"].wait(timeout=10)
    return threading.current_thread().name


@tool(effect="pure")
def relay(call: Any, adapter: str, value: Any) -> Any:
    return call.ask(adapter, "get", {"value": value})


@tool(effect="pure")
def at_exit(text: str) -> str:
    atexit.register(print, text)
    return "registered"


@tool(effect="pure")
def leave_thread() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "left"


@model("voice")
class Voice:
    """A model, by what the request's `params` ask for."""

    def __init__(self, setup: Any) -> None:
        self.made = 0
        self.closed = 0
        self.cleaned = 0

    def profile(self, call: Any) -> dict[str, Any]:
        return {"window": 1000, "output_limit": 100, "features": [], "made": self.made}

    def generate(self, call: Any, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        how = request["params"]
        try:
            yield from self._say(how)
        finally:
            self.cleaned += 1
            print("cleaned", self.cleaned)

    def _say(self, how: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.made = 0
        for number in range(how.get("count", 0)):
            self.made += 1
            yield content(str(number) + "." * how.get("padding", 0))
            if number in how.get("pauses", ()):
                time.sleep(how["pause_s"])
        if how.get("raises"):
            raise RuntimeError("in the middle")
        if how.get("odd"):
            yield content(object())  # type: ignore[arg-type]
        if "count" in how:
            yield usage(1, None)
            yield finish("stop")


@context("memory")
class Memory:
    def demand(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        return {"minimum": 1, "desired": len(request["prompt"]), "priority": 0}

    def provide(self, call: Any, request: dict[str, Any], budget: int) -> dict[str, Any]:
        return {"blocks": [], "diagnostics": [sorted(request), budget]}


@policy("guard")
class Guard:
    def decide(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        return {"verdict": "deny", "reason": request["tool"]}


@store("journal")
class Journal:
    def __init__(self, setup: Any) -> None:
        self.watchers: list[Any] = []
        self.batches: list[int] = []

    @batched
    def commit(self, calls: list[Any]) -> list[Any]:
        self.batches.append(len(calls))
        first = calls[0].args["ops"]
        if first == "short":
            return []
        if first == "raise":
            raise StoreError("storage", errno=28)
        if first == "wait":
            time.sleep(0.1)
        return [
            StoreError("conflict", stream="s", head=4)
            if call.args["ops"] == "conflict"
            else {"heads": {}, "revisions": {}, "batch": len(calls), "n": call.args["ops"]}
            for call in calls
        ]

    def read(self, call: Any, stream: str, after: int = 0, limit: int = 7) -> dict[str, Any]:
        return {"records": [stream, after, limit], "head": 0, "sealed": False}

    def watch(self, call: Any, prefix: str) -> Any:
        stream = call.detach()
        if prefix == "now":
            stream.send("before the return")
            stream.finish({"ended": "early"})
        elif prefix == "fail":
            threading.Thread(target=stream.fail, args=(StoreError("storage", errno=5),)).start()
        elif prefix == "count":
            threading.Thread(target=self._count, args=(stream,)).start()
        else:
            self.watchers.append(stream)
            threading.Thread(target=stream.send, args=(prefix,)).start()
        return stream

    def _count(self, stream: Any) -> None:
        """Sends for ever, and says when nobody wants more."""
        number = 0
        while stream.send(str(number)):
            number += 1
        print(f"closed after {number}", stream.closed)

    def now(self, call: Any) -> dict[str, Any]:
        """Offers to all watchers, from inside another handler."""
        taken = [stream.offer("look again") for stream in self.watchers]
        return {"now_ms": 5, "taken": taken, "closed": [s.closed for s in self.watchers]}

    def blob_put(self, call: Any) -> Any:
        if call.args.get("elsewhere"):
            stream = call.detach()
            threading.Thread(target=self._put, args=(call, stream)).start()
            return stream
        size = 0
        try:
            for chunk in call.chunks():
                size += len(chunk)
                call.progress(size)
                if chunk.startswith(b"enough"):
                    return {"digest": "partial"}
        except CallCancelled:
            print(f"cancelled after {size}")
            raise
        return {"digest": str(size)}

    def _put(self, call: Any, stream: Any) -> None:
        """Takes the chunks on a thread of the plugin, so that the handlers' thread is free."""
        try:
            stream.finish({"digest": str(sum(map(len, call.chunks())))})
        except CallCancelled:
            print("cancelled elsewhere")

    def blob_get(self, call: Any, digest: str, offset: int, length: int) -> Iterator[bytes]:
        for _ in range(offset):
            yield digest.encode() * length


def setup(given: Any) -> dict[str, Any]:
    given.log("info", "setting up")
    given.status("warming", text="nearly there")
    return {"barrier": threading.Barrier(2)} if given.config.get("barrier") else {"warm": True}


def close(given: Any) -> None:
    print("closed", given.plugin)


TOOLS = [add, facts, fail, odd, rich, speak, descend, tell, steps, generated]
TOOLS += [nap, spin, meet, relay, at_exit, leave_thread]
plugin = Plugin(
    tools=TOOLS,
    models=[Voice],
    contexts=[Memory],
    stores=[Journal],
    policies=[Guard],
    setup=setup,
    close=close,
)
not_a_plugin = 5
