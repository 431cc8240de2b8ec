"""A conversation between the offline model and real file tools, without a kernel between them.

The messages are what the kernel would make of it: canonical JSON text for each result.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import purra_plugin_files
from purra.values import canonical_text
from purra_plugin_files.faults import FsError
from purra_plugin_files.places import Root
from purra_plugin_files.reading import Listing, Reading, list_folder, read_file
from purra_plugin_files.searching import Search, grep
from purra_plugin_offline.plugin import Extractive
from purra_plugin_offline.quoting import parse

Message = dict[str, Any]
Runner = Callable[[str, dict[str, Any]], Any]

_MANIFEST = Path(purra_plugin_files.__file__).parent / "purra-plugin.toml"
TOOLS: list[dict[str, Any]] = [
    {
        key: provided[part]
        for key, part in (("name", "name"), ("description", "description"), ("parameters", "input"))
    }
    for provided in tomllib.loads(_MANIFEST.read_text())["provides"]
]
"""What the model is offered of `files`, `fs.write` too."""
MAX_ROUNDS = 5


def file_tools(folder: Path) -> Runner:
    """The real tools over `folder`."""

    def run(name: str, arguments: dict[str, Any]) -> Any:
        with Root(str(folder)) as root:
            try:
                if name == "fs.grep":
                    return grep(root, Search(**arguments))
                if name == "fs.read":
                    return read_file(root, Reading(**arguments))
                assert name == "fs.list", f"{name} was called"
                return list_folder(root, Listing(**arguments))
            except FsError as error:
                return {"error": error.message}

    return run


def request(messages: list[Message], tools: Any = None, max_tokens: int = 4096) -> dict[str, Any]:
    """A model request as the port sends it."""
    offered = TOOLS if tools is None else tools
    return {"messages": messages, "tools": offered, "max_tokens": max_tokens, "params": {}}


def respond(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of one answer."""
    call: Any = SimpleNamespace(cancelled=False)
    return list(Extractive().generate(call, body))


def text_of(items: list[dict[str, Any]]) -> str:
    """The joined content."""
    return "".join(item["text"] for item in items if item["t"] == "content")


def calls_of(items: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The joined calls, by index (MOD-09)."""
    calls: dict[int, dict[str, str]] = {}
    for item in items:
        if item["t"] == "call":
            call = calls.setdefault(item["index"], {"id": "", "name": "", "arguments": ""})
            for part in call:
                call[part] += item.get(part, "")
    return [calls[index] for index in sorted(calls)]


def converse(question: str, run: Runner, tools: Any = None) -> tuple[str, list[Message]]:
    """The final answer and the whole conversation."""
    messages: list[Message] = [
        {"role": "system", "content": "Answer from the files. Quote path:line."},
        {"role": "user", "content": question},
    ]
    for _ in range(MAX_ROUNDS):
        items = respond(request(messages, tools))
        calls = calls_of(items)
        if not calls:
            return text_of(items), messages
        messages.append({"role": "assistant", "content": text_of(items), "calls": calls})
        for call in calls:
            value = run(call["name"], json.loads(call["arguments"]))
            messages.append(
                {
                    "role": "tool",
                    "content": value if isinstance(value, str) else canonical_text(value),
                    "call_id": call["id"],
                    "name": call["name"],
                }
            )
    raise AssertionError(f"no answer after {MAX_ROUNDS} rounds")


def quotes_in(answer: str) -> list[tuple[str, int, str]]:
    """Every quote of an answer."""
    return [found for line in answer.split("\n") if (found := parse(line)) is not None]
