"""The project's Python files, parsed once, for the tests of this folder."""

from __future__ import annotations

import ast
import functools
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ROOT",
    "Function",
    "Source",
    "functions",
    "imports",
    "named_in_text",
    "sources",
    "suite",
]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "purra",
    "hosts/purra_hosts",
    "bridge/purra_bridge",
    "bridge/purra_sdk",
    "tck/purra_tck",
)


@dataclass(frozen=True)
class Source:
    """One file: its path from the root, its dotted module name, its text and syntax tree."""

    path: str
    module: str
    text: str
    tree: ast.Module

    @functools.cached_property
    def comments(self) -> dict[int, str]:
        """Comments by line, without the `#`."""
        with tokenize.open(ROOT / self.path) as file:
            tokens = list(tokenize.generate_tokens(file.readline))
        return {
            token.start[0]: token.string.lstrip("# ")
            for token in tokens
            if token.type == tokenize.COMMENT
        }


@dataclass(frozen=True)
class Function:
    """A function or method, with its qualified name."""

    source: Source
    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def place(self) -> str:
        """How exceptions name it."""
        return f"{self.source.path}::{self.name}"

    @property
    def body(self) -> list[ast.stmt]:
        """Its statements without the docstring."""
        return self.node.body[1:] if ast.get_docstring(self.node) is not None else self.node.body

    @property
    def lines(self) -> int:
        """Lines from `def` to the end, without the docstring."""
        end = self.node.end_lineno or self.node.lineno
        docstring = 0
        if ast.get_docstring(self.node) is not None:
            first = self.node.body[0]
            docstring = (first.end_lineno or first.lineno) - first.lineno + 1
        return end - self.node.lineno + 1 - docstring


@functools.cache
def sources() -> tuple[Source, ...]:
    """Every file of the packages and plugins."""
    folders = [ROOT / package for package in PACKAGES]
    folders += sorted((ROOT / "plugins").glob("*/purra_plugin_*"))
    return tuple(_read(path, folder) for folder in folders for path in sorted(folder.rglob("*.py")))


@functools.cache
def suite() -> tuple[Source, ...]:
    """Every file of the tests."""
    folder = ROOT / "tests"
    return tuple(_read(path, folder) for path in sorted(folder.rglob("*.py")))


def _read(path: Path, package: Path) -> Source:
    parts = path.relative_to(package.parent).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text()
    return Source(str(path.relative_to(ROOT)), module, text, ast.parse(text))


def functions(*files: Source) -> Iterator[Function]:
    """All functions of `files`, methods and inner ones included."""
    for file in files:
        yield from _inside(file, file.tree, "")


def _inside(file: Source, node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(file, prefix + child.name, child)
            yield from _inside(file, child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _inside(file, child, f"{prefix}{child.name}.")
        else:
            yield from _inside(file, child, prefix)


def imports(file: Source) -> Iterator[str]:
    """Modules that `file` imports anywhere in it, and `module.name` for names taken from one."""
    package = file.module if file.path.endswith("__init__.py") else file.module.rpartition(".")[0]
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute(package, node)
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def _absolute(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def named_in_text(file: Source) -> Iterator[str]:
    """What text constants may name as a module: lazy tables, `module:attribute`, `-m`."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]
