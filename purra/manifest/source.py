"""Reading a manifest file as data: bounded, hashed, and refused with the place that is wrong.

This is the edge for untrusted text. Every manifest of every installed plugin is read at start, so
reading must stay cheap whatever is in the file (MAN-008):

- size is bounded before parsing, and the digest is taken over the very bytes that were parsed, not
  over a second read of the file (MAN-007);
- the standard TOML parser is quadratic in the number of parts of one dotted key (8,000 parts cost
  0.7 s, 60,000 gigabytes), so such keys are refused by a linear scan first. Rejected: a parser of
  our own, for one flaw;
- nesting that overflows its recursion is an error of the file like any other;
- only regular files are read: a named pipe would stop discovery for ever.

Any problem becomes one `PurraError(invalid_manifest)` that names file, key path and reason. All
problems that the schema found are in `detail["problems"]`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from purra.errors import PurraError
from purra.manifest.names import RefusedError, nearest, suggest
from purra.values import freeze, thaw

__all__ = [
    "MAX_MANIFEST_BYTES",
    "Source",
    "Strict",
    "claimed_id",
    "key_path",
    "parse_table",
    "read_source",
    "refusal",
]

MAX_MANIFEST_BYTES: Final = 1024 * 1024
"""Largest manifest file: one frame of the wire, some hundred tools with their schemas."""
MAX_KEY_PARTS: Final = 64
"""Parts of one dotted key, as deep as values may nest."""
PLACE_CHARS: Final = 120
"""Longest key path in an error; a value that nests too deeply has a path as deep."""
MAX_PROBLEMS: Final = 20
"""Problems listed in `detail`; a file with more is not nearly right."""

VALUES: Final = "allowed: text, finite numbers, true and false, lists and tables, 64 levels of them"
"""What a manifest may hold (strict value model)."""
CLAIMED_ID_CHARS: Final = 64
"""Longest id shown of a manifest that could not be read."""
_EXTENSION: Final = "x-"
_KEY_PART: Final = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY: Final = re.compile(
    rf"(?<![\w-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_KEY_PARTS}}}"
)

_Model = TypeVar("_Model", bound=BaseModel)
Place = Sequence[str | int]


class Strict(BaseModel):
    """A table of a manifest: no unknown key, no coercion."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed file. `sha256`: 64 hex digits over its bytes; `data`: strict frozen values.

    `extensions`: the tables whose names begin with `x-`; ours to carry, not to understand.
    """

    path: Path
    sha256: str
    data: Mapping[str, Any]
    extensions: Mapping[str, Any]

    def refuse(self, place: Place, reason: str, hint: str = "") -> PurraError:
        """The error for one wrong value, to be raised by the caller."""
        return refusal(self.path, place, reason, hint)

    def parse(self, model: type[_Model]) -> _Model:
        """The file as `model`. Raises `PurraError(invalid_manifest)`."""
        return parse_table(self.path, (), self.data, model)


@dataclass(frozen=True, slots=True)
class _Problem:
    place: tuple[str | int, ...]
    reason: str
    hint: str


def refusal(path: Path, place: Place, reason: str, hint: str = "") -> PurraError:
    """`PurraError(invalid_manifest)` for one wrong value of the file at `path`."""
    return _refusals(path, (), [_Problem(tuple(place), reason, hint)])


def key_path(place: Place) -> str:
    """A place in a file as a person writes it: `provides[0].input`."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + part
    return text if len(text) <= PLACE_CHARS else text[: PLACE_CHARS - 3] + "..."


def read_source(path: Path, schema: str) -> Source:
    """Reads the manifest at `path`, whose first claim must be `schema = "<schema>"`.

    Raises `PurraError(invalid_manifest)`: not readable, not a regular file, too large, not UTF-8,
    not TOML, a value outside the strict value model, or another schema (MAN-001).
    """
    path = Path(os.path.abspath(path))
    content = _read(path)
    data = _parse(path, content)
    claimed = data.pop("schema", None)
    if claimed != schema:
        raise refusal(path, ["schema"], *_other_schema(claimed, schema))
    extensions = {key: data.pop(key) for key in list(data) if key.startswith(_EXTENSION)}
    for key, value in extensions.items():
        if not isinstance(value, dict):
            raise refusal(path, [key], "must be a table", f"write [{key}]")
    try:
        frozen, frozen_extensions = freeze(data, where=""), freeze(extensions, where="")
    except PurraError as error:
        place = re.sub(r"\['([^']*)'\]", r".\1", error.where).lstrip(".")
        raise refusal(path, [place], error.message, VALUES) from None
    return Source(path, hashlib.sha256(content).hexdigest(), frozen, frozen_extensions)


def claimed_id(path: Path) -> str:
    """The `id` that a manifest gives itself, however wrong the rest of it is; "" if it has none.

    For lists of what is broken: people look for a plugin under its own name.
    """
    try:
        claimed = _parse(path, _read(path)).get("id")
    except PurraError:
        return ""
    return claimed if isinstance(claimed, str) and 0 < len(claimed) <= CLAIMED_ID_CHARS else ""


def parse_table(path: Path, place: Place, data: Any, model: type[_Model]) -> _Model:
    """The table `data`, which stands at `place` of the file at `path`, as `model`.

    Raises `PurraError(invalid_manifest)` that lists every problem found.
    """
    try:
        return model.model_validate(thaw(data))
    except ValidationError as error:
        items = error.errors(include_url=False)
        # A misspelt key is reported as unknown and as missing; the first is the one to read.
        items.sort(key=lambda item: item["type"] != "extra_forbidden")
        raise _refusals(path, place, [_problem(model, item) for item in items]) from None


def _read(path: Path) -> bytes:
    try:
        # Non-blocking, so that a named pipe under this name is opened and refused, not waited for.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        hint = _UNREADABLE.get(error.errno or 0, "")
        raise refusal(path, [], f"cannot be read: {error.strerror}", hint) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        what = "a folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "not a regular file"
        os.close(fd)
        raise refusal(path, [], f"is {what}", "name the manifest file itself")
    with os.fdopen(fd, "rb") as file:
        content = file.read(MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        what = f"is larger than {MAX_MANIFEST_BYTES} bytes"
        raise refusal(path, [], what, "keep data in files of its own")
    return content


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 at byte {error.start}"
        raise refusal(path, [], what, "a manifest is TOML, saved as UTF-8") from None
    if long_key := _LONG_KEY.search(text):
        line = text.count("\n", 0, long_key.start()) + 1
        what = f"line {line}: a dotted key of more than {MAX_KEY_PARTS} parts"
        raise refusal(path, [], what, "write it in fewer parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise refusal(path, [], "is nested too deeply", "nest less") from None
    except ValueError as error:  # TOMLDecodeError, and integers of thousands of digits
        raise refusal(path, [], f"is not TOML: {error}", "https://toml.io says how") from None


def _other_schema(claimed: object, schema: str) -> tuple[str, str]:
    if claimed is None:
        return "is missing", f'write schema = "{schema}"'
    kind, _, major = schema.partition("/")
    if isinstance(claimed, str) and claimed.startswith(f"{kind}/"):
        return f"{claimed!r} is not supported", f"this version reads {kind}/{major} only"
    return f"{claimed!r} is another kind of file", f"expected {schema!r}"


def _refusals(path: Path, place: Place, problems: Sequence[_Problem]) -> PurraError:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    key = key_path([*place, *first.place])
    return PurraError(
        "invalid_manifest",
        first.reason + more,
        where=f"{path}: {key}" if key else str(path),
        hint=first.hint,
        detail={
            "file": str(path),
            "problems": [
                {
                    "key": key_path([*place, *problem.place]),
                    "reason": problem.reason,
                    "hint": problem.hint,
                }
                for problem in problems[:MAX_PROBLEMS]
            ],
        },
    )


_UNREADABLE: Final = {
    errno.ENOENT: "is the path right? `purra init` makes a host manifest",
    errno.ENOTDIR: "is the path right?",
    errno.EACCES: "let this user read it",
}
_TYPE_WORDS: Final = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}
_BOUND_WORDS: Final = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must not be empty",
}


def _problem(model: type[BaseModel], error: Any) -> _Problem:
    kind, context = error["type"], error.get("ctx", {})
    place = tuple(part for part in error["loc"] if part != "[key]")
    if kind == "missing":
        return _Problem(place, "is missing", "")
    if kind == "extra_forbidden":
        known = _known_keys(model, place[:-1])
        return _Problem(place, "is not a known key", suggest(str(place[-1]), known))
    if kind == "value_error" and isinstance(cause := context["error"], RefusedError):
        return _Problem((*place, *cause.place), cause.reason, cause.hint)
    given = error["input"]
    if kind == "literal_error":
        choices = re.findall(r"'([^']+)'", context["expected"])
        near = nearest(given, choices) if isinstance(given, str) else None
        hint = f"did you mean {near!r}?" if near else ""
        return _Problem(place, f"must be one of {', '.join(choices)}; got {given!r}", hint)
    if kind in _TYPE_WORDS:
        return _Problem(place, f"{_TYPE_WORDS[kind]}, not {_toml_type(given)}", "")
    if kind in _BOUND_WORDS:
        return _Problem(place, _BOUND_WORDS[kind].format(**context), "")
    return _Problem(place, str(error["msg"]), "")


def _toml_type(value: object) -> str:
    if isinstance(value, bool):
        return "a truth value"
    names = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), type(value).__name__)


def _known_keys(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that the table at `place` may have, found by walking the annotations.

    No table of ours is a union, so a list or a map says what its items are with its last argument.
    """
    annotation: Any = model
    for part in place:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            annotation = annotation.model_fields[str(part)].annotation
        else:
            annotation = typing.get_args(annotation)[-1]
    return sorted(annotation.model_fields)
