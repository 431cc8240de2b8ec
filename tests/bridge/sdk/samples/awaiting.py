"""A plugin with coroutine handlers, and one plain one beside them."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from purra_sdk import Plugin, ToolError, batched, model, store, tool
from purra_sdk.items import content, finish


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hides that a function gives a coroutine."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@tool(effect="pure")
async def add(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


@tool(effect="pure")
def plain(left: int) -> list[Any]:
    return [left, threading.current_thread() is threading.main_thread()]


@tool(effect="pure")
async def nap(call: Any, seconds: float) -> str:
    call.progress("started")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("cancelled", call.cancelled)
        raise
    return "slept"


@tool(effect="pure")
async def stubborn(call: Any) -> str:
    """Answers although it was cancelled."""
    call.progress("started")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "all the same"
    return "slept"


@tool(effect="pure")
async def block(seconds: float) -> str:
    """Stops the loop, as a handler must not."""
    time.sleep(seconds)
    return "blocked"


@tool(effect="pure")
async def fail(how: str) -> None:
    if how == "tool":
        raise ToolError("no", code="nope")
    if how == "exit":
        sys.exit(1)
    if how == "cancelled":
        raise asyncio.CancelledError
    raise RuntimeError("inside")


@tool(effect="pure")
async def stop_the_loop() -> str:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(60)
    return "still there"


@tool(effect="pure")
async def odd() -> float:
    return float("inf")


@tool(effect="pure")
async def steps(call: Any, count: int) -> int:
    for number in range(count):
        call.progress(number)
    return count


@tool(effect="pure")
async def relay(call: Any, value: Any) -> Any:
    first, second = await asyncio.gather(
        call.ask("memory", "get", value), call.ask("memory", "put", value)
    )
    return [first, second]


@tool(effect="pure")
@plainly
async def hidden(call: Any, value: Any) -> Any:
    await asyncio.sleep(0.001)
    return value


@model("voice")
class Voice:
    def __init__(self) -> None:
        self.made = 0

    async def profile(self, call: Any) -> dict[str, Any]:
        return {"made": self.made}

    async def generate(self, call: Any, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        how = request["params"]
        try:
            for number in range(how["count"]):
                self.made += 1
                yield content(str(number))
                if number in how.get("pauses", ()):
                    await asyncio.sleep(how["pause_s"])
            if how.get("raises"):
                raise RuntimeError("in the middle")
            yield content(object() if how.get("odd") else "")  # type: ignore[arg-type]
            yield finish("stop")
        finally:
            print("cleaned")


class Hidden(Voice):
    """The same, behind a plain method."""

    def generate(self, call: Any, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        return super().generate(call, request)


HiddenVoice = model("hidden_voice")(Hidden)


@store("journal")
class Journal:
    @batched
    async def commit(self, calls: list[Any]) -> list[Any]:
        await asyncio.sleep(0.05)
        if calls[0].args["ops"] == "raise":
            raise RuntimeError("inside")
        return [{"n": call.args["ops"], "batch": len(calls)} for call in calls]

    async def blob_put(self, call: Any) -> dict[str, Any]:
        size = 0
        async for chunk in call.chunks():
            size += len(chunk)
        return {"digest": str(size)}

    async def watch(self, call: Any, prefix: str) -> Any:
        stream = call.detach()
        threading.Thread(target=stream.send, args=(prefix,)).start()
        return stream


plugin = Plugin(
    tools=[add, plain, nap, stubborn, block, fail, stop_the_loop, odd, steps, relay, hidden],
    models=[Voice, HiddenVoice],
    stores=[Journal],
)
