"""Strict values: what is let in, that it is detached, and the one text that stands for it."""

from __future__ import annotations

import hashlib
import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.errors import PurraError
from purra.values import MAX_DEPTH, canonical_text, check, digest, freeze, is_strict, thaw

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
STRICT = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)

OUTSIDE: list[tuple[Any, str]] = [
    ({"a": [1, {2}]}, "value['a'][1]: a value of type set"),
    ({"a": {1: 2}}, "value['a']: a key of type int"),
    ([b"x"], "value[0]: a value of type bytes"),
    (object(), "value: a value of type object"),
    ([float("nan")], "value[0]: a float that is not finite"),
    ([math.inf], "value[0]: a float that is not finite"),
    (-math.inf, "value: a float that is not finite"),
    (2**63, "value: an integer outside int64"),
    (-(2**63) - 1, "value: an integer outside int64"),
    (10**5000, "value: an integer outside int64"),
    ("a\ud800", "value: a lone surrogate at character 1"),
    ({"\udfff": 1}, "value: a lone surrogate at character 0"),
    (nested(MAX_DEPTH + 1), "nesting deeper than 64"),
    (CYCLE, "nesting deeper than 64"),
]


@pytest.mark.parametrize(("value", "told"), OUTSIDE, ids=range(len(OUTSIDE)))
def test_what_is_outside_is_refused_with_its_place(value: Any, told: str) -> None:
    """JSON-01, JSON-02, JSON-03, JSON-05, JSON-06."""
    for refuse in (freeze, check):
        with pytest.raises(PurraError) as caught:
            refuse(value)
        assert caught.value.code == "invalid_value"
        assert told in str(caught.value)
    assert not is_strict(value)
    assert not is_strict({"deep": [value]})


@given(STRICT)
def test_freezing_keeps_and_detaches(value: Any) -> None:
    """JSON-08: equal to its source, thawed again a fresh copy."""
    frozen = freeze(value)
    assert thaw(frozen) == value
    assert freeze(frozen) == frozen
    assert canonical_text(frozen) == canonical_text(value)
    assert is_strict(value)
    assert is_strict(frozen)


def test_nothing_reaches_the_inside() -> None:
    """API-05, JSON-08: neither through the source nor through the frozen value."""
    source = {"rows": [{"n": 1}]}
    frozen = freeze(source)
    source["rows"].append({"n": 2})
    source["rows"][0]["n"] = 3
    assert frozen == {"rows": (MappingProxyType({"n": 1}),)}
    with pytest.raises(TypeError):
        frozen["rows"][0]["n"] = 4
    thawed = thaw(frozen)
    thawed["rows"][0]["n"] = 5
    assert frozen["rows"][0]["n"] == 1


def test_the_deepest_value_that_is_let_in() -> None:
    assert is_strict(nested(MAX_DEPTH))
    assert freeze(nested(MAX_DEPTH))


def test_numbers_and_truth_keep_their_types() -> None:
    """JSON-10: a whole float is not an integer, and true is not one."""
    assert canonical_text(freeze([1, 1.0, True])) == "[1,1.0,true]"
    assert len({digest(value) for value in (1, 1.0, True, "1", None)}) == 5


def test_the_canonical_text_is_one() -> None:
    """JSON-10: order of keys and the sign of zero do not count; everything else does."""
    assert canonical_text({"b": 1, "a": -0.0}) == '{"a":0.0,"b":1}'
    assert digest({"b": 1, "a": [0.0]}) == digest({"a": [-0.0], "b": 1})
    expected = hashlib.sha256('{"a":"é"}'.encode()).hexdigest()
    assert digest({"a": "é"}) == f"sha256:{expected}"


@given(STRICT)
def test_the_canonical_text_is_json(value: Any) -> None:
    """Anybody can read it back."""
    assert json.loads(canonical_text(value)) == json.loads(json.dumps(value))
