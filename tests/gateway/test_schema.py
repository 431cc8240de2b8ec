"""Admission: a closed subset of JSON Schema, within bounds that hold for any input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from purra.errors import PurraError
from purra.gateway.schema import KEYWORDS, TYPES, admit, pointer
from purra.limits import SCHEMA_BYTES, SCHEMA_DEPTH, SCHEMA_NODES
from purra.values import canonical_text, thaw
from tests.gateway.schemas import object_schemas


def refused(schema: Any) -> PurraError:
    with pytest.raises(PurraError) as caught:
        admit(schema, where="t")
    return caught.value


def with_property(inner: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"p": inner}}


def test_the_admitted_keywords_are_frozen() -> None:
    """TOOL-01: the subset is a promise to tool authors; changing it is a decision, not an edit."""
    assert KEYWORDS == (
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "oneOf",
        "enum",
        "const",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minimum",
        "maximum",
        "title",
        "description",
    )
    assert TYPES == ("object", "array", "string", "integer", "number", "boolean", "null")


@given(object_schemas)
def test_admitted_schemas_are_frozen_copies_and_valid_json_schema(schema: dict[str, Any]) -> None:
    """TOOL-01, JSON-08: what is let in is let in unchanged, and any validator understands it."""
    admitted = admit(schema, where="t")
    assert thaw(admitted) == schema
    Draft202012Validator.check_schema(schema)
    with pytest.raises(TypeError):
        admitted["type"] = "array"  # type: ignore[index]


@pytest.mark.parametrize(
    "keyword",
    [
        "$ref",
        "$defs",
        "$schema",
        "$id",
        "$dynamicRef",
        "allOf",
        "not",
        "if",
        "then",
        "pattern",
        "format",
        "default",
        "examples",
        "multipleOf",
        "exclusiveMinimum",
        "patternProperties",
        "propertyNames",
        "prefixItems",
        "contains",
        "dependentRequired",
        "unevaluatedProperties",
        "minProperties",
        "definitions",
        "Type",
        "x-anything",
        "",
    ],
)
def test_any_other_keyword_is_refused_with_its_place(keyword: str) -> None:
    """OBS-07, TOOL-01: at the root and inside; the error names keyword, place and what is
    admitted."""
    for schema, where in (
        ({"type": "object", keyword: 1}, "t"),
        (with_property({keyword: 1}), "t/properties/p"),
        (with_property({"items": {"anyOf": [{keyword: {}}]}}), "t/properties/p/items/anyOf/0"),
    ):
        error = refused(schema)
        assert (error.code, error.where) == ("unsupported_schema", where)
        assert repr(keyword) in error.message
        assert "uniqueItems" in error.hint


@pytest.mark.parametrize(
    ("inner", "where"),
    [
        (True, ""),
        (False, ""),
        (None, ""),
        ([], ""),
        ("string", ""),
        ({"items": True}, "/items"),
        ({"items": [{}]}, "/items"),
        ({"anyOf": [True]}, "/anyOf/0"),
        ({"properties": {"x": False}}, "/properties/x"),
        ({"type": "text"}, "/type"),
        ({"type": []}, "/type"),
        ({"type": ["string", "string"]}, "/type"),
        ({"type": ["string", 1]}, "/type"),
        ({"type": ["string", ["null"]]}, "/type"),
        ({"type": None}, "/type"),
        ({"properties": []}, "/properties"),
        ({"required": "a"}, "/required"),
        ({"required": [1]}, "/required"),
        ({"required": ["a", "a"]}, "/required"),
        ({"additionalProperties": {}}, "/additionalProperties"),
        ({"additionalProperties": 0}, "/additionalProperties"),
        ({"anyOf": []}, "/anyOf"),
        ({"oneOf": {}}, "/oneOf"),
        ({"enum": []}, "/enum"),
        ({"enum": "a"}, "/enum"),
        ({"minLength": -1}, "/minLength"),
        ({"minLength": True}, "/minLength"),
        ({"maxLength": 1.0}, "/maxLength"),
        ({"minItems": "1"}, "/minItems"),
        ({"maxItems": None}, "/maxItems"),
        ({"uniqueItems": 1}, "/uniqueItems"),
        ({"minimum": "0"}, "/minimum"),
        ({"maximum": False}, "/maximum"),
        ({"title": 1}, "/title"),
        ({"description": None}, "/description"),
        ({"minimum": math.nan}, "/minimum"),
        ({"maximum": math.inf}, "/maximum"),
        ({"minimum": 2**63}, "/minimum"),
        ({"const": b"x"}, "/const"),
        ({"const": {1: 2}}, "/const"),
        ({"const": "\ud800"}, "/const"),
        ({"enum": [{"a": {1, 2}}]}, "/enum/0/a"),
    ],
)
def test_malformed_schemas_are_refused_with_their_place(inner: Any, where: str) -> None:
    """TOOL-01: boolean schemas, bad type lists, and every keyword with a value that breaks it."""
    error = refused(with_property(inner))
    assert (error.code, error.where) == ("unsupported_schema", "t/properties/p" + where)


@pytest.mark.parametrize("root", [{}, {"type": "array"}, {"type": ["object", "null"]}, True, None])
def test_the_root_is_an_object(root: Any) -> None:
    """Arguments are an object always, and providers want it said."""
    assert refused(root).code == "unsupported_schema"


def test_names_of_properties_and_data_are_not_keywords() -> None:
    """`$ref` as a property's name, or inside `const`, is data."""
    schema = {"type": "object", "properties": {"$ref": {"const": {"$ref": True, "not": 1}}}}
    assert thaw(admit(schema, where="t")) == schema


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def test_deep_schemas_end_at_the_bound() -> None:
    """TOOL-02: the bound itself is inside; 10^5 levels do not recurse."""
    assert admit({"type": "object", "properties": {"p": nested(SCHEMA_DEPTH - 2)}}, where="t")
    for levels in (SCHEMA_DEPTH - 1, 100_000):
        error = refused({"type": "object", "properties": {"p": nested(levels)}})
        assert error.code == "schema_too_large"
        assert error.detail == {"unit": "levels", "bound": SCHEMA_DEPTH}
        assert error.where.startswith("t/properties/p/items/items")


def test_a_cycle_ends_at_the_bound() -> None:
    """TOOL-02, JSON-01."""
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"p": schema}
    assert refused(schema).code == "schema_too_large"


class Counted(Mapping[str, Any]):
    """A schema that counts how often it is unfolded."""

    def __init__(self, items: dict[str, Any], seen: list[int]) -> None:
        self._items = items
        self._seen = seen

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        self._seen[0] += 1
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def test_shared_parts_are_not_unfolded() -> None:
    """TOOL-02, K25: levels of two references each double the values; few are looked at."""
    seen = [0]
    part: Any = Counted({"type": "string"}, seen)
    for _ in range(14):
        part = Counted({"anyOf": [part, part]}, seen)
    error = refused({"type": "object", "properties": {"p": part}})
    assert error.detail == {"unit": "values", "bound": SCHEMA_NODES}
    assert 0 < seen[0] <= SCHEMA_NODES


def test_wide_schemas_end_at_the_bound() -> None:
    """TOOL-02: a million properties are counted before any is looked at."""
    error = refused({"type": "object", "properties": dict.fromkeys(map(str, range(10**6)), 1)})
    assert error.detail == {"unit": "values", "bound": SCHEMA_NODES}
    assert error.where == "t/properties"


def test_nodes_are_counted_exactly() -> None:
    """TOOL-02: root, type, properties, and one each."""
    names = [f"p{n}" for n in range(SCHEMA_NODES - 3)]
    assert admit({"type": "object", "properties": {name: {} for name in names}}, where="t")
    assert refused({"type": "object", "properties": {name: {} for name in [*names, "q"]}})


@given(object_schemas, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_bytes_are_those_of_the_canonical_text(schema: dict[str, Any], text: str) -> None:
    """TOOL-02: the bound is on what is stored and sent, to the byte."""
    schema = {**schema, "description": text, "title": ""}
    size = len(canonical_text(schema).encode())
    schema["title"] = "x" * (SCHEMA_BYTES - size)
    assert admit(schema, where="t")
    schema["title"] += "x"
    assert refused(schema).detail == {"unit": "bytes", "bound": SCHEMA_BYTES}


def test_a_huge_text_is_refused_by_its_length() -> None:
    """TOOL-02: neither encoded nor copied; a shared one counts each time."""
    text = "x" * 10_000_000
    assert refused({"type": "object", "description": text}).code == "schema_too_large"
    half = "x" * (SCHEMA_BYTES // 2)
    assert refused({"type": "object", "title": half, "description": half}).detail["unit"] == "bytes"
    assert refused({"type": "object", "properties": {text: {}}}).code == "schema_too_large"


def test_errors_stay_short() -> None:
    """A stranger's keyword or property name cannot flood an error."""
    long = "k" * 5000
    error = refused({"type": "object", "properties": {long: {long: 1}}})
    assert len(error.where) < 100 and len(error.message) < 200


def test_pointers_escape() -> None:
    """RFC 6901."""
    assert pointer(("a/b", "~", 0)) == "/a~1b/~0/0"
    assert pointer(()) == ""
