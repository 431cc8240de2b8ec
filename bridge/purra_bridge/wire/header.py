"""The ten bytes in front of every body. Nothing else knows their layout (specification, framing).

    0  u32 BE  body length; the first byte must be 0, so stray text fails at once
    4  u32 BE  call id: 0 = the connection, odd = opened by the host, even = by the plugin
    8  u8      type; bit 7 set = whoever does not know it must give up
    9  u8      flags

Id and type stand outside the body, so an oversize or unreadable body can be skipped, credited or
answered without decoding it: it costs one call, not the link.
"""

from __future__ import annotations

from struct import Struct

__all__ = [
    "BATCH",
    "END",
    "HEADER_BYTES",
    "LAST_CALL_ID",
    "MAX_BODY_BYTES",
    "MORE",
    "MUST_UNDERSTAND",
    "RAW",
    "pack_header",
    "unpack",
]

_LAYOUT = Struct(">IIBB")

HEADER_BYTES = 10
MAX_BODY_BYTES = 0x00FF_FFFF
"""What a length with a zero first byte can say; agreed limits are lower."""
LAST_CALL_ID = 0x7FFF_0000
"""Ids are never reused; an end that reaches this is replaced (specification, framing)."""

END = 1
"""Last DATA of an upload."""
RAW = 2
"""The body is bytes, not an encoded value."""
MORE = 4
"""A fragment that is not the last of its message."""
BATCH = 8
"""The body is a list of items, not one item."""
MUST_UNDERSTAND = 0x80
"""Bit of the type: ignoring such a frame would be wrong."""

_pack = _LAYOUT.pack
unpack = _LAYOUT.unpack_from
"""`unpack(buffer, offset)` -> (body length, call id, type, flags)."""


def pack_header(length: int, call_id: int, kind: int, flags: int) -> bytes:
    """The header of a body of `length` bytes. The caller keeps `length` within its limits."""
    return _pack(length, call_id, kind, flags)
