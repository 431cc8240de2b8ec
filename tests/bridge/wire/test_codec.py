"""The value model on the wire: design invariant 8, in both directions (FRM-006..009, FRM-016)."""

from __future__ import annotations

import math
import random
import tracemalloc
from types import MappingProxyType
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_bridge.wire import refusals
from purra_bridge.wire.codec import (
    MAX_DEPTH,
    ValueRefused,
    decode,
    decode_trusted,
    encode,
    encode_trusted,
)


def nest(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


GOOD: list[tuple[Any, str]] = [
    # value, its one canonical encoding: the shortest
    (None, "c0"),
    (False, "c2"),
    (True, "c3"),
    (0, "00"),
    (127, "7f"),
    (128, "cc80"),
    (255, "ccff"),
    (256, "cd0100"),
    (65535, "cdffff"),
    (65536, "ce00010000"),
    (2**32 - 1, "ceffffffff"),
    (2**32, "cf0000000100000000"),
    (2**63 - 1, "cf7fffffffffffffff"),
    (-1, "ff"),
    (-32, "e0"),
    (-33, "d0df"),
    (-128, "d080"),
    (-129, "d1ff7f"),
    (-32769, "d2ffff7fff"),
    (-(2**31) - 1, "d3ffffffff7fffffff"),
    (-(2**63), "d38000000000000000"),
    (0.0, "cb0000000000000000"),
    (-0.0, "cb8000000000000000"),
    (1.5, "cb3ff8000000000000"),
    (1.7976931348623157e308, "cb7fefffffffffffff"),
    ("", "a0"),
    ("a", "a161"),
    ("é", "a2c3a9"),
    ("中", "a3e4b8ad"),
    ("\U0001f408", "a4f09f9088"),
    ("x" * 31, "bf" + "78" * 31),
    ("x" * 32, "d920" + "78" * 32),
    ("x" * 256, "da0100" + "78" * 256),
    (b"", "c400"),
    (b"\x00\xff", "c40200ff"),
    (b"x" * 256, "c50100" + "78" * 256),
    ([], "90"),
    ([[], {}], "929080"),
    ([0] * 16, "dc0010" + "00" * 16),
    ({}, "80"),
    ({"": ""}, "81a0a0"),
    ({"a": 1, "b": [True, None]}, "82a16101a16292c3c0"),
    ({"id": 0, "empty": "", "none": None, "raw": b""}, ""),
]

LONGER: list[tuple[str, Any]] = [
    # legal encodings that are not the shortest; a foreign encoder may send them
    ("cc00", 0),
    ("cd0001", 1),
    ("ce00000001", 1),
    ("cf0000000000000001", 1),
    ("d001", 1),
    ("d10001", 1),
    ("d200000001", 1),
    ("d30000000000000001", 1),
    ("d0ff", -1),
    ("ca3fc00000", 1.5),
    ("d900", ""),
    ("d90161", "a"),
    ("da000161", "a"),
    ("db0000000161", "a"),
    ("c5000161", b"a"),
    ("c60000000161", b"a"),
    ("dc000101", [1]),
    ("dd0000000101", [1]),
    ("de0001a16101", {"a": 1}),
    ("df00000001a16101", {"a": 1}),
    ("df00000000", {}),
]

BAD: list[tuple[str, str, int]] = [
    # body, what the refusal says, byte offset of the fault
    ("", "empty body", 0),
    ("c1", "begins no value", 0),
    ("92c1", "beyond the end", 0),
    ("92c100", "begins no value", 1),
    ("0101", "after the value", 1),
    ("80c0", "after the value", 1),
    ("a1", "beyond the end", 0),
    ("a161" + "00", "after the value", 2),
    ("a1ff", "not UTF-8", 1),
    ("92a161a2c328", "not UTF-8", 4),
    ("a3eda080", "not UTF-8", 1),  # a surrogate, as text
    ("d902c0", "beyond the end", 0),
    ("c6ffffffff", "beyond the end", 0),
    ("92", "beyond the end", 0),
    ("9201", "beyond the end", 0),
    ("ddffffffff", "beyond the end", 0),
    ("dfffffffff", "beyond the end", 0),
    ("81a161", "ends inside", 3),
    ("cb00", "beyond the end", 0),
    ("cb7ff8000000000000", "not finite", 0),
    ("cb7ff0000000000000", "not finite", 0),
    ("91cbfff0000000000000", "not finite", 1),
    ("ca7fc00000", "not finite", 0),
    ("caff800000", "not finite", 0),
    ("cf8000000000000000", "outside int64", 0),
    ("91cfffffffffffffffff", "outside int64", 1),
    ("82a16101a16102", "duplicate", 4),
    ("9282a16101a16102", "duplicate", 1 + 4),
    ("82a16101d9016102", "duplicate", 4),
    ("810101", "not text", 1),
    ("81c0c0", "not text", 1),
    ("81c4016101", "not text", 1),
    ("819101c0", "not text", 1),
    ("8180c0", "not text", 1),
    ("81cb3ff8000000000000c0", "not text", 1),
    ("d40100", "extension", 0),
    ("c70005", "extension", 0),
    ("c7000500", "extension", 0),
    ("d6ff00000000", "extension", 0),
    ("d7ff0000000000000000", "extension", 0),
    ("c70cff000000000000000000000000", "extension", 0),
    ("91" * 65 + "00", "deeper", 64),
    ("91" * 2000 + "00", "deeper", 64),
    ("81a161" * 65 + "00", "deeper", 3 * 64),
]


@pytest.mark.parametrize(("value", "encoding"), GOOD)
def test_good_values_round_trip_byte_exactly(value: Any, encoding: str) -> None:
    """FRM-009, FRM-016, H22: falsy values stay what they are; the encoding is the shortest."""
    packed = encode(value)
    if encoding:
        assert packed.hex() == encoding
    for reader in (decode, decode_trusted):
        back = reader(packed)
        assert back == value
        assert type(back) is type(value)
    assert math.copysign(1, decode(encode(-0.0))) == -1.0


@pytest.mark.parametrize(("body", "value"), LONGER)
def test_longer_encodings_are_read(body: str, value: Any) -> None:
    """FRM-009: all legal forms decode, whoever encoded them."""
    for reader in (decode, decode_trusted):
        assert reader(bytes.fromhex(body)) == value
    assert refusals.find_in_body(bytes.fromhex(body), MAX_DEPTH) == ("", None)


@pytest.mark.parametrize(("body", "said", "offset"), BAD)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bad_bodies_are_refused_with_their_place(
    body: str, said: str, offset: int, kind: Any
) -> None:
    """PLG-12, FRM-006..008, H80: the fault and its byte are named."""
    with pytest.raises(ValueRefused) as caught:
        decode(kind(bytes.fromhex(body)))
    assert said in str(caught.value)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("value", "said", "path"),
    [
        (math.nan, "not finite", ()),
        ([1, math.inf], "not finite", (1,)),
        ({"a": {"b": -math.inf}}, "not finite", ("a", "b")),
        (2**63, "outside int64", ()),
        ([-(2**63) - 1], "outside int64", (0,)),
        (10**40, "outside int64", ()),
        ("\ud800", "surrogate", ()),
        ({"a": ["x", "y\udfff"]}, "surrogate", ("a", 1)),
        ({"\ud800": 1}, "surrogate", ()),
        ({1: 2}, "map key of type int", ()),
        ({"a": {None: 2}}, "map key of type NoneType", ("a",)),
        ({b"a": 2}, "map key of type bytes", ()),
        ({(1,): 2}, "map key of type tuple", ()),
        ([{1, 2}], "of type set", (0,)),
        (object(), "of type object", ()),
        (bytearray(b"x"), "of type bytearray", ()),
        (memoryview(b"x"), "of type memoryview", ()),
        (msgpack.Timestamp(1), "of type Timestamp", ()),
        (msgpack.ExtType(1, b""), "of type ExtType", ()),
        (type("Text", (str,), {})("x"), "of type Text", ()),
        (type("Number", (int,), {})(1), "of type Number", ()),
        (type("Map", (dict,), {})(), "of type Map", ()),
        (1j, "of type complex", ()),
        (nest(65), "deeper", (0,) * 64),
        (nest(3000), "deeper", (0,) * 64),
    ],
)
def test_bad_values_are_refused_with_their_path(value: Any, said: str, path: Any) -> None:
    """FRM-007, FRM-008: the same rule when encoding; nothing is coerced."""
    with pytest.raises(ValueRefused) as caught:
        encode(value)
    assert said in str(caught.value)
    assert caught.value.path == path


def test_a_cycle_is_refused() -> None:
    """FRM-008: the depth limit ends what has no end."""
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ValueRefused, match="deeper"):
        encode(ring)
    with pytest.raises(ValueRefused):
        encode_trusted(ring)


def test_depth_counts_containers() -> None:
    """FRM-008: 64 containers inside each other are legal, 65 are not, whatever their kind."""
    assert decode(encode(nest(64))) == nest(64)
    mixed: Any = 1
    for level in range(64):
        mixed = {"k": mixed} if level % 2 else [mixed]
    assert decode(encode(mixed)) == mixed
    with pytest.raises(ValueRefused):
        encode([mixed])


def test_frozen_values_are_written_as_what_they_freeze() -> None:
    """The kernel's frozen maps and tuples go out without a copy made for it first."""
    frozen = MappingProxyType({"a": (1, MappingProxyType({"b": ()}))})
    plain = {"a": [1, {"b": []}]}
    assert encode(frozen) == encode(plain) == encode_trusted(frozen)
    with pytest.raises(ValueRefused, match="map key of type int"):
        encode(MappingProxyType({1: 1}))


def test_the_trusting_encoder_still_refuses_what_it_cannot_write() -> None:
    """H20: an object that cannot be encoded is an error with a place, not a dead connection."""
    for value in (object(), {"a": object()}, "\ud800", 2**64, nest(3000)):
        with pytest.raises(ValueRefused):
            encode_trusted(value)


@pytest.mark.parametrize("lead", ["dc{:04x}", "dd{:08x}", "de{:04x}", "df{:08x}"])
def test_nested_claims_allocate_nothing(lead: str) -> None:
    """FRM-008, H16: each header claims as much as the whole body could hold."""
    size = 64 * 1024
    head = bytes.fromhex(lead.format(size // 4))
    if lead.startswith(("de", "df")):
        head += b"\xa1k"
    body = head * 900
    body += b"\x00" * (size - len(body))
    tracemalloc.start()
    with pytest.raises(ValueRefused):
        decode(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * size


strict_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=40,
)


@given(strict_values)
def test_strict_values_round_trip(value: Any) -> None:
    """FRM-009."""
    packed = encode(value)
    assert decode(packed) == value
    assert packed == encode_trusted(value)
    assert refusals.find_in_body(packed, MAX_DEPTH) == ("", None)
    assert refusals.find_in_value(value, MAX_DEPTH) == ("", None)


@given(st.binary(max_size=64))
def test_any_bytes_are_one_strict_value_or_refused(body: bytes) -> None:
    """FRM-006, FRM-017: nothing but `ValueRefused` comes out, and the two statements of the rule
    (the fast check and the one that finds the place) agree."""
    found, offset = refusals.find_in_body(body, MAX_DEPTH)
    try:
        value = decode(body)
    except ValueRefused as refused:
        assert found
        assert refused.offset == offset
    else:
        assert not found
        assert decode(encode(value)) == value


def test_mutated_bodies_are_decided_alike() -> None:
    """FRM-017: 2,000 seeded one-byte faults in real bodies, long ones included."""
    dice = random.Random(8)
    sources = [
        encode({"role": "tool", "lines": [{"n": i, "t": "x" * i} for i in range(20)], "f": [0.5]}),
        encode([[float(i), -i, 2**40 + i] for i in range(100)]),
    ]
    for _ in range(2000):
        body = bytearray(dice.choice(sources))
        body[dice.randrange(len(body))] = dice.randrange(256)
        found, _ = refusals.find_in_body(bytes(body), MAX_DEPTH)
        try:
            decode(body)
        except ValueRefused:
            assert found
        else:
            assert not found
