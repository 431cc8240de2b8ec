"""Context providers that are broken in one way each, and those that must pass."""

from __future__ import annotations

from typing import Any

from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.plugin_parts import Parts, made, universal

__all__ = ["REFERENCES", "SABOTEURS"]

_MANIFEST = """
schema = "purra.plugin/1"
id = "shelf"
version = "1.0.0"
summary = "Texts on a shelf, some for one session only"

[host]
kind = "process"
entry = "purra_plugin_shelf.shelf:plugin"

[config.root]
type = "string"
format = "path"

[capabilities]
fs.read = ["{config.root}"]
fs.write = ["{config.root}"]

[limits]
threads = 4

[[provides]]
kind = "context"
name = "shelf"
summary = "The rules, and the texts that fit"
"""

_CODE = '''
import hashlib
import os

from purra_sdk import Plugin, PluginError, context

RULES = "The rules of the house: be brief, and say where it stands."


def cost(text):
    plain = len(text.encode("ascii", "ignore"))
    return len(text) - plain + -(-plain // 4)


def block(name, text, source, untrusted=True):
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return {"name": name, "content": text, "source": source, "digest": digest,
            "untrusted": untrusted}


@context("shelf")
class Shelf:
    def __init__(self, setup):
        self.root = setup.config["root"]

    def texts(self, request):
        """(path, text) of everything that the session may see, in one order."""
        found = []
        for folder in ("all", request["session"] or "all"):
            path = os.path.join(self.root, folder)
            try:
                names = sorted(os.listdir(path)) if folder == "all" or os.path.isdir(path) else []
                for name in names:
                    with open(os.path.join(path, name), encoding="utf-8") as file:
                        found.append((f"{folder}/{name}", file.read()))
            except OSError as error:
                raise PluginError("not_found", f"{path}: {error.strerror}") from None
        return list(dict.fromkeys(found))

    def demand(self, call, request):
        least = cost(RULES)
        return {"minimum": least, "desired": least + sum(cost(t) for _, t in self.texts(request))}

    def provide(self, call, request, budget):
        if budget <= 0:
            return {"blocks": []}
        left = budget - cost(RULES)
        if left < 0:
            raise PluginError("resource_exhausted", f"the rules need {cost(RULES)} tokens")
        blocks = [block("rules", RULES, "rules", untrusted=False)]
        for path, text in self.texts(request):
            left -= cost(text)
            if left < 0:
                break
            blocks.append(block(path, text, path))
        return {"blocks": blocks, "diagnostics": f"{len(blocks)} blocks"}


plugin = Plugin(contexts=[Shelf])
'''

_SEEDING = """
import os
import shutil


def put(given):
    for text in given["texts"]:
        folder = os.path.join(given["config"]["root"], text["session"] or "all")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, text["name"]), "w", encoding="utf-8") as file:
            file.write(text["text"])


def spoil(given):
    shutil.rmtree(os.path.join(given["config"]["root"], "all"))
"""

_FIXTURES = """
[config]
root = "{scratch}/shelf"

[files]
"shelf/all/first" = "A text that was there before."

[context]
seed = "seeding:put"
breaks = "seeding:spoil"
scope = "session"
"""

SHELF = Parts(
    package="purra_plugin_shelf",
    module="shelf",
    manifest=_MANIFEST.strip() + "\n",
    code=_CODE,
    offers=(("context", "shelf"),),
    fixtures=_FIXTURES,
    more={"seeding.py": _SEEDING},
)


def _class(body: str) -> str:
    """The code of a provider that differs from the reference in these methods."""
    lines = "\n".join(f"    {line}".rstrip() for line in body.strip().splitlines())
    return (
        f'@context("shelf")\nclass Broken(Shelf):\n{lines}\n\n\n'
        "plugin = Plugin(contexts=[Broken])\n"
    )


_OVER = _class(
    """
def provide(self, call, request, budget):
    return super().provide(call, request, budget * 11 // 10 + 5 if budget else 0)
"""
)
_IGNORES_ZERO = _class(
    """
def provide(self, call, request, budget):
    return super().provide(call, request, budget or 100)
"""
)
_REFUSES_ZERO = _class(
    """
def provide(self, call, request, budget):
    if not budget:
        raise PluginError("failed_precondition", "no room")
    return super().provide(call, request, budget)
"""
)
_TAKES_AWAY = _class(
    """
def provide(self, call, request, budget):
    answer = super().provide(call, request, budget)
    if budget > 30:
        answer["blocks"] = answer["blocks"][1:]
    return answer
"""
)
_PROMOTES = _class(
    """
def provide(self, call, request, budget):
    answer = super().provide(call, request, budget)
    return {**answer, "blocks": [{**each, "untrusted": False} for each in answer["blocks"]]}
"""
)
_STALE = _class(
    """
def provide(self, call, request, budget):
    answer = super().provide(call, request, budget)
    for each in answer["blocks"]:
        each["content"] = each["content"].strip() + " (shortened)"
    return answer
"""
)
_NO_SOURCE = _class(
    """
def provide(self, call, request, budget):
    answer = super().provide(call, request, budget)
    return {**answer, "blocks": [{**each, "source": ""} for each in answer["blocks"]]}
"""
)
_SETS = _class(
    """
def texts(self, request):
    return list(set(super().texts(request)))
"""
)
_APPENDS = _class(
    """
def provide(self, call, request, budget):
    with open(os.path.join(self.root, "asked"), "a") as file:
        file.write(request["prompt"])
    return super().provide(call, request, budget)
"""
)
_REMEMBERS = _class(
    """
count = 0

def provide(self, call, request, budget):
    answer = super().provide(call, request, budget)
    self.count += 1
    if self.count > 1:
        answer["blocks"] = answer["blocks"][::-1]
    return answer
"""
)
_EMPTY = _class(
    """
def provide(self, call, request, budget):
    return {"blocks": []}
"""
)
_UNSCOPED = _class(
    """
def texts(self, request):
    found = []
    for folder in sorted(os.listdir(self.root)):
        found += super().texts({**request, "session": folder})
    return list(dict.fromkeys(found))
"""
)
_EMPTY_ON_ERROR = _class(
    """
def texts(self, request):
    try:
        return super().texts(request)
    except PluginError:
        return []
"""
)
_BARE_ERROR = _class(
    """
def texts(self, request):
    try:
        return super().texts(request)
    except PluginError as error:
        raise RuntimeError("whatever") from error
"""
)
_DEAF = _class(
    """
def provide(self, call, request, budget):
    import time
    time.sleep(3)
    return super().provide(call, request, budget)
"""
)
_SLOW = _class(
    """
def provide(self, call, request, budget):
    import time
    time.sleep(0.1)
    return super().provide(call, request, budget)
"""
)


def _patched(name: str, rule: str, message: str, patch: str) -> Saboteur:
    return Saboteur(name, (rule,), message, made(SHELF.changed(patch)))


REFERENCES: dict[str, Any] = {"shelf": made(SHELF)}
SABOTEURS: tuple[Saboteur, ...] = (
    _patched("over-budget-10%", "CTX-001", "blocks of at most", _OVER),
    _patched("ignores-zero", "CTX-002", "a budget of 0 gives no block", _IGNORES_ZERO),
    _patched("refuses-zero", "CTX-002", "a budget of 0 gives no block", _REFUSES_ZERO),
    _patched("takes-away", "CTX-002", "missing: ['rules']", _TAKES_AWAY),
    _patched("promotes-to-system", "CTX-003", "what others wrote is untrusted", _PROMOTES),
    _patched("stale-digest", "CTX-004", "the digest is that of", _STALE),
    _patched("no-source", "CTX-004", "each block has a source", _NO_SOURCE),
    _patched("set-iteration-order", "CTX-005", "the same bytes in 3 processes", _SETS),
    _patched("appends-in-place", "CTX-006", "it writes nothing", _APPENDS),
    _patched("remembers-the-last", "CTX-006", "being asked changes no answer", _REMEMBERS),
    _patched("always-empty", "CTX-007", "is in no block", _EMPTY),
    _patched("scope-ignored", "CTX-007", "sees no text of another one", _UNSCOPED),
    _patched("empty-on-error", "CTX-009", "is an error, not a shorter answer", _EMPTY_ON_ERROR),
    _patched("bare-exception", "CTX-009", "the error has a code of its own", _BARE_ERROR),
    _patched("deaf-to-cancel", "CTX-009", "a cancelled call ends within", _DEAF),
    Saboteur("slow-100ms", ("CTX-*",), "", made(SHELF.changed(_SLOW)), dies="never"),
    *(
        Saboteur(name, ("CTX-00[1-5]*",), "", opened, dies="any", timeout_s=2.0)
        for name, opened in universal(SHELF).items()
    ),
)
