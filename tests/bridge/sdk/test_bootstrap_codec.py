"""The bootstrap's own few lines of msgpack agree with the wire's codec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_bridge.wire import codec
from purra_hosts import bootstrap

INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | INT64 | st.text()
SAID = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
"""What HELLO and ERROR may hold."""
STRICT = st.recursive(
    SCALARS | st.binary() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
"""What WELCOME may hold: any strict value."""


@given(SAID)
def test_it_writes_the_shortest_form(value: Any) -> None:
    """FRM-009: byte for byte what the codec writes."""
    assert bootstrap.encode(value) == codec.encode(value)


@given(STRICT)
def test_it_reads_every_strict_value(value: Any) -> None:
    """FRM-009."""
    assert bootstrap.Decoder(codec.encode(value)).value() == value


@pytest.mark.parametrize("size", [31, 32, 255, 256, 65535, 65536])
def test_sizes_at_the_borders_of_a_form(size: int) -> None:
    """FRM-009: 8, 16 and 32 bit lengths of text, bytes, lists and maps."""
    for value in ("x" * size, [1] * size, {str(number): number for number in range(size)}):
        assert bootstrap.encode(value) == codec.encode(value)
        assert bootstrap.Decoder(codec.encode(value)).value() == value
    assert bootstrap.Decoder(codec.encode(b"x" * size)).value() == b"x" * size


@given(STRICT, st.data())
def test_a_body_that_is_cut_off_is_refused(value: Any, data: Any) -> None:
    """FRM-005: no partial value."""
    body = codec.encode(value)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(bootstrap.StartError):
        bootstrap.Decoder(body[:cut]).value()


@pytest.mark.parametrize("body", [b"\xc1", b"\xc7\x01\x05x", b"\xd4\x01x"])
def test_what_is_no_value_is_refused(body: bytes) -> None:
    """FRM-007: extension types."""
    with pytest.raises(bootstrap.StartError):
        bootstrap.Decoder(body).value()
