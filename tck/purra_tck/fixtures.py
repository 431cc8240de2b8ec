"""`tck.toml`: what the author of a plugin gives the kit, so that every rule can be asked.

A rule that cannot be asked without a fixture is `untestable`, which is red, and says what to add:
a rule that is skipped in silence is how a kit goes green by itself. Nothing here needs Python of
the author's for the common case; where code is needed it runs in a process of its own.

    [subject]
    manifest = "acme/purra-plugin.toml"     # or plugin = an installed id, or wheel = a file

    [config]
    root = "{scratch}/data"                 # {scratch}: a new folder for every check

    [files]
    "data/a.txt" = "written into {scratch} before the plugin starts"

    [tool]
    safe = [{ tool = "acme.read", args = { path = "a.txt" } }]
    invalid = [{ tool = "acme.read", args = { path = "" } }]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field, model_validator

from purra.errors import PurraError
from purra.manifest.names import RefusedError
from purra.manifest.source import Strict, parse_table

__all__ = [
    "FILE_NAME",
    "SCRATCH",
    "UPSTREAM",
    "ContextFixtures",
    "Example",
    "Fixtures",
    "Hand",
    "ModelFixtures",
    "SubjectTable",
    "ToolFixtures",
    "filled",
    "find_fixtures",
    "load_fixtures",
]

FILE_NAME: Final = "tck.toml"
SCRATCH: Final = "{scratch}"
"""Stands for a folder of the kit's that is new for each check."""
UPSTREAM: Final = "{upstream}"
"""Stands for the address (http://host:port) of the provider that the kit plays."""
MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Hand:
    """Something that the kit has done for it outside the plugin: exactly one of these is set.

    `file`, `folder`: a path the kit works on itself. `call`: `module:function`, called in a process
    of its own with one value. `command`: a program that reads the value as JSON.
    """

    file: str = ""
    folder: str = ""
    call: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """One call of a tool."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolFixtures:
    """`safe`: may be done any number of times. `invalid`: the tool refuses it. `generate`: names of
    writing tools that may also be called with arguments that the kit makes up. `probe`: shows the
    state that the tools work on; equal answers = unchanged.
    """

    safe: tuple[Example, ...] = ()
    invalid: tuple[Example, ...] = ()
    generate: tuple[str, ...] = ()
    probe: Hand | None = None


@dataclass(frozen=True, slots=True)
class ContextFixtures:
    """`seed`: puts the kit's texts where the provider finds them. `scope`: `session` if texts of
    one session are not for another. `breaks`: makes the source unreadable.
    """

    seed: Hand | None = None
    scope: str = ""
    breaks: Hand | None = None


@dataclass(frozen=True, slots=True)
class ModelFixtures:
    """`upstream`: `module:function` that turns a scenario into the bytes of the provider."""

    upstream: str = ""


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Fixtures:
    """A whole `tck.toml`. `path` None = there is none. Strings still have their placeholders."""

    path: Path | None = None
    manifest: str = ""
    plugin: str = ""
    wheel: str = ""
    find_links: str = ""
    config: Mapping[str, Any] = field(default_factory=_nothing)
    files: Mapping[str, str] = field(default_factory=_nothing)
    tool: ToolFixtures = ToolFixtures()
    context: ContextFixtures = ContextFixtures()
    model: ModelFixtures = ModelFixtures()

    @property
    def folder(self) -> Path:
        """What relative paths and modules of the fixtures are relative to."""
        return Path.cwd() if self.path is None else self.path.parent


# --- the file -----------------------------------------------------------------------------------


class SubjectTable(Strict):
    """What is judged: one of the three."""

    manifest: str = Field(default="", description="Path of purra-plugin.toml")
    plugin: str = Field(default="", description="Id of an installed plugin")
    wheel: str = Field(default="", description="A built package")
    find_links: str = Field(default="", description="Folder with the wheels that it depends on")

    @model_validator(mode="after")
    def _one(self) -> SubjectTable:
        if sum(map(bool, (self.manifest, self.plugin, self.wheel))) > 1:
            raise RefusedError("must have only one of 'manifest', 'plugin' and 'wheel'")
        return self


class _ExampleTable(Strict):
    tool: str = Field(min_length=1)
    args: dict[str, Any] = Field(default={})


class _ToolTable(Strict):
    safe: list[_ExampleTable] = Field(default=[])
    invalid: list[_ExampleTable] = Field(default=[])
    generate: list[str] = Field(default=[])
    probe: Any = None


class _ContextTable(Strict):
    seed: Any = None
    scope: str = Field(default="", pattern="^(|session)$")
    breaks: Any = None


class _ModelTable(Strict):
    upstream: str = ""


class _File(Strict):
    subject: SubjectTable = SubjectTable()
    config: dict[str, Any] = Field(default={})
    files: dict[str, str] = Field(default={})
    tool: _ToolTable = _ToolTable()
    context: _ContextTable = _ContextTable()
    model: _ModelTable = _ModelTable()
    store: dict[str, Any] = Field(default={}, description="Read by `purra tck store`")


def load_fixtures(path: Path) -> Fixtures:
    """The fixtures in the file at `path`.

    Raises `PurraError(invalid_manifest)` with file, key and reason.
    """
    try:
        with path.open("rb") as file:
            data = tomllib.loads(file.read(MAX_BYTES).decode())
    except (OSError, ValueError) as error:
        raise PurraError("invalid_manifest", str(error), where=str(path)) from None
    table = parse_table(path, (), data, _File)
    subject, tool, context = table.subject, table.tool, table.context
    return Fixtures(
        path=path.resolve(),
        manifest=subject.manifest,
        plugin=subject.plugin,
        wheel=subject.wheel,
        find_links=subject.find_links,
        config=table.config,
        files=table.files,
        tool=ToolFixtures(
            safe=tuple(Example(each.tool, each.args) for each in tool.safe),
            invalid=tuple(Example(each.tool, each.args) for each in tool.invalid),
            generate=tuple(tool.generate),
            probe=_hand(path, "tool.probe", tool.probe),
        ),
        context=ContextFixtures(
            seed=_hand(path, "context.seed", context.seed),
            scope=context.scope,
            breaks=_hand(path, "context.breaks", context.breaks),
        ),
        model=ModelFixtures(table.model.upstream),
    )


def _hand(path: Path, place: str, told: Any) -> Hand | None:
    if told is None:
        return None
    if isinstance(told, str):
        told = {"call": told}
    if isinstance(told, list) and told and all(isinstance(part, str) for part in told):
        return Hand(command=tuple(told))
    if isinstance(told, dict) and len(told) == 1:
        ((kind, text),) = told.items()
        known = isinstance(text, str) and text and (kind != "call" or ":" in text)
        if known and kind in ("file", "folder", "call"):
            words = dict.fromkeys(("file", "folder", "call"), "") | {kind: text}
            return Hand(words["file"], words["folder"], words["call"])
    raise PurraError(
        "invalid_manifest",
        "says nothing that the kit can do",
        where=f"{path}: {place}",
        hint='"module:function", a list of arguments, { file = "…" } or { folder = "…" }',
    )


def find_fixtures(manifest: Path) -> Fixtures:
    """The `tck.toml` beside a manifest, or in the project around its package; without one, none.

    Raises `PurraError(invalid_manifest)`.
    """
    folder = manifest.parent
    places = [folder]
    for above in (folder.parent, folder.parent.parent):
        if (above / "pyproject.toml").is_file():
            places.append(above)
            break
    for place in places:
        if (place / FILE_NAME).is_file():
            return load_fixtures(place / FILE_NAME)
    return Fixtures()


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """`value` with each placeholder in its texts replaced."""
    if isinstance(value, str):
        for name, text in places.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, Mapping):
        return {key: filled(item, places) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled(item, places) for item in value]
    return value
