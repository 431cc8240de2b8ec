"""The messages: their numbers, who may send them, and the fields of their bodies.

A connection message and a CALL, ERROR or CANCEL carry a map. RESULT carries the bare result, DATA
one bare item (or a list of items with the flag BATCH, or plain bytes with the flag RAW), CREDIT a
bare count of bytes: the messages of the hot path have no envelope.

Unknown fields are ignored, so that a newer peer can add some. Every integer of the protocol is at
least 0. This table is the only check of protocol fields; contract payloads (`args`, results, items)
are checked by whoever knows the contract.
"""

from __future__ import annotations

from purra_bridge.wire.header import MAX_BODY_BYTES

__all__ = [
    "CALL",
    "CANCEL",
    "CHANGED",
    "CREDIT",
    "DATA",
    "DRAIN",
    "ERROR",
    "FIELDS",
    "HELLO",
    "LIMITS",
    "LOG",
    "NAMES",
    "PING",
    "PONG",
    "PROTOCOL_VERSIONS",
    "READY",
    "RESULT",
    "STATUS",
    "WELCOME",
    "agreed_limits",
    "common_version",
    "fault",
    "full_limits",
    "name_of",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTOCOL_VERSIONS = (1, 1)
"""Lowest and highest version of the protocol that this code speaks."""

HELLO = 1
WELCOME = 2
READY = 3
PING = 4
PONG = 5
DRAIN = 6
STATUS = 7
LOG = 8
CHANGED = 9
CALL = 16
DATA = 17
CREDIT = 18
RESULT = 19
ERROR = 20
CANCEL = 21

NAMES: dict[int, str] = {
    HELLO: "HELLO",
    WELCOME: "WELCOME",
    READY: "READY",
    PING: "PING",
    PONG: "PONG",
    DRAIN: "DRAIN",
    STATUS: "STATUS",
    LOG: "LOG",
    CHANGED: "CHANGED",
    CALL: "CALL",
    DATA: "DATA",
    CREDIT: "CREDIT",
    RESULT: "RESULT",
    ERROR: "ERROR",
    CANCEL: "CANCEL",
}

_NONE = type(None)
_TEXT = (str,)
_TEXT_OR_NONE = (str, _NONE)
_INT = (int,)
_INT_OR_NONE = (int, _NONE)
_LIST = (list, tuple)
_MAP = (dict,)
_MAP_OR_NONE = (dict, _NONE)

FIELDS: dict[int, dict[str, tuple[tuple[type, ...] | None, bool]]] = {
    # message: {field: (types, required)}; None = any strict value
    HELLO: {
        "proto": (_LIST, True),
        "plugin": (_TEXT, True),
        "version": (_TEXT, True),
        "manifest_sha256": (_TEXT, True),
        "features": (_LIST, False),
        "limits": (_MAP, False),
        "sdk": (_TEXT, False),
        "pid": (_INT, False),
        "nonce": (_TEXT_OR_NONE, False),
    },
    WELCOME: {
        "proto": (_INT, True),
        "instance": (_TEXT, True),
        "generation": (_INT, True),
        "limits": (_MAP, True),
        "features": (_LIST, False),
        "grants": (_MAP, False),
        "isolation": (_MAP, False),
        "config": (_MAP, False),
        "secrets": (_MAP, False),
        "sys_path": (_LIST, False),
        "ping_ms": (_INT, False),
    },
    READY: {"offers": (_LIST, True), "isolation": (_MAP, False)},
    PING: {"token": (None, False)},
    PONG: {
        "token": (None, False),
        "lag_ms": ((int, float), False),
        "inflight": (_INT, False),
        "rss": (_INT, False),
    },
    DRAIN: {
        "reason": (_TEXT, True),
        "deadline_ms": (_INT_OR_NONE, False),
        "last_id": (_INT, True),
    },
    STATUS: {
        "phase": (_TEXT, False),
        "extend_ms": (_INT, False),
        "hold": ((bool,), False),
        "text": (_TEXT, False),
    },
    LOG: {
        "level": (_TEXT, True),
        "msg": (_TEXT, True),
        "fields": (_MAP_OR_NONE, False),
        "call": (_INT_OR_NONE, False),
    },
    CHANGED: {"epoch": (_INT, False), "offers": (_LIST, False)},
    CALL: {
        "adapter": (_TEXT, True),
        "method": (_TEXT, True),
        "args": (None, True),
        "window": (_INT, False),
        "deadline_ms": (_INT_OR_NONE, False),
        "parent": (_INT_OR_NONE, False),
        "key": (_TEXT_OR_NONE, False),
        "trace": (_MAP_OR_NONE, False),
    },
    ERROR: {
        "code": (_TEXT, True),
        "message": (_TEXT, True),
        "origin": (_TEXT, False),
        "executed": (_TEXT, False),
        "retry": (_TEXT, False),
        "after_ms": (_INT_OR_NONE, False),
        "detail": (_MAP_OR_NONE, False),
    },
    CANCEL: {"reason": (_TEXT, False)},
}
"""The fields of every body that is a map."""

LIMITS: dict[str, tuple[int, int]] = {
    # name: (default, least that makes sense); all in bytes, but `inflight`, which counts calls
    "max_frame": (1024 * 1024, 4096),
    "max_message": (16 * 1024 * 1024, 4096),
    "max_raw": (64 * 1024 * 1024, 4096),
    "window": (64 * 1024, 1024),
    "raw_window": (1024 * 1024, 1024),
    "link_window": (4 * 1024 * 1024, 4096),
    "inflight": (64, 1),
}
"""What both ends agree on in the handshake: for each the smaller of the two proposals (HSK-011).

`max_frame` is one body; `max_message` and `max_raw` all fragments of a message of values or of
bytes; `window` a stream of items and `raw_window` an upload, where the call does not say otherwise;
`link_window` everything under way in one direction; `inflight` calls open at once.
"""

_REQUIRED = {
    number: tuple(name for name, (_, required) in fields.items() if required)
    for number, fields in FIELDS.items()
}
_KINDS = {
    number: {name: kinds for name, (kinds, _) in fields.items() if kinds is not None}
    for number, fields in FIELDS.items()
}


def fault(number: int, body: Any) -> str:
    """What is wrong with the fields of a decoded body, naming the first one; "" if nothing is."""
    if type(body) is not dict:
        return f"the body of {NAMES[number]} is not a map"
    for name in _REQUIRED[number]:
        if name not in body:
            return f"{NAMES[number]} without {name}"
    kinds = _KINDS[number]
    for name, value in body.items():
        allowed = kinds.get(name)
        if allowed is None:
            continue
        kind = type(value)
        if kind not in allowed or (kind is int and value < 0):
            return f"{NAMES[number]}.{name} has a wrong type or range"
    if number == HELLO and not _is_range(body["proto"]):
        return "HELLO.proto is not [lowest, highest]"
    return ""


def _is_range(pair: Any) -> bool:
    return (
        len(pair) == 2 and type(pair[0]) is int and type(pair[1]) is int and 0 <= pair[0] <= pair[1]
    )


def common_version(theirs: Any, ours: tuple[int, int] = PROTOCOL_VERSIONS) -> int | None:
    """The highest version in both ranges, None if there is none (HSK-002)."""
    highest = min(theirs[1], ours[1])
    return highest if highest >= max(theirs[0], ours[0]) else None


def name_of(number: int) -> str:
    """The message's name, or its number if it has none."""
    return NAMES.get(number) or f"type {number}"


def full_limits(proposed: dict[str, Any]) -> dict[str, int]:
    """A proposal with the defaults filled in; names we do not know are left out.

    Raises `ValueError` naming a limit that makes no sense.
    """
    full = {}
    for name, (usual, least) in LIMITS.items():
        value = full[name] = proposed.get(name, usual)
        if type(value) is not int or value < least:
            raise ValueError(f"limits.{name} is not an integer of at least {least}")
    if full["max_frame"] > MAX_BODY_BYTES:
        raise ValueError(f"limits.max_frame is over {MAX_BODY_BYTES}")
    return full


def agreed_limits(ours: dict[str, int], theirs: dict[str, Any]) -> dict[str, int]:
    """What holds for both ends: of each limit the smaller. Raises as `full_limits` does."""
    full = full_limits(theirs)
    return {name: min(ours[name], full[name]) for name in LIMITS}
