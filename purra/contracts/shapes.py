"""The mechanism behind `purra.contracts.answers`: checks of values, and shapes made of them.

Nothing is coerced. Fields that a shape does not name are ignored, as unknown keys are on the wire,
so that a newer plugin can still talk to an older kernel. A refusal names the path and the rule,
never the value.

Rejected: pydantic models (a second copy of every contract type, and an object that already is a
contract value would have to be turned into a map first; one chunk of a model's stream costs three
times as much); checks in the `__post_init__` of the contracts (the kernel builds those types too,
from values that it trusts, and would pay each time).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, cast

from purra.errors import AdapterError, PurraError
from purra.values import freeze

__all__ = [
    "Check",
    "Shape",
    "ShapeError",
    "answer",
    "flag",
    "many",
    "one_of",
    "or_none",
    "seconds",
    "strict",
    "strict_map",
    "text",
    "violation",
    "whole",
]

T = TypeVar("T")
Check = Callable[[Any], Any]
"""Gives the value to keep, or raises `ShapeError`."""

INT64_MAX: Final = 2**63 - 1
_ABSENT: Final = object()


class ShapeError(Exception):
    """A value breaks a rule; `path` leads to it from where the check began."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.path = path


def violation(where: str, what: str) -> AdapterError:
    """The error for an answer that breaks its contract: the adapter ran, its answer is no use."""
    return AdapterError("contract_violation", f"{where}: {what}", executed="yes")


def answer(check: Check) -> Callable[[object, str], Any]:
    """`check` with a place: `f(value, where)` raises `AdapterError(contract_violation)`."""

    def checked(value: object, where: str) -> Any:
        try:
            return check(value)
        except ShapeError as error:
            raise violation(where + error.path, error.what) from None

    return checked


class Shape(Generic[T]):
    """The checks of one contract type, by field; `also` looks at the whole once its fields pass.

    As a check it takes a `T`, or a map with its fields (where absent ones have the type's
    defaults), and gives an exact, detached `T`. The value itself is that, if each of its parts is
    kept as it is: contract types are frozen.
    """

    def __init__(
        self, make: type[T], also: Callable[[T], str | None] | None = None, /, **checks: Check
    ) -> None:
        self._make = make
        self._also = also
        self._fields = tuple(
            (field.name, checks[field.name], _default_of(field))
            for field in dataclasses.fields(make)  # type: ignore[arg-type]
        )

    def __call__(self, value: object) -> T:
        found: list[Any] = []
        same = type(value) is self._make
        name = ""  # of the field that is being looked at
        try:
            if same or isinstance(value, self._make):
                for name, check, _ in self._fields:
                    part = getattr(value, name)
                    kept = check(part)
                    same = same and kept is part
                    found.append(kept)
            elif type(value) is dict or isinstance(value, Mapping):
                for name, check, default in self._fields:
                    if name in value:
                        found.append(check(value[name]))
                    elif default is not _ABSENT:
                        found.append(default)
                    else:
                        raise ShapeError("missing")
            else:
                raise ShapeError(f"{self._make.__name__} expected, {_found(value)}")
        except ShapeError as error:
            path = f".{name}{error.path}" if name else error.path
            raise ShapeError(error.what, path) from None
        made = cast(T, value) if same else self._made(found)
        problem = self._also(made) if self._also is not None else None
        if problem is not None:
            raise ShapeError(problem)
        return made

    def _made(self, found: list[Any]) -> T:
        try:
            return self._make(*found)
        except PurraError as error:  # the type's own rule, as Message has
            raise ShapeError(error.message) from None


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return freeze(field.default_factory())  # shared by all values that leave it out
    return _ABSENT


def _found(value: object) -> str:
    return f"found {type(value).__name__}"


def text(most_chars: int) -> Check:
    """Text of at most so many code points, without lone surrogates."""

    def check(value: object) -> str:
        if type(value) is not str:
            raise ShapeError(f"text expected, {_found(value)}")
        if len(value) > most_chars:
            raise ShapeError(f"{len(value)} characters are more than {most_chars}")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ShapeError(f"a lone surrogate at character {error.start}") from None
        return value

    return check


def whole(least: int = 0, most: int = INT64_MAX) -> Check:
    """A whole number within bounds; a bool is none."""

    def check(value: object) -> int:
        if type(value) is not int:
            raise ShapeError(f"a whole number expected, {_found(value)}")
        if not least <= value <= most:
            raise ShapeError(f"not within {least} and {most}")
        return value

    return check


def seconds(value: object) -> float:
    """A finite time above zero."""
    if type(value) not in (int, float) or not 0 < value < float("inf"):  # type: ignore[operator]
        raise ShapeError("a time in seconds above zero expected")
    return float(value)  # type: ignore[arg-type]


def flag(value: object) -> bool:
    """Exactly true or false."""
    if type(value) is not bool:
        raise ShapeError(f"true or false expected, {_found(value)}")
    return value


def one_of(*words: str) -> Check:
    """One of these words."""
    allowed = frozenset(words)

    def check(value: object) -> str:
        if type(value) is not str or value not in allowed:
            raise ShapeError(f"not one of {', '.join(words)}")
        return value

    return check


def or_none(check: Check) -> Check:
    """None, or what `check` takes."""
    return lambda value: None if value is None else check(value)


def many(check: Check, most: int) -> Check:
    """A list of at most so many items, kept as a tuple."""

    def check_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise ShapeError(f"a list expected, {_found(value)}")
        if len(value) > most:
            raise ShapeError(f"{len(value)} items are more than {most}")
        kept: list[Any] = []
        for item in value:
            try:
                kept.append(check(item))
            except ShapeError as error:
                raise ShapeError(error.what, f"[{len(kept)}]{error.path}") from None
        return tuple(kept)

    return check_all


def strict(value: object) -> Any:
    """A strict value (`purra.values`), frozen."""
    try:
        return freeze(value, where="")
    except PurraError as error:
        raise ShapeError(error.message, error.where) from None


def strict_map(value: object) -> Any:
    """A map that is a strict value, frozen."""
    if not isinstance(value, Mapping):
        raise ShapeError(f"a map expected, {_found(value)}")
    return strict(value)
