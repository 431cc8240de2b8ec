"""What a step does, one action after the other: items, silence, and every way to fail."""

from __future__ import annotations

import builtins
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any

from purra_plugin_scripted.script import Step
from purra_sdk import CallCancelled, PluginError
from purra_sdk.items import content, finish, reasoning, tool_call, usage

__all__ = ["act"]

MAX_DESCRIPTORS = 64
LOOK_S = 0.01
"""How often a pause looks whether the call was cancelled."""


def act(number: int, step: Step, cancelled: Callable[[], bool]) -> Iterator[Any]:
    """The items of step `number`. `cancelled` says whether the caller has given up.

    Raises what the step says, and `CallCancelled` in a pause; may end the process.
    """
    calls = 0
    for kind, value in step.actions:
        if kind == "content":
            yield from (content(piece) for piece in _pieces(value, step.split))
        elif kind == "reasoning":
            yield from (reasoning(piece) for piece in _pieces(value, step.split))
        elif kind == "call":
            call = {"index": calls, "id": f"call-{number}-{calls}", "arguments": {}, **value}
            calls += 1
            yield from _fragments(call, step.split)
        elif kind == "fragment":
            yield tool_call(**{"index": 0, **value})
        elif kind == "usage":
            yield usage(**value)
        elif kind == "finish":
            yield finish(**value)
        elif kind == "item":
            yield value
        elif kind in ("delay_ms", "hang"):
            _pause(kind, value, cancelled)
        else:
            _disturb(kind, value)


def _pieces(text: str, split: int) -> list[str]:
    if not split or not text:
        return [text]
    return [text[start : start + split] for start in range(0, len(text), split)]


def _fragments(call: dict[str, Any], split: int) -> Iterator[Any]:
    """A whole call, its argument text in pieces; an object is written as JSON, text as it is."""
    arguments = call["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    first, *rest = _pieces(arguments, split)
    yield tool_call(call["index"], call["id"], call["name"], first)
    for piece in rest:
        yield tool_call(call["index"], arguments=piece)


def _pause(kind: str, value: Any, cancelled: Callable[[], bool]) -> None:
    """Waits. Raises `CallCancelled` if the call is given up meanwhile; `for_ever` does not care."""
    never = threading.Event()
    if value == "for_ever":
        never.wait()
    left_s = value / 1000 if kind == "delay_ms" else float("inf")
    while left_s > 0 and not cancelled():
        never.wait(min(left_s, LOOK_S))
        left_s -= LOOK_S
    if cancelled():
        raise CallCancelled


def _disturb(kind: str, value: Any) -> None:
    if kind == "raise":
        raise _raised(value)
    if kind == "exit":
        os._exit(value)
    elif kind == "signal":
        os.kill(os.getpid(), value)
    elif kind == "print":
        print(value, flush=True)
    elif kind == "garbage":
        os.write(_channel(), b"\xff" * value)


def _channel() -> int:
    """The descriptor of the worker's channel, its only socket. No API leads there, rightly."""
    for descriptor in range(3, MAX_DESCRIPTORS):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                return descriptor
        except OSError:
            continue
    raise PluginError("failed_precondition", "garbage needs a worker's channel; there is none")


def _raised(value: dict[str, Any]) -> Exception:
    message = value.get("message", "as the script says")
    if "exception" in value:
        error: Exception = getattr(builtins, value["exception"])(message)
        return error
    return PluginError(
        value["code"], message, after_ms=value.get("after_ms"), detail=value.get("detail")
    )
