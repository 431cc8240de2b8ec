"""A new plugin as files: one folder of templates per kind of adapter, and one that all share.

Templates are data (`templates/KIND/NAME.txt`), so that they are no modules of ours and need not run
here; that they do run is a test's affair, which makes a package of each kind and uses it. In a
template `$name` stands for a value of `_Names`, and `$$` for a dollar.
"""

from __future__ import annotations

import importlib.resources
import os
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from purra.errors import PurraError
from purra.manifest.names import RefusedError, parse_id

__all__ = ["KINDS", "files_of", "write_package"]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a template cannot say by itself. `summary`: of the plugin, in one line. `prompt`: what
    `try.toml` is asked. `needs`: plugins that `try.toml` names besides.
    """

    summary: str
    prompt: str
    needs: str
    extra: tuple[str, ...] = ()


KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        "tool": _Kind("Counts words", "How many words?", "`purra-plugin-scripted`"),
        "model": _Kind("Repeats what it hears", "Good morning!", "nothing else"),
        "context": _Kind(
            "Notes from a text file",
            "Is the shop open on Monday?",
            "`purra-plugin-scripted`",
            ("notes.txt",),
        ),
        "store": _Kind(
            "Runs in one SQLite file",
            "Remember this.",
            "`purra-plugin-scripted`",
            ("$package/file.py",),
        ),
        "policy": _Kind(
            "Says which calls may happen",
            "What is in the folder?",
            "`purra-plugin-files` and `purra-plugin-scripted`",
        ),
    }
)
"""The kinds of adapters that a package can be made for."""

_SHARED: Final = (
    "pyproject.toml",
    "README.md",
    ".gitignore",
    "$package/__init__.py",
    "$package/py.typed",
)
_OWN: Final = (
    "$package/plugin.py",
    "$package/purra-plugin.toml",
    "tests/test_plugin.py",
    "try.toml",
    "tck.toml",
)
_TEMPLATES: Final = {
    "pyproject.toml": "shared/pyproject.toml",
    "README.md": "shared/readme.md",
    ".gitignore": "shared/gitignore",
    "$package/__init__.py": "shared/package.py",
    "$package/purra-plugin.toml": "manifest.toml",
    "tests/test_plugin.py": "test.py",
}
"""Files whose template has another name than they have."""
_EMPTY: Final = frozenset({"$package/py.typed"})


def files_of(name: str, kind: str) -> dict[str, str]:
    """The files of a new plugin `name` (its id) by path in its folder.

    Raises `PurraError(invalid_argument)` for a name that is no plugin id.
    """
    try:
        parse_id(name)
    except RefusedError as error:
        raise PurraError(
            "invalid_argument", error.reason, where="plugins new", hint=error.hint
        ) from None
    made = KINDS[kind]
    package = "purra_plugin_" + name.replace("-", "_")
    names = {"id": name, "package": package, "summary": made.summary, "prompt": made.prompt}
    names |= {
        "needs": made.needs,
        "about": f"{made.summary}, for the purra kernel: a starting point of kind `{kind}`.",
        "use": _filled(f"{kind}/use.toml", names).strip(),
        "more": _filled(f"{kind}/more.md", names).rstrip("\n"),
    }
    files = {}
    for target in (*_SHARED, *_OWN, *made.extra):
        template = _TEMPLATES.get(target, target.removeprefix("$package/"))
        place = template if template.startswith("shared/") else f"{kind}/{template}"
        text = "" if target in _EMPTY else _filled(place, names)
        files[string.Template(target).substitute(names)] = text.rstrip("\n") + "\n" if text else ""
    return files


def write_package(name: str, kind: str, into: Path) -> Path:
    """Writes a new plugin into a folder of its name below `into`; that folder.

    All of it or nothing. Raises `PurraError(invalid_argument)`: the name, a folder that is there
    already, or one that cannot be written.
    """
    files = files_of(name, kind)
    folder = into / name
    if os.path.lexists(folder):
        raise PurraError(
            "invalid_argument",
            f"{folder} is there already",
            where="plugins new",
            hint="take another name, or another folder with --into; nothing is overwritten",
        )
    fresh = into / f".{name}.{os.getpid()}"
    try:
        for path, text in files.items():
            target = fresh / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        fresh.rename(folder)
    except OSError as error:
        _remove(fresh)
        raise PurraError(
            "invalid_argument",
            f"{folder} cannot be written: {error.strerror}",
            where="plugins new",
            hint="name another folder with --into",
        ) from None
    return folder


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if folder.is_dir():
        folder.rmdir()


def _filled(place: str, names: Mapping[str, str]) -> str:
    """The template, with its names replaced; "" if there is none."""
    templates = importlib.resources.files(__package__) / "templates"
    template = templates.joinpath(f"{place}.txt")
    if not template.is_file():
        return ""
    return string.Template(template.read_text(encoding="utf-8")).substitute(names)
