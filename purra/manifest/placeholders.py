"""Placeholders in a host manifest, and what its relative paths are relative to.

`{params.NAME}` is a parameter, `{state}` the state folder; `{{name}}` is the text `{name}`. Other
braces stand for themselves, so a value may hold JSON or a format string; but a lone `{word}` or
`{word.name}` that is neither is refused, because it is a slip far more often than it is text.

A string that is nothing but one placeholder takes the parameter's value with its type. A path is
relative to the manifest's folder, unless it begins with a parameter that was given from outside:
that one is relative to the current folder, as whoever typed it expects (tables, paths).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from purra.errors import PurraError
from purra.manifest.names import RefusedError, suggest

__all__ = ["Parameter", "Placeholders", "override", "state_folder"]

Parameter = str | int | float | bool

_TOKEN: Final = re.compile(r"\{\{([^{}]*)\}\}|\{([a-z]+(?:\.[A-Za-z0-9_-]*)?)\}", re.ASCII)
_TRUTH: Final = {"true": True, "false": False}

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Placeholders:
    """What placeholders stand for in one load of one manifest.

    `params`: every parameter with its value. `outside`: names of those given by the caller.
    `folder`: of the manifest. `current`: the caller's current folder. `state`: the state folder.
    """

    params: Mapping[str, Parameter]
    outside: frozenset[str]
    folder: Path
    current: Path
    state: Path

    def expand(self, template: Any) -> Expanded:
        """`template` with every string expanded. Raises `RefusedError` with the place inside."""
        roots: dict[Place, Path] = {}
        return Expanded(self._expand(template, (), roots), self.folder, roots)

    def _expand(self, template: Any, place: Place, roots: dict[Place, Path]) -> Any:
        if isinstance(template, str):
            value, root = self._text(template, place)
            if root is not None:
                roots[place] = root
            return value
        if isinstance(template, Mapping):
            return {key: self._expand(item, (*place, key), roots) for key, item in template.items()}
        if isinstance(template, (list, tuple)):
            return [
                self._expand(item, (*place, index), roots) for index, item in enumerate(template)
            ]
        return template

    def _text(self, template: str, place: Place) -> tuple[Any, Path | None]:
        root: Path | None = None
        if (match := _TOKEN.match(template)) and match[2]:
            name = match[2].removeprefix("params.")
            root = self.current if name in self.outside and name != match[2] else None
            if match.end() == len(template):
                return self._value(match[2], place), root

        def replaced(found: re.Match[str]) -> str:
            if found[2] is None:
                return "{" + found[1] + "}"
            value = self._value(found[2], place)
            return str(value).lower() if isinstance(value, bool) else str(value)

        return _TOKEN.sub(replaced, template), root

    def _value(self, token: str, place: Place) -> Parameter:
        if token == "state":
            return str(self.state)
        section, _, name = token.partition(".")
        if section != "params":
            raise RefusedError(
                f"{{{token}}} is not a placeholder",
                "known: {params.NAME}, {state}; write {{" + token + "}} for the text itself",
                place,
            )
        if name not in self.params:
            raise RefusedError(f"there is no parameter {name!r}", suggest(name, self.params), place)
        return self.params[name]


@dataclass(frozen=True, slots=True)
class Expanded:
    """An expanded value, and what each relative path in it is relative to."""

    value: Any
    _folder: Path
    _roots: Mapping[Place, Path] = field(default_factory=dict)

    def locate(self, path: str, place: Place) -> str:
        """The absolute form, links resolved, of the path that stands at `place` of the value.

        Links are resolved because grants are enforced on what a path leads to, and so that
        `docs/..` means the same here as to the operating system. Raises `RefusedError`.
        """
        if not path or "\0" in path:
            raise RefusedError("is not a path: empty, or with a NUL character", place=place)
        root = self._roots.get(place, self._folder)
        return os.path.realpath(root / os.path.expanduser(path))


def override(
    declared: Mapping[str, Parameter], given: Mapping[str, Parameter]
) -> dict[str, Parameter]:
    """`declared` with the values of `given`; text is read as the declared type.

    Raises `PurraError(invalid_argument)`: unknown parameter, or text that is not of that type.
    """
    merged = dict(declared)
    for name, value in given.items():
        if name not in declared:
            raise PurraError(
                "invalid_argument",
                f"the manifest has no parameter {name!r}",
                where=f"param {name}",
                hint=suggest(name, declared, what="parameters"),
            )
        merged[name] = _as_declared(name, declared[name], value)
    return merged


def _as_declared(name: str, declared: Parameter, value: Parameter) -> Parameter:
    kind = type(declared)
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(value, str):
        try:
            return _TRUTH[value] if kind is bool else kind(value)
        except (ValueError, KeyError):
            pass
    raise PurraError(
        "invalid_argument",
        f"{value!r} is not of the declared type {kind.__name__}",
        where=f"param {name}",
    )


def state_folder(name: str, given: Path | None, environment: Mapping[str, str]) -> Path:
    """Where the application `name` keeps its state: `given`, else by XDG (tables, paths)."""
    if given is not None:
        return Path(os.path.abspath(given))
    configured = environment.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative value is to be ignored.
    home = Path(configured) if os.path.isabs(configured) else Path.home() / ".local" / "state"
    return home / "purra" / name
