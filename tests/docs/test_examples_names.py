"""TST-05, API-03: examples, and the Python on the pages, use public names only.

Found are imports, dotted names, private attributes, `importlib` and its like, and texts that name
one of our modules (an `entry`, a command of a manifest).
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from tests.architecture.public import PUBLIC, public_names
from tests.docs.pages import ROOT, pages

EXAMPLES: Final = ROOT / "docs" / "examples"
OURS: Final = {name.partition(".")[0] for name in PUBLIC} | {"purra_tck"}
SIDE_DOORS: Final = {"importlib", "runpy", "pkgutil", "ctypes", "gc"}
"""Modules by which one gets hold of anything."""
REFLECTION: Final = {"__import__", "eval", "exec", "getattr", "setattr", "vars", "globals"}

_MODULE: Final = re.compile(r"((?:purra|purra_(?:bridge|hosts|sdk|tck))(?:\.\w+)+)(?::\w+)?\Z")


def breaches(text: str) -> Iterator[str]:
    """What in the Python `text` goes past the public names, each as a line and a reason."""
    tree = ast.parse(text)
    documentation = {id(node) for node in _docstrings(tree)}
    for node in ast.walk(tree):
        for what in _of(node):
            yield f"line {node.lineno}: {what}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            for what in _named(node.value):
                yield f"line {node.lineno}: {what}"


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _module(alias.name)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield from _taken(node.module or "", alias.name)
    elif isinstance(node, ast.Attribute):
        yield from _attribute(node)
    elif isinstance(node, ast.Name) and node.id in REFLECTION:
        yield f"{node.id} may reach anything"


def _module(name: str) -> Iterator[str]:
    top = name.partition(".")[0]
    if top in SIDE_DOORS:
        yield f"{top} may reach anything"
    if top in OURS and name not in PUBLIC:
        yield f"{name} is not public"


def _taken(module: str, name: str) -> Iterator[str]:
    top = module.partition(".")[0]
    if top not in OURS:
        yield from _module(module)
    elif f"{module}.{name}" not in PUBLIC and name not in public_names().get(module, ()):
        yield f"{module}.{name} is not public"


def _attribute(node: ast.Attribute) -> Iterator[str]:
    parts = [node.attr]
    inner = node.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id in OURS:
        name = ".".join([inner.id, *reversed(parts)])
        if not _is_public(name):
            yield f"{name} is not public"
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    called = isinstance(node.value, ast.Call)  # super().__init__
    if node.attr.startswith("_") and not own and not (called and node.attr.endswith("__")):
        yield f".{node.attr} is private"


def _is_public(name: str) -> bool:
    """Of a dotted name: a public module, a folder of such, or something that one offers."""
    if any(f"{module}.".startswith(f"{name}.") for module in PUBLIC):
        return True
    holder, _, offered = name.rpartition(".")
    while holder:
        if holder in PUBLIC:
            return offered in public_names()[holder]
        holder, _, offered = holder.rpartition(".")
    return False


def _named(text: object) -> Iterator[str]:
    """Of a text that names one of our modules, or something in it; `purra.toml` does not."""
    found = _MODULE.match(text) if isinstance(text, str) else None
    if found is None or _is_public(found[1]):
        return
    if find_spec(".".join(found[1].split(".")[:2])):
        yield f"{found[1]} is not public"


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            yield from (one.value for one in body if isinstance(one, ast.Expr))


def in_table(value: Any) -> Iterator[str]:
    """What in a manifest names one of our modules that is not public."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from in_table(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from in_table(inner)
    else:
        yield from _named(value)


def _files(suffix: str) -> list[Path]:
    return sorted(EXAMPLES.rglob(f"*{suffix}"))


@pytest.mark.parametrize("path", _files(".py"), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_uses_public_names_only(path: Path) -> None:
    assert list(breaches(path.read_text())) == []


@pytest.mark.parametrize("path", _files(".toml"), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_manifest_of_an_example_names_no_private_module(path: Path) -> None:
    assert list(in_table(tomllib.loads(path.read_text()))) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_python_of_a_page_uses_public_names_only(page: Any) -> None:
    found = {s.place: list(breaches(s.text)) for s in page.snippets() if s.language == "python"}
    assert not any(found.values()), found


@pytest.mark.parametrize(
    "text",
    [
        "import purra.kernel",
        "import purra.runs.reader as r",
        "import purra_hosts",
        "from purra import runs",
        "from purra import *",
        "from purra.runs.result import Result",
        "from purra_hosts.app.assembly import open_application",
        "from purra.contracts.model import annotations",
        "import purra\npurra.kernel.Kernel",
        "import purra\npurra.limits.MAX_ROUNDS",
        "kernel._shells",
        "async def f():\n    await kernel.runs._store.get([])",
        "self.kernel._ports",
        "kernel.__dict__['_ports']",
        "import importlib",
        "from importlib import import_module",
        "getattr(kernel, '_ports')",
        "__import__('purra.kernel')",
        "command = ['python', '-m', 'purra_hosts.app.main']",
        "entry = 'purra_tck.puppets:plugin'",
    ],
)
def test_a_private_name_is_found(text: str) -> None:
    assert list(breaches(text))


@pytest.mark.parametrize(
    "text",
    [
        "import purra\npurra.Kernel, purra.open_kernel",
        "import purra.values\npurra.values.thaw(1)",
        "from purra.values import thaw",
        "from purra.contracts import model",
        "from purra_sdk.testing import connect",
        '"""See `purra.runs.reader`."""\nself._mine',
        "super().__init__()",
        "import purra.contracts.model\npurra.contracts.model.Content('a').text",
        "purra_run = 1\nopen('purra.toml')",
    ],
)
def test_a_public_name_is_not(text: str) -> None:
    assert list(breaches(text)) == []


def test_a_private_module_in_a_manifest_is_found() -> None:
    assert list(in_table({"host": {"command": ["python", "purra_hosts.bootstrap"]}}))
    assert not list(in_table({"host": {"entry": "duty:plugin"}, "name": "purra"}))
