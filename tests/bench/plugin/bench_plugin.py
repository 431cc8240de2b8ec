"""Adapters that do next to nothing, to measure what everything around them costs."""

# mypy: ignore-errors

import time

from purra_sdk import Plugin, model, store, tool
from purra_sdk.items import content, finish, tool_call, usage

WINDOW = 10_000_000
DIGEST = "sha256:" + "0" * 64


@tool(effect="pure")
def echo(call, value=None):
    return value


@tool(effect="pure")
def add(call, a=0, b=0):
    return str(a + b)


@model("script")
class Script:
    """The first message says what to do: `ROUNDS` with the tool, `items COUNT TEXT`, or `paced
    COUNT SECONDS`."""

    def __init__(self, setup):
        pass

    def profile(self, call):
        return {"window": WINDOW, "output_limit": 512, "features": ["tools"]}

    def generate(self, call, request):
        messages = request["messages"]
        kind, *rest = messages[0]["content"].split(" ", 2)
        if kind == "items":
            piece = content(rest[1])
            for _ in range(int(rest[0])):
                yield piece
        elif kind == "paced":
            pause_s = float(rest[1])
            for _ in range(int(rest[0])):
                time.sleep(pause_s)
                yield content(repr(time.monotonic()))
        else:
            done = len(messages) // 2  # after the question, a call and its result for each round
            if done < int(kind):
                yield tool_call(0, f"c{done}", "add", f'{{"a": 1, "b": {done}}}')
                yield usage(1, 1)
                yield finish("tool_calls")
                return
            yield content("done")
            yield usage(1, 1)
        yield finish("stop")


@store("bulk")
class Bulk:
    """The bytes of the last `blob_put`, in the pieces in which they came."""

    def __init__(self, setup):
        self._pieces = []

    def commit(self, call, **args):
        return {"heads": {}, "revisions": {}}

    def blob_put(self, call):
        self._pieces = list(call.chunks())
        return {"digest": DIGEST}

    def blob_get(self, call, digest=None, offset=0, length=0):
        yield from self._pieces


plugin = Plugin(tools=[echo, add], models=[Script], stores=[Bulk])
