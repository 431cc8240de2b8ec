"""`purra.tool`: a plain annotated function as a tool, without a plugin.

What the model may send is read from the signature once, where the function is defined, so that a
mistake shows on the line that makes it and never in a call. Arguments reach the function as the
JSON-like values they are: nothing is converted, so only types that such values have are admitted.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from purra.contracts.call import CallContext
from purra.contracts.tool import EFFECTS, Concurrency, Effect, ToolSchema, declare
from purra.errors import PurraError
from purra.manifest.names import parse_name
from purra.values import freeze

__all__ = ["FunctionTool", "ToolFields", "declared", "tool"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__purra_tool__"
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


class ToolFields(TypedDict, total=False):
    """What `tool` takes besides the effect; defaults come from the effect class (tables)."""

    name: str
    description: str
    permission: str
    idempotency: Literal["none", "supported", "required"]
    concurrency: Concurrency
    approval: Literal["never", "required"]
    timeout_s: float
    shared: bool


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """What was read from a function: its schema, and the parameter that takes the context."""

    schema: ToolSchema
    injected: str
    """Name of the parameter of type `CallContext`, "" = none. Never shown to a model."""


def tool(*, effect: Effect, **fields: Unpack[ToolFields]) -> Callable[[F], F]:
    """Makes a function a tool: name, docstring and annotations become its schema.

    A parameter annotated `CallContext` is filled in by the kernel and hidden from the model. A
    parameter with a default is optional. `Annotated[int, "text", annotated_types.Ge(1)]` adds a
    description and bounds; an `Args:` section of the docstring describes parameters too.
    The function itself stays as it is. Raises `PurraError(invalid_argument)` for anything that
    cannot be told to a model: a missing or foreign annotation, `*args`, `**kwargs`.
    """
    if effect not in EFFECTS:
        raise _refuse("purra.tool", f"effect must be one of {', '.join(EFFECTS)}")
    unknown = sorted(set(fields) - ToolFields.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(ToolFields.__optional_keys__))
        raise _refuse("purra.tool", f"unknown field {unknown[0]!r}", f"known: {known}")

    def mark(function: F) -> F:
        setattr(function, _MARK, _read(function, effect, dict(fields)))
        return function

    return mark


def declared(function: Callable[..., Any]) -> FunctionTool:
    """What `tool` read. Raises `PurraError(invalid_argument)` for a function it was not used on."""
    found = getattr(function, _MARK, None)
    if isinstance(found, FunctionTool):
        return found
    name = getattr(function, "__name__", type(function).__name__)
    raise _refuse(
        f"tool {name!r}",
        "it does not say what its effect is",
        "decorate it with purra.tool(effect=…)",
    )


def _read(function: Any, effect: Effect, fields: dict[str, Any]) -> FunctionTool:
    if not inspect.isfunction(function):
        raise _refuse("purra.tool", f"a function expected, found {type(function).__name__}")
    name = fields.pop("name", function.__name__)
    try:
        parse_name(name)
    except ValueError as error:
        raise _refuse("purra.tool", str(error), "give a name=") from None
    where = f"tool {name!r}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _refuse(where, "a generator gives no result", "return one, report with progress")
    summary, described = _docstring(inspect.getdoc(function) or "")
    parameters, injected = _parameters(function, described, where)
    description = fields.pop("description", summary)
    schema = declare(name, description, freeze(parameters), effect, **fields)
    return FunctionTool(schema, injected)


def _parameters(
    function: Callable[..., Any], described: Mapping[str, str], where: str
) -> tuple[dict[str, Any], str]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise _refuse(
            where,
            f"the annotation {error.name!r} is not known where the function is defined",
            "import it outside `if TYPE_CHECKING`",
        ) from None
    properties: dict[str, Any] = {}
    required: list[str] = []
    injected = ""
    for index, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if index == 0 and name == "self" and name not in hints:
            continue  # of a method; it is bound before anyone calls it
        place = f"{where}, parameter {name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _refuse(place, "arguments come by name, one for each parameter")
        if name not in hints:
            raise _refuse(place, "it has no annotation")
        if hints[name] is CallContext:
            injected = name
            continue
        properties[name] = _schema(hints[name], place)
        if name in described:
            properties[name].setdefault("description", described[name])
        if parameter.default is parameter.empty:
            required.append(name)
    return _object(properties, required), injected


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
    import annotated_types as bounds  # a tool without bounds does not need it

    schema = _schema(hint, place)
    unit = "Items" if schema.get("type") == "array" else "Length"
    for note in notes:
        match note:
            case str():
                schema["description"] = note
            case bounds.Ge():
                schema["minimum"] = note.ge
            case bounds.Le():
                schema["maximum"] = note.le
            case bounds.MinLen():
                schema[f"min{unit}"] = note.min_length
            case bounds.MaxLen():
                schema[f"max{unit}"] = note.max_length
            case _:
                raise _refuse(place, f"{type(note).__name__} cannot be told to a model")
    return schema


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
