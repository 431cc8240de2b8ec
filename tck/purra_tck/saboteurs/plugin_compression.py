"""Compressors that are broken in one way each, and the one that must pass."""

from __future__ import annotations

from typing import Any

from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.plugin_parts import Parts, made, universal

__all__ = ["REFERENCES", "SABOTEURS"]

_MANIFEST = """
schema = "purra.plugin/1"
id = "squeezer"
version = "1.0.0"
summary = "Leaves out the oldest turns"

[host]
kind = "process"
entry = "purra_plugin_squeezer.squeezer:plugin"

[config.root]
type = "string"
format = "path"

[capabilities]
fs.write = ["{config.root}"]

[[provides]]
kind = "context"
name = "squeezer"
summary = "Leaves out the oldest turns"
"""

_CODE = '''
import os

from purra_sdk import Plugin, PluginError, context


def cost(text):
    plain = len(text.encode("ascii", "ignore"))
    return len(text) - plain + -(-plain // 4)


def size(messages):
    return sum(cost(m["content"]) + sum(cost(c["name"] + c["arguments"])
               for c in m.get("calls", ())) for m in messages)


@context("squeezer")
class Squeezer:
    def __init__(self, setup):
        self.root = setup.config["root"]

    def demand(self, call, request):
        return {"minimum": 0, "desired": 0}

    def provide(self, call, request, budget):
        return {"blocks": []}

    def compress(self, call, messages, budget):
        """Whole groups go, the oldest first: a message, or calls with their results."""
        left = self.squeeze(messages, budget)
        if size(left) > budget:
            raise PluginError("resource_exhausted", f"{size(left)} tokens do not fit")
        return {"messages": left}

    def squeeze(self, messages, budget):
        groups = []
        for message in messages:
            if message["role"] == "tool" and groups:
                groups[-1].append(message)
            else:
                groups.append([message])
        while size(sum(groups, [])) > budget:
            droppable = [g for g in groups[:-1] if g[0]["role"] != "system"]
            if not droppable:
                break
            groups.remove(droppable[0])
        return sum(groups, [])


plugin = Plugin(contexts=[Squeezer])
'''

SQUEEZER = Parts(
    package="purra_plugin_squeezer",
    module="squeezer",
    manifest=_MANIFEST.strip() + "\n",
    code=_CODE,
    offers=(("context", "squeezer"),),
    fixtures='[config]\nroot = "{scratch}/kept"\n[files]\n"kept/history" = "all of it"\n',
)


def _broken(name: str, rule: str, message: str, body: str) -> Saboteur:
    lines = "\n".join(f"    {line}".rstrip() for line in body.strip().splitlines())
    patch = (
        f'@context("squeezer")\nclass Broken(Squeezer):\n{lines}\n\n\n'
        "plugin = Plugin(contexts=[Broken])\n"
    )
    return Saboteur(name, (rule,), message, made(SQUEEZER.changed(patch)))


REFERENCES: dict[str, Any] = {"squeezer": made(SQUEEZER)}
SABOTEURS: tuple[Saboteur, ...] = (
    _broken(
        "returns-oversize",
        "CMP-001",
        "at most",
        """
def compress(self, call, messages, budget):
    return {"messages": self.squeeze(messages, budget + 10)}
""",
    ),
    _broken(
        "compresses-nothing",
        "CMP-001",
        "some long conversation is made shorter",
        """
def compress(self, call, messages, budget):
    if size(messages) > budget:
        raise PluginError("resource_exhausted", "too long")
    return {"messages": messages}
""",
    ),
    _broken(
        "paraphrases-system",
        "CMP-002",
        "stays as it is",
        """
def squeeze(self, messages, budget):
    left = super().squeeze(messages, budget)
    return [{**m, "content": m["content"].replace("Rules: ", "Rules:")} for m in left]
""",
    ),
    _broken(
        "orphans-tool-result",
        "CMP-003",
        "a result stays with its call",
        """
def squeeze(self, messages, budget):
    left = list(messages)
    while size(left) > budget and len(left) > 2:
        del left[1]
    return left
""",
    ),
    _broken(
        "reorders",
        "CMP-004",
        "the order is kept",
        """
def squeeze(self, messages, budget):
    left = super().squeeze(messages, budget)
    return left[:1] + left[-1:] + left[1:-1]
""",
    ),
    _broken(
        "makes-up-a-call",
        "CMP-004",
        "what is new is text",
        """
def squeeze(self, messages, budget):
    left = super().squeeze(messages, budget - 20)
    call = {"id": "new", "name": "f", "arguments": "{}"}
    made = [{"role": "assistant", "content": "", "calls": [call]},
            {"role": "tool", "content": "x", "call_id": "new"}]
    return left[:1] + made + left[1:]
""",
    ),
    _broken(
        "always-summarises",
        "CMP-005",
        "are left alone",
        """
def squeeze(self, messages, budget):
    left = super().squeeze(messages, budget)
    return left if len(left) < len(messages) else left[:1] + left[-1:]
""",
    ),
    _broken(
        "shrinks-forever",
        "CMP-006",
        "changes nothing",
        """
def squeeze(self, messages, budget):
    left = super().squeeze(messages, budget)
    plain = [m for m in left[:-1] if m["role"] in ("user", "assistant") and not m.get("calls")]
    return [m for m in left if m is not plain[0]] if plain else left
""",
    ),
    _broken(
        "rewrites-history",
        "CMP-007",
        "it writes nothing",
        """
def squeeze(self, messages, budget):
    left = super().squeeze(messages, budget)
    with open(os.path.join(self.root, "history"), "w") as file:
        file.write(str(left))
    return left
""",
    ),
    *(
        Saboteur(name, ("CMP-00[1-4]*",), "", opened, dies="any", timeout_s=2.0)
        for name, opened in universal(SQUEEZER).items()
    ),
)
