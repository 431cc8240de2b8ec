"""`purra.tool`: what a model is told of a plain function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import annotated_types
import pytest

from purra.contracts.call import CallContext
from purra.errors import PurraError
from purra.gateway.schema import admit
from purra.tools import declared, tool
from purra.values import thaw


class Point(TypedDict):
    x: int
    y: NotRequired[float]


def parameters(function: Any) -> dict[str, Any]:
    schema = declared(tool(effect="pure")(function)).schema.parameters
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert admit(schema) == schema
    return dict(thaw(schema))


def refusal(function: Any, **fields: Any) -> PurraError:
    with pytest.raises(PurraError) as caught:
        tool(effect="pure", **fields)(function)
    assert caught.value.code == "invalid_argument"
    return caught.value


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (dict, {"type": "object"}),
        (Mapping[str, Any], {"type": "object"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            Annotated[int, "how many", annotated_types.Ge(1), annotated_types.Le(8)],
            {"type": "integer", "description": "how many", "minimum": 1, "maximum": 8},
        ),
        (
            Annotated[str, annotated_types.MinLen(1), annotated_types.MaxLen(9)],
            {"type": "string", "minLength": 1, "maxLength": 9},
        ),
        (
            Annotated[list[str], annotated_types.MinLen(1)],
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_annotations_become_schema(hint: Any, schema: dict[str, Any]) -> None:
    """CAP-08, TOL-001: only keywords of the admitted subset."""

    def function(value):  # type: ignore[no-untyped-def]
        return value

    function.__annotations__ = {"value": hint}
    assert parameters(function)["properties"] == {"value": schema}


@pytest.mark.parametrize(
    "hint",
    [
        set[str],
        tuple[int, int],
        bytes,
        object,
        dict[int, str],
        dict[str, int],
        complex,
        list[bytes],
        Literal[b"a"],
    ],
)
def test_types_without_a_json_form_are_refused_where_they_stand(hint: Any) -> None:
    """JSON-01: nothing is converted, so nothing that needs it is admitted."""

    def function(value):  # type: ignore[no-untyped-def]
        return value

    function.__annotations__ = {"value": hint}
    assert refusal(function).where == "tool 'function', parameter 'value'"


def test_defaults_are_optional_and_the_docstring_describes() -> None:
    """Design §9: name, docstring and annotations."""

    def forecast(city: str, days: int = 3, *, unit: Literal["C", "F"] = "C") -> dict[str, Any]:
        """Weather forecast for a city.

        Up to a week.

        Args:
            city: Its name,
                in any language: "Zürich".
            days (int): How many.

        Returns:
            unit: not a parameter's text.
        """
        return {}

    schema = declared(tool(effect="external_read", timeout_s=10)(forecast)).schema
    assert schema.name == "forecast"
    assert schema.description == "Weather forecast for a city.\n\nUp to a week."
    assert thaw(schema.parameters) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": 'Its name, in any language: "Zürich".'},
            "days": {"type": "integer", "description": "How many."},
            "unit": {"type": "string", "enum": ["C", "F"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert (schema.timeout_s, schema.permission, schema.concurrency) == (10, "forecast", "parallel")


def test_fields_and_effect_defaults() -> None:
    """Tables, defaults of a tool."""

    @tool(effect="irreversible", name="mail.send", description="Sends.", idempotency="required")
    def send() -> None: ...

    schema = declared(send).schema
    assert (schema.name, schema.description) == ("mail.send", "Sends.")
    assert (schema.approval, schema.concurrency) == ("required", "actor_serial")
    assert (schema.idempotency, schema.shared) == ("required", False)


def test_the_context_is_injected_and_hidden() -> None:
    """CAP-08: a model can neither see nor set it."""

    @tool(effect="pure")
    def function(a: int, context: CallContext, b: int = 0) -> None: ...

    read = declared(function)
    assert read.injected == "context"
    assert set(read.schema.parameters["properties"]) == {"a", "b"}


def test_a_method_is_a_tool_too() -> None:
    class Counter:
        @tool(effect="pure")
        def add(self, by: int) -> int:
            return by

    assert set(declared(Counter().add).schema.parameters["properties"]) == {"by"}


def test_the_function_stays_what_it_is() -> None:
    @tool(effect="pure")
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == 8


def test_signatures_that_cannot_be_told_to_a_model() -> None:
    def star(*args: int) -> None: ...
    def stars(**kwargs: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def bare(a) -> None: ...  # type: ignore[no-untyped-def]
    def generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    for catching in (star, stars, positional):
        assert "by name" in refusal(catching).message
    assert "no annotation" in refusal(bare).message
    for function in (generator, async_generator):
        assert "generator" in refusal(function).message
    assert "function expected" in refusal(print).message
    assert "name" in refusal(lambda: 1).message


def test_an_annotation_that_cannot_be_found_is_named() -> None:
    def function(value: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821

    error = refusal(function)
    assert "Missing" in error.message
    assert "TYPE_CHECKING" in error.hint


def test_unknown_fields_and_effects_are_refused() -> None:
    with pytest.raises(PurraError, match="unknown field 'timout_s'"):
        tool(effect="pure", timout_s=1)  # type: ignore[call-arg]
    with pytest.raises(PurraError, match="effect must be one of pure, world_read"):
        tool(effect="read")  # type: ignore[arg-type]


def test_a_plain_function_is_told_how_to_become_a_tool() -> None:
    """Tables: a plain function passed to the kernel needs `purra.tool(effect=…)`."""

    def function() -> None: ...

    with pytest.raises(PurraError, match=r"tool 'function'.*purra\.tool\(effect=…\)"):
        declared(function)
