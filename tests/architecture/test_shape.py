"""The tail gates: no file, function, signature or class outgrows what one person can hold."""

from __future__ import annotations

import ast
import collections
import copy
from collections.abc import Iterable

from tests.architecture.gates import hold
from tests.architecture.sources import Function, functions, sources, suite

FILE_LINES = 600
FUNCTION_LINES = 70
PARAMETERS = 6
NESTING = 4
INHERITANCE = 3
DUPLICATE_LINES = 6
RELAYED_NAMES = 6
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}

ALL = (*sources(), *suite())


def test_files_stay_short() -> None:
    found = {file.path: len(file.text.splitlines()) for file in ALL}
    hold("file_lines", {path: f"{n} lines" for path, n in found.items() if n > FILE_LINES})


def test_functions_stay_short() -> None:
    hold(
        "function_lines",
        {f.place: f"{f.lines} lines" for f in functions(*ALL) if f.lines > FUNCTION_LINES},
    )


def _parameters(function: Function) -> int:
    given = function.node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if names and names[0] in ("self", "cls"):
        names = names[1:]
    return len(names) + (given.vararg is not None) + (given.kwarg is not None)


def _is_command(function: Function) -> bool:
    """Whether each parameter is an option of a command line, which nobody calls by hand."""
    called = (n.func for n in function.node.decorator_list if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr in ("command", "callback") for f in called)


def test_signatures_stay_narrow() -> None:
    hold(
        "parameters",
        {
            function.place: f"{count} parameters"
            for function in functions(*ALL)
            if (count := _parameters(function)) > PARAMETERS and not _is_command(function)
        },
    )


_BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


def _depth(statements: Iterable[ast.stmt]) -> int:
    return max((_depth_of(statement) for statement in statements), default=0)


def _depth_of(statement: ast.stmt) -> int:
    if not isinstance(statement, _BLOCKS):
        return 0
    inner = 0
    for name, value in ast.iter_fields(statement):
        if not isinstance(value, list):
            continue
        if name in ("handlers", "cases"):
            inner = max([inner, *(_depth(part.body) for part in value)])
        elif name == "orelse" and len(value) == 1 and isinstance(value[0], ast.If):
            inner = max(inner, _depth_of(value[0]) - 1)  # elif stands on the level of its if
        elif value and isinstance(value[0], ast.stmt):
            inner = max(inner, _depth(value))
    return inner + 1


def test_blocks_are_not_nested_deeply() -> None:
    hold(
        "nesting",
        {
            function.place: f"{depth} levels"
            for function in functions(*ALL)
            if (depth := _depth(function.body)) > NESTING
        },
    )


def test_classes_are_not_stacked() -> None:
    """Counted in classes of ours; by simple name, which errs on the strict side."""
    bases: dict[str, set[str]] = collections.defaultdict(set)
    places: dict[str, str] = {}
    for file in ALL:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {_last_name(base) for base in node.bases}
                places[node.name] = f"{file.path}::{node.name}"

    def depth(name: str, seen: tuple[str, ...] = ()) -> int:
        if name not in bases or name in seen:
            return 0
        return 1 + max((depth(base, (*seen, name)) for base in bases[name]), default=0)

    found = {places[n]: f"{depth(n)} classes deep" for n in places if depth(n) > INHERITANCE}
    found |= {place: "a mixin" for name, place in places.items() if "mixin" in name.lower()}
    hold("inheritance", found)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


class _Normal(ast.NodeTransformer):
    """Renames every variable to its order of appearance and drops annotations."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def _rename(self, name: str) -> str:
        return self._names.setdefault(name, f"n{len(self._names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._rename(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._rename(node.arg), None)


def _normal_text(function: Function) -> str:
    node = copy.deepcopy(function.node)
    node.name, node.decorator_list, node.returns = "f", [], None
    node.body = node.body[len(node.body) - len(function.body) :]
    return ast.dump(_Normal().visit(node))


def test_no_function_is_written_twice() -> None:
    seen: dict[str, str] = {}
    found: dict[str, str] = {}
    for function in functions(*sources()):
        first, last = function.body[0] if function.body else None, function.node.end_lineno
        if first is None or (last or 0) - first.lineno + 1 < DUPLICATE_LINES:
            continue
        twin = seen.setdefault(_normal_text(function), function.place)
        if twin != function.place:
            found[function.place] = f"the same as {twin}"
    hold("duplicates", found)


def test_names_are_not_relayed() -> None:
    found: dict[str, str] = {}
    for file in ALL:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call):
                relayed = [
                    keyword.arg
                    for keyword in node.keywords
                    if isinstance(keyword.value, ast.Name) and keyword.value.id == keyword.arg
                ]
                if len(relayed) >= RELAYED_NAMES:
                    found[f"{file.path}:{node.lineno}"] = f"{len(relayed)} names handed on"
    hold("relay", found)


def test_modules_have_names_that_say_something() -> None:
    found = {
        file.path: "a vague name"
        for file in ALL
        for part in file.module.split(".")
        if part.strip("_") in VAGUE_NAMES
    }
    hold("module_names", found)
