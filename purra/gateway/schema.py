"""Which JSON Schemas a tool may declare (TOOL-01, TOOL-02).

A closed subset, so that every keyword that is admitted is also enforced, by every host and for
ever: a keyword that a validator skips would be a promise that nobody keeps. Bounds come first and
are counted with a stack of our own: a schema is a stranger's data and may be deep, wide, cyclic, or
small in memory and huge when unfolded (one part shared at every level).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from purra.errors import PurraError
from purra.limits import SCHEMA_BYTES, SCHEMA_DEPTH, SCHEMA_NODES
from purra.values import Value, freeze

__all__ = ["KEYWORDS", "TYPES", "Path", "Schema", "admit", "pointer"]

Schema = Mapping[str, Any]
"""A frozen schema that `admit` has let in."""

TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")

Path = tuple[str | int, ...]
"""The way to a part of a value: keys and indexes, from the outside in."""

_SHOWN_CHARS: Final = 80
"""Of a stranger's keyword or path in an error."""


def pointer(path: Path) -> str:
    """A path as a JSON Pointer (RFC 6901); "" is the whole value."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def admit(schema: object, *, where: str = "schema") -> Schema:
    """A frozen copy of `schema`, if it is inside the admitted subset and its bounds.

    Raises `PurraError`: `schema_too_large` (bytes of its JSON text, levels of nesting, number of
    values), `unsupported_schema` (a keyword outside `KEYWORDS`, a keyword's value that breaks its
    rule, a boolean schema, a value that is not strict JSON, a root that is not of type object).
    `where` names the tool; the error's `where` adds the path in the schema.
    """
    _measure(schema, where)
    frozen: Schema = freeze(schema, where=where)
    pending: list[tuple[Path, Value]] = [((), frozen)]
    for path, node in pending:  # grows while it is walked: every sub-schema, breadth first
        if not isinstance(node, Mapping):
            raise _refused(where, path, "a schema must be an object; booleans are not admitted")
        for keyword, value in node.items():
            rule = _RULES.get(keyword)
            if rule is None:
                raise _refused(
                    where,
                    path,
                    f"the keyword {keyword[:_SHOWN_CHARS]!r} is not in the admitted subset",
                    hint="admitted: " + ", ".join(KEYWORDS),
                )
            problem = rule(value)
            if problem:
                raise _refused(where, (*path, keyword), problem)
        pending.extend((path + step, inner) for step, inner in _inner_schemas(node))
    if frozen.get("type") != "object":
        what = "the parameters of a tool must be of type object"
        raise _refused(
            where, (), what, hint='write type = "object", and the parameters as properties'
        )
    return frozen


def _inner_schemas(node: Schema) -> Iterator[tuple[Path, Value]]:
    for name, inner in node.get("properties", {}).items():
        yield ("properties", name), inner
    if "items" in node:
        yield ("items",), node["items"]
    for keyword in ("anyOf", "oneOf"):
        for index, inner in enumerate(node.get(keyword, ())):
            yield (keyword, index), inner


def _refused(where: str, path: Path, problem: str, *, hint: str = "") -> PurraError:
    return PurraError(
        "unsupported_schema", problem, where=where + pointer(path)[:_SHOWN_CHARS], hint=hint
    )


# --- keywords -----------------------------------------------------------------------------------
# A rule answers what is wrong with a keyword's value, "" if nothing. Inner schemas have been left
# out of it: they are walked by `admit`.


def _type(value: Value) -> str:
    names = value if isinstance(value, tuple) else (value,)
    if not names or any(name not in TYPES for name in names):
        return "must be one type name or a non-empty list of them: " + ", ".join(TYPES)
    return "lists a type twice" if len(set(names)) != len(names) else ""


def _properties(value: Value) -> str:
    return "" if isinstance(value, Mapping) else "must be an object of schemas"


def _names(value: Value) -> str:
    if not isinstance(value, tuple) or any(type(name) is not str for name in value):
        return "must be a list of property names"
    return "lists a name twice" if len(set(value)) != len(value) else ""


def _boolean(value: Value) -> str:
    return "" if type(value) is bool else "must be true or false"


def _schemas(value: Value) -> str:
    return "" if isinstance(value, tuple) and value else "must be a non-empty list of schemas"


def _values(value: Value) -> str:
    return "" if isinstance(value, tuple) and value else "must be a non-empty list of values"


def _count(value: Value) -> str:
    return "" if type(value) is int and value >= 0 else "must be an integer of at least 0"


def _number(value: Value) -> str:
    return "" if type(value) in (int, float) else "must be a number"


def _text(value: Value) -> str:
    return "" if type(value) is str else "must be text"


def _anything(_value: Value) -> str:
    return ""


_RULES: Final[Mapping[str, Callable[[Value], str]]] = MappingProxyType(
    {
        "type": _type,
        "properties": _properties,
        "required": _names,
        "additionalProperties": _boolean,
        "items": _anything,
        "anyOf": _schemas,
        "oneOf": _schemas,
        "enum": _values,
        "const": _anything,
        "minLength": _count,
        "maxLength": _count,
        "minItems": _count,
        "maxItems": _count,
        "uniqueItems": _boolean,
        "minimum": _number,
        "maximum": _number,
        "title": _text,
        "description": _text,
    }
)
KEYWORDS: Final = tuple(_RULES)
"""The admitted keywords; `title` and `description` are annotations, all others are enforced."""


# --- bounds -------------------------------------------------------------------------------------

_Step = tuple[Any, str | int] | None
"""The way back to the root: the parent's step, and the key under which the child hangs."""


def _measure(schema: object, where: str) -> None:
    """Refuses a schema that is too large, in at most `SCHEMA_NODES` steps, whatever it is."""
    nodes = 1
    size_bytes = 0
    stack: list[tuple[object, _Step, int]] = [(schema, None, 0)]
    while stack:
        value, step, depth = stack.pop()
        if isinstance(value, (Mapping, list, tuple)):
            nodes += len(value)
            if nodes > SCHEMA_NODES:
                raise _too_large(where, step, "values", SCHEMA_NODES)
            if depth >= SCHEMA_DEPTH:
                raise _too_large(where, step, "levels", SCHEMA_DEPTH)
            size_bytes += 2 + max(0, len(value) - 1)
            if isinstance(value, Mapping):
                for key, inner in value.items():
                    size_bytes += _key_bytes(key, where, step) + 1
                    stack.append((inner, (step, key), depth + 1))
            else:
                for index, inner in enumerate(value):
                    stack.append((inner, (step, index), depth + 1))
        else:
            size_bytes += _scalar_bytes(value, where, step)
        if size_bytes > SCHEMA_BYTES:
            raise _too_large(where, step, "bytes", SCHEMA_BYTES)


def _key_bytes(key: object, where: str, step: _Step) -> int:
    if type(key) is not str:
        raise _refused(where, _path(step), f"a key of type {type(key).__name__}")
    return _text_bytes(key, where, step)


def _scalar_bytes(value: object, where: str, step: _Step) -> int:
    """Length of the scalar's JSON text in UTF-8."""
    if type(value) is str:
        return _text_bytes(value, where, step)
    if value is None or type(value) is bool:
        return len(json.dumps(value))
    if type(value) is float and math.isfinite(value):
        return len(repr(value + 0.0))
    if type(value) is int and value.bit_length() < 64:
        return len(str(value))
    raise _refused(where, _path(step), "a value that is not strict JSON")


def _text_bytes(text: str, where: str, step: _Step) -> int:
    if len(text) > SCHEMA_BYTES:  # before it is encoded
        raise _too_large(where, step, "bytes", SCHEMA_BYTES)
    try:
        return len(json.dumps(text, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise _refused(where, _path(step), "a text with a lone surrogate") from None


def _too_large(where: str, step: _Step, unit: str, bound: int) -> PurraError:
    return PurraError(
        "schema_too_large",
        f"the schema has more than {bound} {unit}",
        where=where + pointer(_path(step))[:_SHOWN_CHARS],
        detail={"unit": unit, "bound": bound},
    )


def _path(step: _Step) -> Path:
    parts: list[str | int] = []
    while step is not None:
        step, part = step
        parts.append(part)
    return tuple(reversed(parts))
