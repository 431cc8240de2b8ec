"""Run by path, in a process of its own: what the code of a plugin offers, as data.

The plugin's code runs here when it is imported, so this process is restricted first, as a worker
without any grant is: whatever its code does at import, it can do nothing to its author's machine
that it could not do when it is started. Our own modules are loaded before that, and the folder that
they come from is off the path again, because the plugin's environment is not ours.

Stdin: one marshalled map (`describing.py` makes it). Stdout: one JSON map, `offers` or `error`;
what the plugin prints goes to stderr.
"""

from __future__ import annotations

import json
import marshal
import os
import sys
from typing import Any

__all__ = ["main"]


def main() -> int:
    """The exit status; 0 also for a plugin that cannot be imported."""
    answer = os.dup(1)
    os.dup2(2, 1)
    asked = marshal.load(sys.stdin.buffer)
    sys.path.insert(0, asked["ours"])
    from purra.errors import PurraError
    from purra.signatures import read_signature

    sys.path[0] = asked["jail"]
    import jail  # type: ignore[import-not-found]

    sys.path[0] = asked["staged"]
    parent = os.getppid()
    jail.tie_to_parent(parent)
    jail.restrict(asked["policy"], parent)
    sys.path.extend(asked["sys_path"])
    try:
        told: dict[str, Any] = {"offers": offers(asked["entry"], read_signature)}
    except PurraError as error:
        told = {"error": str(error)}
    except BaseException as error:  # whatever the plugin's code raises is the answer
        sys.excepthook(type(error), error, error.__traceback__)
        told = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        json.dump(told, stream)
    return 0


def offers(entry: str, read_signature: Any) -> list[dict[str, Any]]:
    """Every adapter of the plugin object that `entry` names, in its order."""
    module, _, attribute = entry.partition(":")
    found = __import__(module, fromlist=["_"])
    for name in attribute.split("."):
        found = getattr(found, name)
    adapters: list[dict[str, Any]] = []
    for kind, part in found.adapters:
        _, name, facts = part.__purra__
        text = (part if isinstance(part, type) or kind == "tool" else type(part)).__doc__ or ""
        told = {"kind": kind, "name": name, "facts": facts, "doc": _first_line(text)}
        if kind == "tool" and not _is_open(part):
            signature = read_signature(part, f"tool {name!r}", passed="call")
            told |= {"description": signature.description, "input": signature.parameters}
        adapters.append(told)
    return adapters


def _is_open(function: Any) -> bool:
    """Whether it takes any keyword: then its signature says nothing, and the manifest all."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "").rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
