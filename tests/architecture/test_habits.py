"""Habits that a reader relies on: reasoned handlers, documented names, units, no leftovers."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator

from purra_tck import saboteurs, suites
from tests.architecture.gates import hold
from tests.architecture.sources import ROOT, Source, imports, named_in_text, sources, suite

REASON_CHARS = 10
"""Shortest comment that can be a reason."""
MEASURES = {"timeout", "deadline", "delay", "interval", "ttl", "grace", "patience", "period"}
"""Last words of names that hold a time."""
SIZES = {"size", "length", "memory"}
"""Last words of constants that hold a size; a parameter may be a count of what it stands beside."""


def test_broad_handlers_give_a_reason() -> None:
    found: dict[str, str] = {}
    for file in (*sources(), *suite()):
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                comment = re.sub(r"(noqa|type: ignore|pragma)\S*(: \w+)?", "", _comment(file, node))
                if len(comment.strip(" -,[]")) < REASON_CHARS:
                    found[f"{file.path}:{node.lineno}"] = "a broad except without a reason"
    hold("broad_except", found)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def _comment(file: Source, node: ast.ExceptHandler) -> str:
    return file.comments.get(node.lineno, "")


def _declared(file: Source) -> list[str] | None:
    """The names of `__all__`, None if there is none."""
    for node in file.tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            parts = node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else []
            return [str(part.value) for part in parts if isinstance(part, ast.Constant)]
    return None


def _bound(file: Source) -> set[str]:
    """Names that the module's top level binds, also under `if` and `try`."""
    names: set[str] = set()
    pending: list[ast.AST] = list(file.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            pending.extend(ast.iter_child_nodes(node))
    return names


def _is_public(file: Source) -> bool:
    return not any(part.startswith("_") for part in file.module.split("."))


def test_public_modules_say_what_they_offer() -> None:
    found: dict[str, str] = {}
    for file in filter(_is_public, sources()):
        if file.path.endswith("__main__.py") or not file.tree.body[1:]:
            continue  # a docstring alone offers nothing
        names = _declared(file)
        if names is None:
            found[file.path] = "no __all__"
            continue
        missing = set(names) - _bound(file)
        lazy = "__getattr__" in _bound(file)
        if missing and not lazy:
            found[file.path] = f"__all__ names what is not there: {', '.join(sorted(missing))}"
        elif len(set(names)) != len(names):
            found[file.path] = "__all__ names something twice"
    hold("exports", found)


def test_what_is_offered_is_documented() -> None:
    found: dict[str, str] = {}
    for file in sources():
        if ast.get_docstring(file.tree) is None and file.text.strip():
            found[file.path] = "no module docstring"
        for node in file.tree.body:
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                and node.name in (_declared(file) or ())
                and ast.get_docstring(node) is None
            ):
                found[f"{file.path}::{node.name}"] = "no docstring"
    hold("docstrings", found)


def test_quantities_have_a_unit() -> None:
    """`_s`, `_ms`, `_bytes` and the like stand last; counts are bare."""
    found = {
        f"{file.path}::{name}": "a quantity without a unit"
        for file in sources()
        for name, annotation in _quantities(file)
        if annotation in ("int", "float") and _lacks_unit(name)
    }
    hold("units", found)


def _lacks_unit(name: str) -> bool:
    last = name.lower().rsplit("_", 1)[-1]
    return last in MEASURES or (name.isupper() and last in SIZES)


def _quantities(file: Source) -> Iterator[tuple[str, str]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            plain = ast.unparse(node.annotation).removesuffix(" | None")
            yield node.target.id, _of_final(plain, node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id.isupper():
                yield node.targets[0].id, _of_final("Final", node.value)
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, ast.unparse(node.annotation).removesuffix(" | None")


def _of_final(annotation: str, value: ast.expr | None) -> str:
    if annotation != "Final":
        return annotation
    return type(value.value).__name__ if isinstance(value, ast.Constant) else ""


def test_every_file_is_used() -> None:
    """Imported by another file of the project, started by an entry point, or run by path."""
    imported: set[str] = set()
    for file in sources():
        imported |= {*imports(file), *named_in_text(file)}
    started = set(re.findall(r'"([\w.]+):\w+"', _entry_points()))
    # Run by path; for plugin authors; run by path, as the plugin.
    others = {"purra_hosts.bootstrap", "purra_sdk.testing", "purra_tck.puppets.puppet"}
    others |= {
        f"{package.__name__}.{name}"
        for package in (saboteurs, suites)
        for names in package.MODULES.values()
        for name in names
    }
    found = {
        file.path: "nobody imports it"
        for file in sources()
        if not file.path.endswith(("__init__.py", "__main__.py"))
        and file.module not in imported | started | others
    }
    hold("unused_files", found)


def _entry_points() -> str:
    files = [ROOT / "pyproject.toml", *sorted((ROOT / "plugins").glob("*/pyproject.toml"))]
    files += sorted((ROOT / "plugins").glob("*/*/purra-plugin.toml"))
    return "\n".join(file.read_text() for file in files)


LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|/work/|breakpoint\(\)|pdb\.set_trace")


def test_no_leftovers() -> None:
    """Nothing unfinished is marked for later, and no path of one machine is left in a file."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    found = []
    for name in filter(None, listed):
        path = ROOT / name
        if name == "tests/architecture/test_habits.py" or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if LEFTOVERS.search(line):
                found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)
