"""Raw argument text becomes checked arguments, or one coded error that shows nothing of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.errors import PurraError
from purra.gateway.arguments import Arguments, read_arguments, validate
from purra.gateway.schema import admit
from purra.gateway.validation import WORK, CompiledSchema
from purra.limits import ARGUMENT_CHARS, ERROR_TEXT_CHARS
from purra.values import MAX_DEPTH, check, thaw
from tests.gateway.schemas import object_schemas, values

LOOSE: dict[str, Any] = {"type": "object"}
STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
NOTE = {"type": "object", "properties": {"p": {"type": "string"}}}


def compiled(schema: dict[str, Any]) -> CompiledSchema:
    return CompiledSchema(admit(schema, where="t"))


def read(schema: dict[str, Any], text: str, **bounds: int) -> Arguments:
    return read_arguments("fs.read", compiled(schema), text, **bounds)


def refused(schema: dict[str, Any], text: str, **bounds: int) -> PurraError:
    with pytest.raises(PurraError) as caught:
        read(schema, text, **bounds)
    error = caught.value
    assert error.where == error.detail["tool"] == "fs.read"
    assert len(error.message) <= ERROR_TEXT_CHARS
    assert error.__context__ is None or error.__suppress_context__
    check(error.detail)
    return error


@pytest.mark.parametrize("text", ["", " ", "\t\r\n  "])
def test_blank_text_stands_for_no_arguments(text: str) -> None:
    """TOOL-07, K01: by the one declared rule; what the schema requires is still required."""
    assert read(LOOSE, text).value == {}
    error = refused(STRICT, text)
    assert error.code == "invalid_tool_arguments_shape"
    assert error.message == "/: required path"


@pytest.mark.parametrize("text", ["\u00a0", "\u3000", "\x0b", "\ufeff", "{", "\x00"])
def test_other_nothings_are_not_blank(text: str) -> None:
    """TOOL-07: the rule is about JSON's whitespace and nothing else."""
    assert refused(LOOSE, text).code == "invalid_tool_arguments_json"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12", "integer"),
        ("1.5", "number"),
        ("null", "null"),
        ("true", "boolean"),
        ('"x"', "string"),
        ("[]", "array"),
        ('"{\\"path\\": \\"a\\"}"', "string"),
    ],
)
def test_only_an_object_has_the_right_shape(text: str, found: str) -> None:
    """TOOL-06, K02: valid JSON is not enough, and a quoted object is no object."""
    for schema in (LOOSE, STRICT):
        error = refused(schema, text)
        assert error.code == "invalid_tool_arguments_shape"
        assert error.detail["stage"] == "shape"
        assert error.detail["actual"] == found


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"path": "a', 1, 10),
        ('{"path": "a"', 1, 13),
        ('{"path": "a"}}', 1, 14),
        ('{"path":\n "a",\n "path": "b"}', 3, 2),
        ('{"path": NaN}', 1, 10),
        ('{"path": "\\ud800"}', 1, 10),
        ('{"limit": ' + "9" * 5000 + "}", 1, 11),
        ('{"p":' * 50_000, 1, 241),
        ("```json\n{}\n```", 1, 1),
    ],
)
def test_what_is_not_strict_json_is_never_repaired(text: str, line: int, column: int) -> None:
    """OBS-07, TOOL-06, K05, K28: line, column and offset for the model to correct, and no
    payload."""
    error = refused(STRICT, text)
    assert error.code == "invalid_tool_arguments_json"
    detail = error.detail
    assert (detail["stage"], detail["line"], detail["column"]) == ("json", line, column)
    assert set(detail) == {"tool", "stage", "reason", "line", "column", "offset"}


def test_too_long_text_is_measured_and_not_read() -> None:
    """TOOL-05, JSON-09: tool, stage, actual, bound."""
    text = '{"path": "' + "x" * ARGUMENT_CHARS + '"}'
    error = refused(STRICT, text)
    assert error.code == "tool_arguments_too_large"
    assert error.detail == {
        "tool": "fs.read",
        "stage": "size",
        "actual": len(text),
        "bound": ARGUMENT_CHARS,
    }
    assert read(LOOSE, "{}" + " " * 8, max_chars=10).value == {}
    assert refused(LOOSE, "{}" + " " * 9, max_chars=10).code == "tool_arguments_too_large"


def test_arguments_that_cost_too_much_are_too_large() -> None:
    """K25: a long list against a wide union is refused before it holds up the loop."""
    union = [{"type": "string"} for _ in range(1000)]
    schema = {"type": "object", "properties": {"p": {"items": {"anyOf": union}}}}
    error = refused(schema, json.dumps({"p": [1] * 1000}))
    assert error.code == "tool_arguments_too_large"
    assert error.detail == {"tool": "fs.read", "stage": "schema", "bound": WORK}


def test_violations_are_told_together_and_as_values() -> None:
    """TOOL-03, K34: the message is for the model, the detail for programs."""
    error = refused(STRICT, '{"limit": "many", "extra": 1}')
    assert error.code == "invalid_tool_arguments_shape"
    assert error.message == (
        "/: required path; /limit: type integer, got string; "
        '/: additionalProperties ["path","limit"], got 1'
    )
    assert error.detail["stage"] == "schema"
    assert error.detail["violations"][1] == {
        "path": "/limit",
        "keyword": "type",
        "limit": "integer",
        "actual": "string",
    }


def test_long_reports_are_cut() -> None:
    """TOOL-05: many long names give a bounded message."""
    names = ["n" * 100 + str(n) for n in range(20)]
    error = refused({"type": "object", "required": names}, "{}")
    assert len(error.message) == ERROR_TEXT_CHARS


def demanding(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"p": schema}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array"}, [1, "a"]),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "object"}, {"a": [1]}),
        ({"type": ["array", "null"]}, [1]),
        ({"type": ["array", "object"]}, {"a": 1}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, [1]),
        ({"oneOf": [{"type": "array", "maxItems": 3}, {"type": "object"}]}, {}),
        ({"anyOf": [{"type": "array"}, {"type": "string"}], "type": ["array", "object"]}, [2]),
    ],
)
def test_quoted_lists_and_objects_are_read_where_demanded(schema: Any, value: Any) -> None:
    """TOOL-08: and the place is recorded; the same value unquoted is not recorded."""
    quoted = read(demanding(schema), json.dumps({"p": json.dumps(value)}))
    assert (thaw(quoted.value), quoted.recovered) == ({"p": value}, ("/p",))
    plain = read(demanding(schema), json.dumps({"p": value}))
    assert (plain.value, plain.recovered) == (quoted.value, ())


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, '{"a":1}'),
        ({}, "[1]"),
        ({"type": ["string", "array"]}, "[1]"),
        ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "[1]"),
        ({"anyOf": [{"type": "array"}, {}]}, "[1]"),
        ({"enum": ["[1]"]}, "[1]"),
        ({"minItems": 1}, "[]"),
    ],
)
def test_a_text_stays_a_text_where_one_is_allowed(schema: Any, text: str) -> None:
    """TOOL-08, K29."""
    got = read(demanding(schema), json.dumps({"p": text}))
    assert (got.value["p"], got.recovered) == (text, ())


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "array"}, '{"a": 1}'),
        ({"type": "object"}, "[1]"),
        ({"type": ["array", "null"]}, "null"),
        ({"type": "array"}, ""),
        ({"type": "array"}, "[1"),
        ({"type": "array"}, "a, b"),
        ({"type": "array"}, '"[1]"'),
        ({"type": "object"}, '{"a": 1, "a": 2}'),
        ({"type": "array"}, "[NaN]"),
        ({"type": ["array", "integer"]}, "[1]"),
        ({"type": "integer"}, "1"),
        ({"type": "boolean"}, "true"),
        ({"type": "null"}, "null"),
        ({"type": "array", "items": {"type": "array"}}, '["[1]"]'),
        ({"type": "array", "items": {"type": "string"}}, "[1]"),
    ],
)
def test_recovery_is_narrow(schema: Any, text: str) -> None:
    """TOOL-08: only whole strict JSON of the demanded kind, once; scalars are never unquoted."""
    error = refused(demanding(schema), json.dumps({"p": text}))
    assert error.code == "invalid_tool_arguments_shape"


def test_recovery_reaches_into_lists_and_objects() -> None:
    """TOOL-08: every place is recorded, in the escaped form of pointers."""
    schema = {
        "type": "object",
        "properties": {
            "a/b": {"items": {"type": "object", "properties": {"~": {"type": "array"}}}},
            "note": {"type": "string"},
        },
    }
    text = json.dumps({"a/b": [{"~": "[1]"}, "{}", {"~": []}], "note": "[1]", "more": "[1]"})
    got = read(schema, text)
    assert got.recovered == ("/a~1b/0/~0", "/a~1b/1")
    assert thaw(got.value) == {
        "a/b": [{"~": [1]}, {}, {"~": []}],
        "note": "[1]",
        "more": "[1]",
    }
    for part in (got.value, got.value["a/b"][0], got.value["a/b"][1]):
        with pytest.raises(TypeError):
            part["x"] = 1  # type: ignore[index]


def test_quotes_do_not_get_around_the_depth() -> None:
    """JSON-06, TOOL-08: what is read in place may be as deep as what stands there may be."""
    schema = demanding({"type": "array"})
    inside = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert read(schema, json.dumps({"p": inside})).recovered == ("/p",)
    assert refused(schema, json.dumps({"p": f"[{inside}]"})).detail["stage"] == "schema"
    assert refused(schema, json.dumps({"p": "[" * 100_000})).detail["stage"] == "schema"


@given(object_schemas, st.dictionaries(st.sampled_from("abc"), values, max_size=3))
def test_what_comes_out_satisfies_the_schema_and_invents_nothing(schema: Any, given: Any) -> None:
    """TOOL-03, TOOL-08: valid arguments come out as they were; others only with parts unquoted."""
    subject = compiled(schema)
    text = json.dumps(given)
    try:
        got = read_arguments("t", subject, text)
    except PurraError as error:
        assert error.code == "invalid_tool_arguments_shape"
        assert subject.violations(given)
        return
    assert not subject.violations(got.value)
    if got.recovered:
        assert subject.violations(given)
        for place in got.recovered:
            assert json.loads(_at(given, place)) == _at(thaw(got.value), place)
    else:
        assert thaw(got.value) == given


def _at(value: Any, place: str) -> Any:
    for part in place.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"path": 1, "{SECRET}": "{SECRET}"}}',
        f'{{"path": "{SECRET}',
        f'{{"{SECRET}": 1, "{SECRET}": 2}}',
        f'"{SECRET}"',
        f'{{"limit": "{SECRET}"}}',
    ],
)
def test_errors_show_nothing_of_the_arguments(text: str) -> None:
    """TOOL-05, TOOL-06: neither keys nor values."""
    error = refused(STRICT, text)
    assert SECRET not in str(error) + repr(error.detail)


@given(st.text(max_size=60))
def test_any_text_gives_arguments_or_a_coded_error(text: str) -> None:
    """TOOL-06: whatever a model writes, nothing else is raised."""
    try:
        read(NOTE, text)
    except PurraError as error:
        assert error.code in {"invalid_tool_arguments_json", "invalid_tool_arguments_shape"}


def test_edited_arguments_are_validated_too() -> None:
    """TOOL-14: what a person sends instead passes the same schema; nothing is unquoted for them."""
    edited = {"path": "a", "limit": 1}
    frozen = validate("fs.read", compiled(STRICT), edited)
    edited["path"] = "b"
    assert frozen["path"] == "a"
    for bad, code in (
        ({"limit": 1}, "invalid_tool_arguments_shape"),
        ([], "invalid_tool_arguments_shape"),
        ({"path": "\ud800"}, "invalid_value"),
        ({"path": b"a"}, "invalid_value"),
    ):
        with pytest.raises(PurraError) as caught:
            validate("fs.read", compiled(STRICT), bad)
        assert caught.value.code == code
    with pytest.raises(PurraError):
        validate("fs.read", compiled(demanding({"type": "array"})), {"p": "[]"})
