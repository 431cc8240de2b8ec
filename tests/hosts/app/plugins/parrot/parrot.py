"""A model that calls its first tool with the prompt and repeats the result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from purra_sdk import Plugin, model, policy
from purra_sdk.items import content, finish, tool_call, usage


@model("echo")
class Echo:
    def profile(self, call: Any) -> dict[str, Any]:
        return {"window": 8000, "output_limit": 1000, "features": ["tools"]}

    def generate(self, call: Any, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        last = request["messages"][-1]
        if last["role"] == "tool" or not request["tools"]:
            yield content(f"seen: {json.dumps(last, sort_keys=True)}")
            yield finish("stop")
        else:
            name = request["tools"][0]["name"]
            arguments = json.dumps({"text": str(last["content"])})
            yield tool_call(0, "c1", name, arguments)
            yield finish("tool_calls")
        yield usage(1, 1)


@policy("strict")
class Strict:
    def decide(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        verdict = "deny" if "danger" in str(request["arguments"]) else "allow"
        return {"verdict": verdict, "reason": "a word"}


plugin = Plugin(models=[Echo], policies=[Strict])
