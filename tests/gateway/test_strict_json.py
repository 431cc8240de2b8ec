"""The strict parser: accepts exactly RFC 8259 within the value model, and names only places."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.gateway.strict_json import JsonError, parse
from purra.values import MAX_DEPTH, canonical_text, freeze, thaw

SECRET = "hunter2"


def read(text: str, **bounds: int) -> Any:
    return thaw(parse(text, max_chars=bounds.pop("max_chars", 1_000_000), **bounds))


def refused(text: str, **bounds: int) -> JsonError:
    with pytest.raises(JsonError) as caught:
        read(text, **bounds)
    error = caught.value
    assert 0 <= error.offset <= len(text)
    assert error.line >= 1 and error.column >= 1
    return error


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


@given(values, st.booleans(), st.sampled_from([None, 0, 1, "\t"]))
def test_every_strict_value_comes_back(value: Any, ascii_only: bool, indent: int | str) -> None:
    """JSON-01, JSON-03: whatever way the document is written, the frozen value is the same."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert canonical_text(parse(text, max_chars=len(text))) == canonical_text(freeze(value))


@given(st.text(st.sampled_from('[]{}:,"\\ \n01-+.eEtrufalsn\u00e9\ud800/'), max_size=24))
def test_agrees_with_the_standard_parser_where_that_one_is_strict(text: str) -> None:
    """Accepted only if `json.loads` accepts it too, with the same value; refused for a reason."""
    try:
        mine = read(text)
    except JsonError as error:
        assert error.reason
        try:
            json.loads(text, object_pairs_hook=_distinct)
        except ValueError:
            return
        assert error.reason in {
            "an integer outside int64; send it as text",
            "a number outside binary64",
            "a lone surrogate in a string",
        }
    else:
        assert mine == json.loads(text)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError
    return made


@given(st.text(max_size=200))
def test_never_raises_anything_else(text: str) -> None:
    """K28, TOOL-06: any text whatever gives a value or a `JsonError`."""
    try:
        read(text)
    except JsonError:
        pass


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("", "the text ends too early", (1, 1)),
        ("{", "the text ends too early", (1, 2)),
        ('{"a": 1', "the text ends too early", (1, 8)),
        ('{"a": "b', "a string without an end", (1, 7)),
        ('{"a": "b\\', "a string without an end", (1, 7)),
        ('{"a": "\\x"}', "a broken escape or a control character in a string", (1, 8)),
        ('{"a": "\\u12"}', "a broken escape or a control character in a string", (1, 9)),
        ('{"a": "x\ny"}', "a broken escape or a control character in a string", (1, 9)),
        ('{"a": 1, "a": 2}', "a duplicate key", (1, 10)),
        ('{"a": 1,\n "\\u0061": 2}', "a duplicate key", (2, 2)),
        ('{"b": [{"a": 1, "a": 2}]}', "a duplicate key", (1, 17)),
        ('{"a": NaN}', "a JSON value is expected", (1, 7)),
        ('{"a": Infinity}', "a JSON value is expected", (1, 7)),
        ('{"a": -Infinity}', "a JSON value is expected", (1, 7)),
        ('{"a": 1e999}', "a number outside binary64", (1, 7)),
        ('{"a": -1E999}', "a number outside binary64", (1, 7)),
        ('{"a": 9223372036854775808}', "an integer outside int64; send it as text", (1, 7)),
        ('{"a": -9223372036854775809}', "an integer outside int64; send it as text", (1, 7)),
        ('{"a": 012}', "a comma or a closing bracket is expected", (1, 8)),
        ('{"a": +1}', "a JSON value is expected", (1, 7)),
        ('{"a": .5}', "a JSON value is expected", (1, 7)),
        ('{"a": 5.}', "a comma or a closing bracket is expected", (1, 8)),
        ('{"a": 5.e1}', "a comma or a closing bracket is expected", (1, 8)),
        ('{"a": ٣}', "a JSON value is expected", (1, 7)),
        ('{"a": 1,}', "a key in double quotes is expected", (1, 9)),
        ("[1,]", "a JSON value is expected", (1, 4)),
        ("[1 2]", "a comma or a closing bracket is expected", (1, 4)),
        ("[1}", "the wrong closing bracket", (1, 3)),
        ('{"a": 1]', "the wrong closing bracket", (1, 8)),
        ("[}", "a JSON value is expected", (1, 2)),
        ("{]", "a key in double quotes is expected", (1, 2)),
        ("{'a': 1}", "a key in double quotes is expected", (1, 2)),
        ('{"a" 1}', "a colon is expected", (1, 6)),
        ('{"\\u0061" 1}', "a colon is expected", (1, 11)),
        ("{1: 2}", "a key in double quotes is expected", (1, 2)),
        ("\ufeff{}", "a JSON value is expected", (1, 1)),
        ("```json\n{}\n```", "a JSON value is expected", (1, 1)),
        ("{} {}", "text after the end of the document", (1, 4)),
        ("{}\n\n x", "text after the end of the document", (3, 2)),
        ("{} // done", "text after the end of the document", (1, 4)),
        ("/* a */ {}", "a JSON value is expected", (1, 1)),
        ("\u00a0{}", "a JSON value is expected", (1, 1)),
        ("{}\x00", "text after the end of the document", (1, 3)),
        ("True", "a JSON value is expected", (1, 1)),
        ("nullx", "text after the end of the document", (1, 5)),
        ('{"a": "\\ud800"}', "a lone surrogate in a string", (1, 7)),
        ('{"a": "\\udf78\\ud83c"}', "a lone surrogate in a string", (1, 7)),
        ('{"\\udf78": 1}', "a lone surrogate in a string", (1, 2)),
        ('{"a": "\ud800"}', "a lone surrogate in a string", (1, 7)),
        ('{"\ud800": 1}', "a lone surrogate in a string", (1, 2)),
        ('["\ud83c\\udf78"]', "a lone surrogate in a string", (1, 2)),
    ],
)
def test_refusals_name_rule_and_place(text: str, reason: str, place: tuple[int, int]) -> None:
    """JSON-02, JSON-03, JSON-04 to JSON-07, K28: one document, no repair, a place to correct."""
    error = refused(text)
    assert (error.reason, (error.line, error.column)) == (reason, place)


def test_edges_of_the_number_range_are_kept_exactly() -> None:
    """JSON-05: never rounded; whole floats stay floats."""
    low, high = -(2**63), 2**63 - 1
    assert read(f"[{low}, {high}, 1.0, -0, 1e2, 0.1]") == [low, high, 1.0, 0, 100.0, 0.1]
    assert [type(item) for item in read("[1, 1.0, 1e0]")] == [int, float, float]


def test_huge_number_literals_are_refused_before_conversion() -> None:
    """JSON-05: the 4300-digit limit of `int` is never reached, and no quadratic work is done."""
    assert refused("9" * 5000).reason == "an integer outside int64; send it as text"
    assert refused("[" + "9" * 500_000 + "]").offset == 1
    assert refused("9" * 500_000 + ".0").reason == "a number outside binary64"
    assert read("0." + "1" * 100_000) == pytest.approx(1 / 9)


def test_an_escaped_pair_is_one_character() -> None:
    """JSON-03, K28: `\\ud83c\\udf78` is one scalar, of length one."""
    assert read('["\\ud83c\\udf78"]') == ["\U0001f378"]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, '[{"a":' * 50_000],
)
def test_deep_nesting_is_refused_at_the_bound(text: str) -> None:
    """JSON-06: 10^5 brackets end at the first bracket too deep, without recursion."""
    error = refused(text)
    assert error.reason == f"nesting deeper than {MAX_DEPTH}"
    assert text[: error.offset].count("[") + text[: error.offset].count("{") == MAX_DEPTH


def test_the_deepest_allowed_value_is_allowed() -> None:
    """JSON-06: the bound itself is inside."""
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert refused("[" * 3 + "]" * 3, max_depth=2).offset == 2


def test_size_and_count_bounds() -> None:
    """JSON-06, JSON-09: characters before anything is read; values as they come."""
    assert read("[1,2]", max_nodes=3) == [1, 2]
    assert refused("[1,2]", max_nodes=2).offset == 3
    assert read("[1,2]", max_chars=5) == [1, 2]
    assert refused("[1,2]", max_chars=4).reason == "more than 4 characters"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"{SECRET}": 1, "{SECRET}": 2}}',
        f'["{SECRET}',
        f'["{SECRET}\\x"]',
        f'["{SECRET}\\ud800"]',
        f'["{SECRET}\ud800"]',
        f"[{SECRET}]",
    ],
)
def test_an_error_keeps_nothing_of_the_text(text: str) -> None:
    """TOOL-06: neither the error nor anything it is chained to holds the payload."""
    error: BaseException | None = refused(text)
    assert error is not None
    assert error.__context__ is None and error.__cause__ is None
    assert SECRET not in repr(error) + str(error) + repr(vars(error))


def test_the_result_is_frozen() -> None:
    """JSON-08: what comes out cannot be changed, at any depth."""
    value = parse('{"a": [{"b": 1}]}', max_chars=100)
    with pytest.raises(TypeError):
        value["a"] = 1
    with pytest.raises(TypeError):
        value["a"][0]["b"] = 2


def test_hostile_strings_stay_linear() -> None:
    """No backtracking: the work on broken strings is one pass, so these end at once."""
    for text in ('"' + "a" * 500_000, '["' + '\\"' * 250_000, "-" * 500_000, " " * 500_000):
        refused(text)
