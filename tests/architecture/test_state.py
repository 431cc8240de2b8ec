"""What a program may rely on: values that stay as they are, no state at a module's top, no
cancellation that ends nowhere, imports that start nothing.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.architecture.sources import ROOT, Source, sources
from tests.architecture.test_snapshots import PUBLIC

CHANGERS = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"}
    | {"remove", "setdefault", "update"}
)
"""Methods that change what they are called on."""

EVERYTHING = frozenset({"BaseException", "CancelledError", "KeyboardInterrupt", "SystemExit"})

IN_THE_KERNELS_PROCESS = ("purra/", "purra_hosts/", "purra_bridge/")

OF_THE_WORKER = ("purra_hosts/bootstrap.py", "purra_hosts/app/scaffold/describe.py")
"""Files of the host that run in a process of their own."""

EDGES = {
    "purra/runs/tasks.py": "the task was stopped by its own block, which swallows exactly that",
    "hosts/purra_hosts/process/callbacks.py": "the last line of a callback's task: it is told",
    "hosts/purra_hosts/process/gate.py": "kept until what must not be left half is over",
    "hosts/purra_hosts/process/thread.py": "the end of a plugin's thread, which is told",
}
"""Files where what was caught is not raised at that place again, and why."""

WATCHED = ("socket.", "subprocess.", "os.fork", "os.posix_spawn", "sqlite3.")
"""Audit events of whoever starts something."""


def test_public_values_are_frozen_and_slotted() -> None:
    """API-05: what a program is handed cannot be changed under another's feet."""
    loose, seen = [], set()
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in module.__all__:
            kind = getattr(module, public)
            if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
                continue
            seen.add(kind.__name__)
            settings: Any = vars(kind)["__dataclass_params__"]
            if not settings.frozen or "__slots__" not in vars(kind):
                loose.append(f"{name}.{public}")
    assert loose == []
    assert {"Agent", "Event", "Result", "RunLimits", "ModelRequest", "ToolResult"} <= seen


def _top(file: Source) -> set[str]:
    """Names that the module's own assignments bind."""
    names = set()
    for node in file.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _changed(function: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of whatever `function` changes in place or declares global."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield from ((node.lineno, name) for name in node.names)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from _named(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _named(node.func.value) if node.func.attr in CHANGERS else ()


def _named(held: ast.expr) -> Iterator[tuple[int, str]]:
    if isinstance(held, ast.Name):
        yield held.lineno, held.id


def _own(function: ast.AST) -> set[str]:
    nodes = [*ast.walk(function)]
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def state_at_the_top(file: Source) -> list[str]:
    """Places where a function changes a name of its module."""
    top, found = _top(file), set()
    for function in ast.walk(file.tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            shared = top - (_own(function) - _declared(function))
            found |= {f"{line}: {name}" for line, name in _changed(function) if name in shared}
    return [f"{file.path}:{place}" for place in sorted(found)]


def _declared(function: ast.AST) -> set[str]:
    return {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}


def test_no_module_keeps_state() -> None:
    """API-08, invariant 10: whatever changes belongs to an object that somebody made."""
    ours = (file for file in sources() if not file.path.startswith("tck/"))
    assert [place for file in ours for place in state_at_the_top(file)] == []


def _swallows(handler: ast.ExceptHandler) -> bool:
    names = {node.id for node in ast.walk(handler.type or handler) if isinstance(node, ast.Name)}
    names |= {n.attr for n in ast.walk(handler.type or handler) if isinstance(n, ast.Attribute)}
    wide = handler.type is None or bool(names & EVERYTHING)
    return wide and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def swallowers(file: Source) -> list[int]:
    """Lines of handlers that take every exception, or a cancellation, and raise none."""
    handlers = (node for node in ast.walk(file.tree) if isinstance(node, ast.ExceptHandler))
    return [handler.lineno for handler in handlers if _swallows(handler)]


def test_cancellation_is_swallowed_at_the_edges_only() -> None:
    """API-07: in the kernel's process, who catches it raises again, but at the end of a task."""
    found = {
        file.path
        for file in sources()
        if any(place in file.path for place in IN_THE_KERNELS_PROCESS)
        and not any(file.path.endswith(place) for place in OF_THE_WORKER)
        and not file.path.startswith(("plugins/", "tck/"))
        and swallowers(file)
    }
    assert found == set(EDGES)


@pytest.mark.parametrize(
    ("text", "swallows", "keeps"),
    [
        ("def f():\n try: g()\n except: pass", 1, 0),
        ("def f():\n try: g()\n except BaseException: h(); raise", 0, 0),
        ("def f():\n try: g()\n except asyncio.CancelledError: pass", 1, 0),
        ("def f():\n try: g()\n except (OSError, KeyboardInterrupt): pass", 1, 0),
        ("def f():\n try: g()\n except ValueError: pass", 0, 0),
        ("SEEN = {}\ndef f(x):\n SEEN[x] = 1", 0, 1),
        ("SEEN = []\ndef f(x):\n SEEN.append(x)", 0, 1),
        ("SEEN = None\ndef f():\n global SEEN\n SEEN = 1", 0, 1),
        ("SEEN = []\ndef f(SEEN):\n SEEN.append(1)", 0, 0),
        ("SEEN = {}\ndef f(x):\n return SEEN[x]", 0, 0),
    ],
)
def test_both_gates_see_what_they_look_for(text: str, swallows: int, keeps: int) -> None:
    file = Source("x.py", "x", text, ast.parse(text))
    assert (len(swallowers(file)), len(state_at_the_top(file))) == (swallows, keeps)


@pytest.mark.parametrize("package", ["purra", "purra_bridge", "purra_sdk", "purra_hosts"])
def test_an_import_starts_nothing(package: str) -> None:
    """PLG-27, invariant 10: no thread, process, connection or descriptor, whatever is imported."""
    code = f"""
import json, os, pkgutil, sys, threading, importlib
import asyncio.subprocess, socket  # what they do at import is theirs
started = []
sys.addaudithook(lambda name, args: started.append(name) if name.startswith({WATCHED!r}) else None)
threading.Thread.start = lambda thread: started.append(repr(thread))
before = len(os.listdir("/proc/self/fd"))
package = importlib.import_module({package!r})
names = [found.name for found in pkgutil.walk_packages(package.__path__, {package + "."!r})]
for name in names:
    if name != "purra_hosts.bootstrap":  # a program: it is run, never imported
        importlib.import_module(name)
after = len(os.listdir("/proc/self/fd"))
print(json.dumps([started, after - before, threading.active_count(), len(names)]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    started, descriptors, threads, modules = json.loads(ran.stdout)
    assert (started, descriptors, threads) == ([], 0, 1)
    assert modules > 3
