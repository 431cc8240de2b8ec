"""A model on strings: the prompt says, as JSON, what each round is.

A prompt is a list with one object per round. `text` is said, then `then`, then `calls` ([name,
arguments] each). `hang`, after `text`, keeps the round from ending: "heed" until it is
cancelled, "deaf" for ever, a path for ever unless there is such a file, which it makes. With `gate`
nothing is said before the configured file `gate` is there. Which round it is follows from the
conversation alone, so runs may be mixed, repeated and resumed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from purra_sdk import Plugin, context, model
from purra_sdk.items import content, finish, tool_call, usage

sys.path.append(str(Path(__file__).parents[1]))
from fuse import burn

LOOK_S = 0.01


@model("strings")
class Strings:
    def __init__(self, setup: Any) -> None:
        self._fuse = setup.config.get("fuse", "")
        self._gate = setup.config.get("gate", "")

    def profile(self, call: Any) -> dict[str, Any]:
        return {"window": 32_768, "output_limit": 4_096, "features": ["tools"]}

    def generate(self, call: Any, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        number, step = self._step(request["messages"])
        burn(self._fuse, f"model:{number}:begin", go_on=False)
        if step.get("gate") and not self._opened(call):
            return
        if step.get("text"):
            yield content(step["text"])
        burn(self._fuse, f"model:{number}:middle", go_on=False)
        if "hang" in step and not self._hang(call, step["hang"]):
            return
        if step.get("then"):
            yield content(step["then"])
        for index, (name, arguments) in enumerate(step.get("calls", ())):
            yield tool_call(index, f"c{index}", name, json.dumps(arguments))
        yield usage(3, 2)
        yield finish("tool_calls" if step.get("calls") else "stop", "")
        burn(self._fuse, f"model:{number}:end", go_on=False)

    def _step(self, messages: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        roles = [message["role"] for message in messages]
        asked = len(roles) - 1 - roles[::-1].index("user")
        number = roles[asked:].count("assistant")
        return number, json.loads(messages[asked]["content"])[number]

    def _opened(self, call: Any) -> bool:
        never = threading.Event()
        while not call.cancelled and not Path(self._gate).exists():
            never.wait(LOOK_S)
        return not call.cancelled

    def _hang(self, call: Any, how: str) -> bool:
        if how.startswith("/"):
            try:
                Path(how).touch(exist_ok=False)
            except FileExistsError:
                return True
        never = threading.Event()
        while not (how == "heed" and call.cancelled):
            never.wait(LOOK_S)
        return False


@context("note")
class Note:
    def __init__(self, setup: Any) -> None:
        self._fuse = setup.config.get("fuse", "")

    def demand(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        return {"minimum": 0, "desired": 100, "priority": 0}

    def provide(self, call: Any, request: dict[str, Any], budget: int) -> dict[str, Any]:
        burn(self._fuse, "context:provide", go_on=False)
        return {"blocks": [], "diagnostics": ""}


plugin = Plugin(models=[Strings], contexts=[Note])
