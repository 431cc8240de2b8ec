"""What a function's signature lets a model send: annotations and docstring as a JSON Schema.

Two kinds of functions are read: tools of the embedding program (`purra.tool`), and tools of a
plugin, when its manifest is written. Both get the JSON-like values that were sent, and nothing is
converted, so only types that such values have are admitted.

An annotation is evaluated only if the parameter is the model's: the injected ones and the result
are often named for type checkers alone.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from purra.errors import PurraError

__all__ = ["Signature", "read_signature", "read_typed_dict"]

_SCALARS: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_ADMITTED: Final = (
    "str, int, float, bool, None, Any, Literal, list, dict[str, Any], TypedDict and unions"
)
_SECTION: Final = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*\Z")
_ENTRY: Final = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)\Z")


@dataclass(frozen=True, slots=True)
class Signature:
    """`description`: the docstring before its first section. `parameters`: an object schema.
    `injected`: the parameter of the injected type, "" = none.
    """

    description: str
    parameters: dict[str, Any]
    injected: str = ""


def read_signature(
    function: Callable[..., Any], where: str, *, passed: str = "self", injected: Any = None
) -> Signature:
    """The signature of `function`, which errors call `where`.

    A first parameter of the name `passed` without a type that a model could send is not the
    model's, and neither is one annotated with the type `injected`. A parameter with a default is
    optional. `Annotated[int, "text", annotated_types.Ge(1)]` adds a description and bounds, a dict
    in its place adds keywords of JSON Schema; an `Args:` section describes parameters too.

    Raises `PurraError(invalid_argument)` for anything that cannot be told to a model: a missing or
    foreign annotation, `*args`, `**kwargs`.
    """
    summary, described = _docstring(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    filled = ""
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        name = parameter.name
        bare = parameter.annotation is parameter.empty
        if index == 0 and name == passed and (bare or passed != "self"):
            continue
        place = f"{where}, parameter {name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _refuse(place, "arguments come by name, one for each parameter")
        if bare:
            raise _refuse(place, "it has no annotation")
        hint = _evaluated(function, parameter, where)
        if injected is not None and hint is injected:
            filled = name
            continue
        properties[name] = _schema(hint, place)
        if name in described:
            properties[name].setdefault("description", described[name])
        if parameter.default is parameter.empty:
            required.append(name)
    return Signature(summary, _object(properties, required), filled)


def read_typed_dict(kind: Any, where: str) -> Signature:
    """The keys of a `TypedDict`, which errors call `where`, as if they were parameters; its whole
    docstring is the description.

    Raises `PurraError(invalid_argument)` for any other type and for keys that have no JSON form.
    """
    if not typing.is_typeddict(kind):
        raise _refuse(where, f"a TypedDict expected, found {kind!r}")
    try:
        parameters = _typed_dict(kind, where)
    except NameError as error:
        raise _unknown_name(where, error) from None
    return Signature(inspect.cleandoc(kind.__doc__ or ""), parameters)


def _evaluated(function: Any, parameter: inspect.Parameter, where: str) -> Any:
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    defined_in = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        hints = typing.get_type_hints(holder, globalns=defined_in, include_extras=True)
    except NameError as error:
        raise _unknown_name(where, error) from None
    return hints[parameter.name]


def _unknown_name(where: str, error: NameError) -> PurraError:
    what = f"the annotation {error.name!r} is not known where it stands"
    return _refuse(where, what, "import it outside `if TYPE_CHECKING`")


def _object(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = False
    return schema


def _schema(hint: Any, place: str) -> dict[str, Any]:
    """The JSON Schema of one annotation."""
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(hint.__origin__, hint.__metadata__, place)
    if hint is Any:
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if typing.is_typeddict(hint):
        return _typed_dict(hint, place)
    if origin is Literal:
        return _literal(arguments, place)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(argument, place) for argument in arguments]}
    if origin in (list, Sequence):
        items = {"items": _schema(arguments[0], place)} if arguments else {}
        return {"type": "array", **items}
    if origin in (dict, Mapping) and arguments in ((), (str, Any)):
        return {"type": "object"}
    raise _refuse(place, f"the type {hint!r} has no JSON form", f"admitted: {_ADMITTED}")


def _typed_dict(hint: Any, place: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, inner in typing.get_type_hints(hint, include_extras=True).items():
        # `__required_keys__` does not see wrappers in annotations that are kept as text.
        is_required = name in hint.__required_keys__
        wrapper = typing.get_origin(inner)
        if wrapper in (typing.Required, typing.NotRequired):
            is_required, inner = wrapper is typing.Required, typing.get_args(inner)[0]
        properties[name] = _schema(inner, f"{place}, key {name!r}")
        if is_required:
            required.append(name)
    return _object(properties, required)


def _literal(words: tuple[Any, ...], place: str) -> dict[str, Any]:
    kinds = {type(word) for word in words}
    if not kinds <= _SCALARS.keys():
        raise _refuse(place, "a literal that has no JSON form")
    kind = {"type": _SCALARS[kinds.pop()]} if len(kinds) == 1 else {}
    return {**kind, "enum": list(words)}


def _annotated(hint: Any, notes: tuple[Any, ...], place: str) -> dict[str, Any]:
    schema = _schema(hint, place)
    for note in notes:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, dict):
            schema.update(note)
        else:
            schema.update(_bound(note, schema, place))
    return schema


def _bound(note: Any, schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    import annotated_types as bounds  # a tool without bounds does not need it

    unit = "Items" if schema.get("type") == "array" else "Length"
    match note:
        case bounds.Ge():
            return {"minimum": note.ge}
        case bounds.Le():
            return {"maximum": note.le}
        case bounds.MinLen():
            return {f"min{unit}": note.min_length}
        case bounds.MaxLen():
            return {f"max{unit}": note.max_length}
    raise _refuse(place, f"{type(note).__name__} cannot be told to a model")


def _docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and what an `Args:` section says of each parameter."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section, current, outer = "", "", 0
    for line in doc.splitlines():
        if heading := _SECTION.match(line):
            section = heading[1]
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            indent = len(line) - len(line.lstrip())
            entry = _ENTRY.match(line.strip())
            if entry and (not described or indent <= outer):
                current, outer = entry[1], indent
                described[current] = entry[2]
            elif current:
                described[current] = f"{described[current]} {line.strip()}".strip()
    return "\n".join(summary).strip(), described


def _refuse(where: str, what: str, hint: str = "") -> PurraError:
    return PurraError("invalid_argument", what, where=where, hint=hint)
