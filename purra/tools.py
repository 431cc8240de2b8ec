"""`purra.tool`: a plain annotated function as a tool, without a plugin.

What the model may send is read from the signature once, where the function is defined, so that a
mistake shows on the line that makes it and never in a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from purra.contracts.call import CallContext
from purra.contracts.tool import EFFECTS, Concurrency, Effect, ToolSchema, declare
from purra.errors import PurraError
from purra.manifest.names import parse_name
from purra.signatures import read_signature
from purra.values import freeze

__all__ = ["FunctionTool", "ToolFields", "declared", "tool"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__purra_tool__"


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
    description and bounds, a dict in its place keywords of JSON Schema; an `Args:` section of the
    docstring describes parameters too. The function itself stays as it is.

    Raises `PurraError(invalid_argument)` for anything that cannot be told to a model: a missing or
    foreign annotation, `*args`, `**kwargs`.
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
    read = read_signature(function, where, injected=CallContext)
    description = fields.pop("description", read.description)
    schema = declare(name, description, freeze(read.parameters), effect, **fields)
    return FunctionTool(schema, read.injected)


def _refuse(where: str, what: str, hint: str = "") -> PurraError:
    return PurraError("invalid_argument", what, where=where, hint=hint)
