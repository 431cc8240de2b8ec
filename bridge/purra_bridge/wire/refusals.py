"""What exactly is wrong with a refused body or value, and where. Loaded only after a refusal.

The fast checks of `codec` say yes or no. An author who gets `contract_violation` wants the byte or
the key, so this walks again, in plain Python and without recursion, and stops at the first fault.
It decides nothing: when it finds no fault, the answer of the fast check stands.
"""

from __future__ import annotations

from struct import unpack_from

from purra_bridge.wire.strict import FROZEN, INT_MAX, INT_MIN, MAX_DEPTH

__all__ = ["find_in_body", "find_in_value"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SCAN_ITEMS = 100_000
"""A hostile body must not cost seconds: after so many parts the place stays unknown."""

_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_FIXED |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_EXTENSIONS = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))


class _FaultError(Exception):
    def __init__(self, message: str, offset: int) -> None:
        self.message = message
        self.offset = offset


def find_in_body(body: bytes, depth: int) -> tuple[str, int | None]:
    """(what, byte offset) of the first fault in `body`; ("", None) if none was found."""
    try:
        _scan(body, depth)
    except _FaultError as fault:
        return fault.message, fault.offset
    return "", None


def _scan(body: bytes, depth: int) -> None:
    # One entry per open container: [parts left, seen keys or None for a list, key comes next].
    opened: list[list[Any]] = []
    at = 0
    for _ in range(_SCAN_ITEMS):
        while opened and opened[-1][0] == 0:
            opened.pop()
        if at and not opened:
            if at < len(body):
                raise _FaultError("bytes after the value", at)
            return
        key = bool(opened) and bool(opened[-1][2])
        start, text, at, parts = at, *_part(body, at, len(opened))
        if opened:
            _count(opened[-1], key, text, start)
        if parts is not None:
            count, is_map = parts
            if len(opened) >= depth:
                raise _FaultError(f"nesting deeper than {MAX_DEPTH}", start)
            opened.append([count * 2 if is_map else count, set() if is_map else None, is_map])


def _count(holder: list[Any], key: bool, text: str | None, start: int) -> None:
    holder[0] -= 1
    if holder[1] is None:
        return
    if key:
        if text is None:
            raise _FaultError("a map key that is not text", start)
        if text in holder[1]:
            raise _FaultError("a map with duplicate keys", start)
        holder[1].add(text)
    holder[2] = not key


def _part(body: bytes, at: int, level: int) -> tuple[str | None, int, tuple[int, bool] | None]:
    """(text if it is text, offset after it, (claimed parts, is a map) of a container) at `at`."""
    if at >= len(body):
        raise _FaultError("the body ends inside a value" if at else "an empty body", at)
    lead = body[at]
    if lead < 0x80 or lead >= 0xE0 or lead in (0xC0, 0xC2, 0xC3):
        return None, at + 1, None
    if lead < 0xA0:
        return None, at + 1, _claim(body, at, at + 1, lead & 0x0F, lead < 0x90)
    if lead < 0xC0:
        return _text(body, at, at + 1, lead & 0x1F), at + 1 + (lead & 0x1F), None
    if lead in _EXTENSIONS:
        raise _FaultError("an extension value", at)
    if lead in _FIXED:
        return None, _number(body, at, lead), None
    if lead in _SIZED:
        data, size = _length(body, at, _SIZED[lead])
        if lead >= 0xD9:
            return _text(body, at, data, size), data + size, None
        return None, _within(body, at, data + size), None
    if lead in _CONTAINERS:
        data, count = _length(body, at, _CONTAINERS[lead])
        return None, data, _claim(body, at, data, count, lead >= 0xDE)
    raise _FaultError("a byte that begins no value", at)


def _within(body: bytes, at: int, end: int) -> int:
    if end > len(body):
        raise _FaultError("a length beyond the end of the body", at)
    return end


def _length(body: bytes, at: int, width: int) -> tuple[int, int]:
    data = _within(body, at, at + 1 + width)
    return data, int.from_bytes(body[at + 1 : data], "big")


def _claim(body: bytes, at: int, data: int, count: int, is_map: bool) -> tuple[int, bool]:
    _within(body, at, data + (count * 2 if is_map else count))
    return count, is_map


def _text(body: bytes, at: int, data: int, size: int) -> str:
    end = _within(body, at, data + size)
    try:
        return body[data:end].decode()
    except UnicodeDecodeError as error:
        raise _FaultError("text that is not UTF-8", data + error.start) from None


def _number(body: bytes, at: int, lead: int) -> int:
    end = _within(body, at, at + 1 + _FIXED[lead])
    if lead == 0xCF and body[at + 1] >= 0x80:
        raise _FaultError("an integer outside int64", at)
    if lead in (0xCA, 0xCB):
        number = unpack_from(">f" if lead == 0xCA else ">d", body, at + 1)[0]
        if number - number != 0:  # NaN and the infinities
            raise _FaultError("a float that is not finite", at)
    return end


def find_in_value(value: Any, depth: int) -> tuple[str, tuple[str | int, ...] | None]:
    """(what, path) of the first fault in `value`; ("", None) if none was found."""
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    for _ in range(_SCAN_ITEMS):
        if not waiting:
            break
        item, path = waiting.pop()
        fault = _item_fault(item, len(path), depth)
        if fault:
            return fault, path
        if isinstance(item, (dict, FROZEN)):
            waiting.extend((part, (*path, key)) for key, part in reversed(item.items()))
        elif isinstance(item, (list, tuple)):
            waiting.extend((item[index], (*path, index)) for index in reversed(range(len(item))))
    return "", None


def _item_fault(item: Any, level: int, depth: int) -> str:
    kind = type(item)
    if kind is str:
        try:
            item.encode()
        except UnicodeEncodeError as error:
            return f"a lone surrogate at character {error.start}"
        return ""
    if kind in (bool, bytes, type(None)):
        return ""
    if kind is int:
        return "" if INT_MIN <= item <= INT_MAX else "an integer outside int64"
    if kind is float:
        return "" if item - item == 0 else "a float that is not finite"
    if kind not in (dict, list, tuple, FROZEN):
        return f"a value of type {kind.__name__}"
    if level >= depth:
        return f"nesting deeper than {MAX_DEPTH}"
    if kind in (dict, FROZEN):
        return _keys_fault(item)
    return ""


def _keys_fault(item: Any) -> str:
    for key in item:
        if type(key) is not str:
            return f"a map key of type {type(key).__name__}"
        fault = _item_fault(key, 0, 0)
        if fault:
            return fault + " of a map key"
    return ""
