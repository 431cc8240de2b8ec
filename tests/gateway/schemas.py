"""Random admitted schemas, and values that come close to them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

__all__ = ["NAMES", "object_schemas", "schemas", "values"]

NAMES = ("a", "b", "c")

_numbers = st.integers(-3, 3) | st.sampled_from([-1.5, -1.0, -0.0, 0.5, 1.0, 2.0, 2.0**53, 1e300])
_texts = st.sampled_from(["", "a", "ab", "é\U0001f378", "abc", "[1]", '{"a": 1}', "null"])
_scalars = st.none() | st.booleans() | _numbers | _texts

values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)

_types = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
_counts = st.integers(0, 3)


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def _one_level(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = _some(
        type=st.just("object"),
        properties=st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        required=st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
        additionalProperties=st.booleans(),
    )
    arrays = _some(
        type=st.just("array"),
        items=inner,
        minItems=_counts,
        maxItems=_counts,
        uniqueItems=st.booleans(),
    )
    unions = _some(
        anyOf=st.lists(inner, min_size=1, max_size=3),
        oneOf=st.lists(inner, min_size=1, max_size=3),
    )
    return objects | arrays | unions | st.builds(lambda left, right: left | right, objects, arrays)


_leaves = _some(
    type=_types | st.lists(_types, min_size=1, max_size=3, unique=True),
    enum=st.lists(values, min_size=1, max_size=4),
    minLength=_counts,
    maxLength=_counts,
    minimum=_numbers,
    maximum=_numbers,
    title=st.just("t"),
) | _some(type=_types, const=values)

schemas: st.SearchStrategy[dict[str, Any]] = st.recursive(_leaves, _one_level, max_leaves=6)

object_schemas: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda properties, rest: {"type": "object", "properties": properties, **rest},
    st.dictionaries(st.sampled_from(NAMES), schemas, max_size=3),
    _some(
        required=st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
        additionalProperties=st.booleans(),
    ),
)
