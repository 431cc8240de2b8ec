"""Compiled schemas give jsonschema's verdicts, name what broke, and never show a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from purra.gateway.schema import admit, pointer
from purra.gateway.strict_json import parse
from purra.gateway.validation import (
    VIOLATIONS,
    WORK,
    CompiledSchema,
    Violation,
    WorkExceeded,
    type_name,
)
from purra.values import check, freeze
from tests.gateway.schemas import NAMES, object_schemas, schemas, values


def compiled(schema: dict[str, Any]) -> CompiledSchema:
    return CompiledSchema(admit(schema, where="t"))


def inner(schema: Any) -> CompiledSchema:
    """A schema for the property `p`."""
    return compiled({"type": "object", "properties": {"p": schema}})


def broken(schema: Any, value: Any) -> list[tuple[str, str, Any, Any]]:
    found = inner(schema).violations({"p": value})
    return [(pointer(one.path), one.keyword, one.limit, one.actual) for one in found]


def _equal(left: Any, right: Any) -> bool:
    """JSON equality, spelled out."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _unique_items(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[ValidationError]:
    """The library's own check sorts, and misses `[[1], [true], [1]]`; this one compares all."""
    if wanted and isinstance(value, list):
        pairs = ((one, two) for n, one in enumerate(value) for two in value[:n])
        if any(_equal(one, two) for one, two in pairs):
            yield ValidationError("not unique")


Reference = extend(Draft202012Validator, {"uniqueItems": _unique_items})  # type: ignore[no-untyped-call]


@settings(max_examples=600)
@given(object_schemas, values | st.dictionaries(st.sampled_from(NAMES), values, max_size=3))
@example({"type": "object", "properties": {"a": {"enum": [1]}}}, {"a": True})
@example({"type": "object", "properties": {"a": {"enum": [True]}}}, {"a": True})
@example({"type": "object", "properties": {"a": {"enum": [True]}}}, {"a": 1})
@example({"type": "object", "properties": {"a": {"const": {"b": 1}}}}, {"a": {"b": 1, "c": 2}})
@example({"type": "object", "properties": {"a": {"const": [1.0]}}}, {"a": [True]})
@example({"type": "object", "properties": {"a": {"const": -0.0}}}, {"a": 0})
@example({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1.0})
@example({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1e300})
@example({"type": "object", "properties": {"a": {"maximum": 2.0**53}}}, {"a": 2**53 + 1})
@example({"type": "object", "properties": {"a": {"uniqueItems": True}}}, {"a": [[1], [True], [1]]})
@example({"type": "object", "properties": {"a": {"uniqueItems": True}}}, {"a": [{"a": 1}, [1]]})
def test_verdicts_are_those_of_jsonschema(schema: dict[str, Any], value: Any) -> None:
    """TOOL-03, TOOL-04: the same answer for every schema and value, frozen or not."""
    wanted = Reference(schema).is_valid(value)
    subject = compiled(schema)
    assert (not subject.violations(value)) == wanted
    assert (not subject.violations(freeze(value))) == wanted


@given(schemas, values)
def test_reports_are_bounded_strict_and_point_into_the_value(schema: Any, value: Any) -> None:
    """TOOL-03: each violation leads to an existing part, or to the object that lacks one."""
    found = inner(schema).violations({"p": value})
    assert len(found) <= VIOLATIONS
    for one in found:
        part: Any = {"p": value}
        for step in one.path:
            part = part[step]
        check(one.to_value())
        assert str(one)


@pytest.mark.parametrize(
    ("schema", "value", "report"),
    [
        ({"type": "string"}, 1, ("/p", "type", "string", "integer")),
        ({"type": "integer"}, True, ("/p", "type", "integer", "boolean")),
        ({"type": "integer"}, 1.5, ("/p", "type", "integer", "number")),
        ({"type": "integer"}, "1", ("/p", "type", "integer", "string")),
        ({"type": "number"}, False, ("/p", "type", "number", "boolean")),
        ({"type": ["array", "null"]}, {}, ("/p", "type", ("array", "null"), "object")),
        ({"minLength": 2}, "\U0001f378", ("/p", "minLength", 2, 1)),
        ({"maxLength": 1}, "abc", ("/p", "maxLength", 1, 3)),
        ({"minItems": 1}, [], ("/p", "minItems", 1, 0)),
        ({"maxItems": 1}, [1, 2], ("/p", "maxItems", 1, 2)),
        ({"minimum": 3}, 2, ("/p", "minimum", 3, None)),
        ({"maximum": 3}, 4.5, ("/p", "maximum", 3, None)),
        ({"type": "integer", "minimum": 3}, 2.0, ("/p", "minimum", 3, None)),
        ({"enum": ["a", 1]}, "b", ("/p", "enum", ("a", 1), None)),
        ({"const": 1}, True, ("/p", "const", 1, None)),
        ({"uniqueItems": True}, [1, 2, 1.0], ("/p/2", "uniqueItems", True, None)),
        ({"items": {"type": "string"}}, ["a", 1], ("/p/1", "type", "string", "integer")),
        ({"required": ["x"]}, {}, ("/p", "required", "x", None)),
        (
            {"properties": {"x": {}}, "additionalProperties": False},
            {"y": 1, "z": 2, "x": 3},
            ("/p", "additionalProperties", ("x",), 2),
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            1,
            ("/p", "anyOf", 2, 0),
        ),
        (
            {"oneOf": [{"type": "number"}, {"type": "integer"}]},
            1,
            ("/p", "oneOf", 1, 2),
        ),
        (
            {"anyOf": [{"type": "null"}, {"properties": {"x": {"minimum": 1}}, "type": "object"}]},
            {"x": 0},
            ("/p/x", "minimum", 1, None),
        ),
        (
            {"oneOf": [{"minimum": 1}, {"type": "integer", "minimum": 2}]},
            0,
            ("/p", "oneOf", 1, 0),
        ),
    ],
)
def test_each_rule_reports_place_rule_and_limit(schema: Any, value: Any, report: Any) -> None:
    """TOOL-03, TOOL-04: and of the value its type, length or count at most."""
    assert broken(schema, value) == [report]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"const": 1}, 1.0),
        ({"enum": [1.0]}, 1),
        ({"const": {"a": [1, "x"]}}, {"a": [1.0, "x"]}),
        ({"minLength": 1, "maxLength": 1}, "\U0001f378"),
        ({"minLength": 3, "minimum": 3, "minItems": 3, "required": ["a"]}, None),
        ({"uniqueItems": True}, [1, True, "1", [1], [True], {"a": 1}, {"a": True}]),
        ({"oneOf": [{"minimum": 5}, {"maximum": 3}]}, 2),
        ({}, [{}, None, True]),
    ],
)
def test_what_is_allowed(schema: Any, value: Any) -> None:
    """TOOL-03: 1.0 = 1, true is not 1, characters are code points, rules hold for their type."""
    assert broken(schema, value) == []


def test_several_slips_are_reported_together() -> None:
    """K34: one answer, one correction."""
    subject = compiled(
        {
            "type": "object",
            "properties": {"a": {"type": "string", "minLength": 2, "enum": ["xx"]}, "b": {}},
            "required": ["b", "c"],
            "additionalProperties": False,
        }
    )
    assert [str(one) for one in subject.violations({"a": "y", "d": 1})] == [
        "/: required b",
        "/: required c",
        "/a: minLength 2, got 1",
        '/a: enum ["xx"]',
        '/: additionalProperties ["a","b"], got 1',
    ]


def test_reports_are_bounded_in_number_and_length() -> None:
    """A long list of slips, or a long enum, gives a short text."""
    subject = inner({"items": {"enum": [f"value {n}" for n in range(1000)]}})
    found = subject.violations({"p": [1] * 1000})
    assert len(found) == VIOLATIONS
    assert all(len(str(one)) < 160 for one in found)
    assert len(str(found[0].to_value()["limit"])) == 120
    many = {"required": list("abcdefgh"), "const": 1, "anyOf": [{"type": "null"}]}
    assert len(inner(many).violations({"p": {}})) == VIOLATIONS


SECRET = "hunter2"


@given(schemas)
def test_no_report_shows_the_value(schema: Any) -> None:
    """TOOL-03, TOOL-05: not the text, not an unknown key's name."""
    for value in (SECRET, {SECRET: SECRET}, [SECRET, {"a": SECRET, SECRET: 1}]):
        for one in inner(schema).violations({"p": value}):
            assert SECRET not in str(one) + repr(one) + repr(one.to_value())


def test_foreign_types_are_refused() -> None:
    """Invariant 6: what is not a strict value satisfies no schema."""

    class Text(str):
        __slots__ = ()

    for value in (b"x", {1}, Text("x"), object()):
        assert inner({}).violations({"p": value})[0].keyword == "type"


def test_work_is_bounded_before_it_is_done() -> None:
    """K25: elements times branches; a list that would cost too much is not begun."""
    branches = [{"type": "string"} for _ in range(999)] + [{"type": "integer"}]
    subject = inner({"items": {"anyOf": branches}})
    assert subject.violations({"p": [1] * (WORK // 1001)}) == ()
    with pytest.raises(WorkExceeded):
        subject.violations({"p": [1] * (WORK // 1001 + 1)})
    with pytest.raises(WorkExceeded):
        subject.violations({"p": list(range(10**6))})


def test_work_counts_nested_lists_and_unique_parts() -> None:
    """K25: the product of two lists is paid in full, and so is every part that is hashed."""
    nested = inner({"items": {"items": {"type": "integer"}}})
    rows = [[1] * 1000] * 200
    assert nested.violations({"p": rows}) == ()
    with pytest.raises(WorkExceeded):
        nested.violations({"p": rows * 2})
    unique = inner({"uniqueItems": True})
    with pytest.raises(WorkExceeded):
        unique.violations({"p": [[1] * 1000] + [[n] * 1000 for n in range(2, 200)]})


def test_a_long_list_of_ordinary_records_is_affordable() -> None:
    """The longest arguments allowed, 256 Ki characters of small records, stay within the work."""
    record = {"id": {"type": "integer"}, "name": {"type": "string"}, "ok": {"type": "boolean"}}
    subject = inner(
        {"items": {"type": "object", "properties": record, "additionalProperties": False}}
    )
    rows = '{"id":1,"name":"","ok":true},' * (256 * 1024 // 29)
    value = parse('{"p":[' + rows.rstrip(",") + "]}", max_chars=256 * 1024 + 10)
    assert subject.violations(value) == ()


def test_long_enums_of_scalars_cost_nothing_per_element() -> None:
    """An enum is one look-up, whatever its length."""
    subject = inner({"items": {"enum": [f"value {n}" for n in range(1000)]}})
    assert subject.violations({"p": ["value 999"] * 50_000}) == ()


def test_type_names() -> None:
    """The names that reports use are those of JSON Schema."""
    samples = [{}, freeze({}), [], (), "", 1, 1.0, True, None]
    assert [type_name(sample) for sample in samples] == [
        *["object", "object", "array", "array", "string", "integer", "number", "boolean", "null"]
    ]


def test_a_violation_is_a_value() -> None:
    """For events and programs: limits as they are where they are short scalars."""
    assert Violation(("a", 0), "maximum", 3).to_value() == {
        "path": "/a/0",
        "keyword": "maximum",
        "limit": 3,
        "actual": None,
    }
