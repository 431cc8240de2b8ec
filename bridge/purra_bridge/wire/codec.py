"""Bodies as bytes. The only knower of msgpack, and of design invariant 8 on the wire.

A strict value is None, a bool, an int64, a finite float, text without lone surrogates, bytes, a
list, or a map with distinct text keys; at most `MAX_DEPTH` containers deep. msgpack's defaults
accept more (NaN, duplicate and binary keys, extension types, timestamps, uint64, 1024 levels), so
both directions check:

* decoding runs the C decoder with a hook that sees duplicate keys, then one walk over the result;
* encoding runs the same walk, then the C encoder.

One walk with everything in it is as fast as any cleverer split that was tried (searching the bytes
for float and uint64 markers first; comparing with a re-encoded body to rule out duplicates), and is
one statement of the rule. A pure decoder of our own was rejected: ten times slower. What is wrong
*where* is found by `refusals`, which is loaded only when something was refused.

The C decoder allocates a list as long as its header claims before it has seen one element. Claims
beyond the body are refused by itself, but nested claims multiply: a kilobyte of headers can ask for
a megabyte, a megabyte for gigabytes. So a body over `_PREFLIGHT_BYTES` is first skipped through,
which builds nothing and fails on the first claim that the body does not honour (FRM-008, H16).
"""

from __future__ import annotations

from msgpack import (  # type: ignore[import-untyped]
    Unpacker,
    UnpackException,
    packb,
    unpackb,
)

from purra_bridge.wire.strict import FROZEN, INT_MAX, INT_MIN, MAX_DEPTH

__all__ = [
    "MAX_DEPTH",
    "ValueRefused",
    "decode",
    "decode_trusted",
    "encode",
    "encode_trusted",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PREFLIGHT_BYTES = 2048
"""Below this the worst nest of claims allocates 11 MiB for a moment, never touched."""

_INFINITY = float("inf")
_PLAIN = frozenset((str, bool, type(None), bytes))
_TEXT = frozenset((str,))


class ValueRefused(ValueError):  # noqa: N818 - named for what it reports
    """A value or body outside the strict value model.

    `message` says what is wrong; `offset` is the byte where it is in a body that was to be decoded,
    `path` the keys and indices to it in a value that was to be encoded; the other one is None, and
    both are if the place is not known.
    """

    def __init__(
        self, message: str, *, offset: int | None = None, path: tuple[str | int, ...] | None = None
    ) -> None:
        place = ""
        if offset is not None:
            place = f" at byte {offset}"
        elif path:
            place = " at " + "".join(f"[{part!r}]" for part in path)
        super().__init__(message + place)
        self.message = message
        self.offset = offset
        self.path = path


def decode(body: bytes | bytearray | memoryview, depth: int = MAX_DEPTH) -> Any:
    """The one strict value that `body` holds.

    `depth` is how many containers deep it may be; envelopes add their own to `MAX_DEPTH`. Raises
    `ValueRefused`, and nothing else, for anything that is not exactly one strict value.
    """
    try:
        if len(body) > _PREFLIGHT_BYTES:
            skipper = Unpacker(max_buffer_size=len(body))
            skipper.feed(body)
            skipper.skip()
        value = unpackb(body, object_pairs_hook=_distinct, ext_hook=_refuse_ext, max_ext_len=0)
        _walk((value,), depth)
    except (ValueError, UnpackException, _NotStrictError) as error:
        raise _explain_body(body, depth, error) from None
    return value


def encode(value: Any, depth: int = MAX_DEPTH) -> bytes:
    """The shortest msgpack form of a strict value; tuples and frozen maps count as lists and maps.

    Raises `ValueRefused` for anything else, naming the path.
    """
    try:
        _walk((value,), depth)
        return packb(value, default=_thaw)  # type: ignore[no-any-return]
    except (ValueError, OverflowError, TypeError, _NotStrictError) as error:
        raise _explain_value(value, depth, error) from None


def encode_trusted(value: Any, depth: int = MAX_DEPTH) -> bytes:
    """As `encode`, for a value that was checked before: kernel values, our own messages.

    What the encoder itself cannot write is still refused with `ValueRefused`.
    """
    try:
        return packb(value, default=_thaw)  # type: ignore[no-any-return]
    except (ValueError, OverflowError, TypeError, _NotStrictError) as error:
        raise _explain_value(value, depth, error) from None


def decode_trusted(body: bytes | bytearray | memoryview, depth: int = MAX_DEPTH) -> Any:
    """As `decode`, for bodies of a peer that is trusted to have checked (the host, to a plugin).

    Malformed bodies and extension types are still refused with `ValueRefused`.
    """
    try:
        return unpackb(body, ext_hook=_refuse_ext, max_ext_len=0)
    except (ValueError, UnpackException, _NotStrictError) as error:
        raise _explain_body(body, depth, error) from None


class _NotStrictError(Exception):
    """Raised inside a hook or the walk; turned into `ValueRefused` with its place."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _NotStrictError("a map with duplicate keys")
    return made


def _refuse_ext(code: int, data: bytes) -> Any:
    raise _NotStrictError(f"an extension value (type {code})")


def _thaw(value: Any) -> Any:
    if type(value) is FROZEN:
        return dict(value)
    raise _NotStrictError(f"a value of type {type(value).__name__}")


def _walk(items: Any, depth: int) -> None:
    """Raises `_NotStrictError` unless every item is strict and at most `depth` containers deep.

    Text needs no look here: the C code refuses lone surrogates in both directions.
    """
    for item in items:
        kind = type(item)
        if kind in _PLAIN:
            continue
        if kind is int:
            if not INT_MIN <= item <= INT_MAX:
                raise _NotStrictError("an integer outside int64")
        elif kind is float:
            if not -_INFINITY < item < _INFINITY:  # also false for NaN
                raise _NotStrictError("a float that is not finite")
        elif depth <= 0:
            raise _NotStrictError(f"nesting deeper than {MAX_DEPTH}")
        elif kind is dict or kind is FROZEN:
            if not _TEXT.issuperset(map(type, item)):
                raise _NotStrictError("a map key that is not text")
            _walk(item.values(), depth - 1)
        elif kind is list or kind is tuple:
            _walk(item, depth - 1)
        else:
            raise _NotStrictError(f"a value of type {kind.__name__}")


def _explain_body(
    body: bytes | bytearray | memoryview, depth: int, error: Exception
) -> ValueRefused:
    from purra_bridge.wire.refusals import find_in_body  # only a refusal pays for it

    message, offset = find_in_body(bytes(body), depth)
    return ValueRefused(message or str(error) or type(error).__name__, offset=offset)


def _explain_value(value: Any, depth: int, error: Exception) -> ValueRefused:
    from purra_bridge.wire.refusals import find_in_value

    message, path = find_in_value(value, depth)
    return ValueRefused(message or str(error) or type(error).__name__, path=path)
