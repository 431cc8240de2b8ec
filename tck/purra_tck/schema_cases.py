"""Arguments from a tool's schema: some that satisfy it, and some that break one keyword each.

Seeded, and checked against a validator that is not the kernel's: what the kernel's own would call
valid proves nothing about it. Texts in broken arguments hold a nonce, so that an error message that
gives a value back is found.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft202012Validator

from purra.values import thaw

__all__ = ["NONCE", "Broken", "broken_arguments", "valid_arguments"]

NONCE: Final = "tck5f1d9c"
TRIES: Final = 40
"""Draws before a schema counts as one that the kit cannot satisfy."""
MORE_ITEMS: Final = 2
MORE_CHARS: Final = 6
SMALL: Final = 9
"""Numbers are drawn from so many above their minimum."""
LONGEST_CHARS: Final = 20_000
"""A bound beyond this is not broken: the text would be too large before it is too long."""
LETTERS: Final = "abcxyz 0189_-.éß漢😀\"'"
"""No separators of paths: what a writing tool makes of them is its author's to try."""
STRANGERS: Final[tuple[Any, ...]] = (NONCE, 7, 1.5, True, None, [], {}, [NONCE], {NONCE: NONCE})
"""Values of every type."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Arguments with one thing wrong: `keyword` at `path` (a JSON Pointer)."""

    path: str
    keyword: str
    arguments: Any


def valid_arguments(
    schema: Mapping[str, Any], seed: int, count: int, *, edges: bool = False
) -> list[dict[str, Any]]:
    """Up to `count` different arguments that satisfy the schema; fewer if there are no more.

    The first has every optional part, the second none, the others some. `edges`: numbers at their
    bounds; without it small ones, because a tool may take as long as its numbers are large.
    """
    plain: dict[str, Any] = thaw(schema)
    check = Draft202012Validator(plain)
    found: list[dict[str, Any]] = []
    for number in range(count * 3):
        likely = (1.0, 0.0)[number] if number < 2 else 0.5
        maker = _Maker(random.Random(f"{seed}:{number}"), likely, edges)
        made = maker.value_that_fits(plain, check)
        if made is not None and made not in found:
            found.append(made)
        if len(found) == count:
            break
    return found


class _Maker:
    """Draws values; `likely`: how often an optional part is there."""

    def __init__(self, chance: random.Random, likely: float, edges: bool) -> None:
        self._chance = chance
        self._likely = likely
        self._edges = edges

    def value_that_fits(self, schema: dict[str, Any], check: Draft202012Validator) -> Any:
        for _ in range(TRIES):
            value = self.value(schema)
            if check.is_valid(value):
                return value
        return None

    def value(self, schema: dict[str, Any]) -> Any:
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if "enum" in schema:
            return copy.deepcopy(self._chance.choice(schema["enum"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                rest = {key: part for key, part in schema.items() if key != keyword}
                return self.value({**rest, **self._chance.choice(schema[keyword])})
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = self._chance.choice(kinds) if isinstance(kinds, list) else kinds
        return self._of_kind(kind, schema)

    def _of_kind(self, kind: str, schema: dict[str, Any]) -> Any:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return self._text(schema)
        if kind == "boolean":
            return self._chance.random() < 0.5
        if kind == "null":
            return None
        return self._number(kind, schema)

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        required = schema.get("required", [])
        made = {
            name: self.value(inner)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self._chance.random() < self._likely
        }
        return made | {name: "x" for name in required if name not in made}

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", least + MORE_ITEMS), least + MORE_ITEMS)
        count = self._chance.randint(least, max(least, most)) if self._likely else least
        return [self.value(schema.get("items", {})) for _ in range(count)]

    def _text(self, schema: dict[str, Any]) -> str:
        least = schema.get("minLength", 0)
        most = min(schema.get("maxLength", least + MORE_CHARS), least + MORE_CHARS)
        count = self._chance.randint(least, max(least, most))
        return "".join(self._chance.choice(LETTERS) for _ in range(count))

    def _number(self, kind: str, schema: dict[str, Any]) -> int | float:
        low = schema.get("minimum", min(0, schema.get("maximum", 0)))
        high = schema.get("maximum", low + SMALL)
        if self._edges and self._chance.random() < 0.5:
            edge: float = self._chance.choice((low, high))
            return int(edge) if kind == "integer" else edge
        top = min(high, low + SMALL)
        if kind == "integer":
            return self._chance.randint(int(low), int(top))
        return round(self._chance.uniform(low, top), 2)


# --- one thing wrong ----------------------------------------------------------------------------


def broken_arguments(schema: Mapping[str, Any], seed: int) -> Iterator[Broken]:
    """For each keyword anywhere in the schema, arguments that break it and are right otherwise."""
    plain: dict[str, Any] = thaw(schema)
    check = Draft202012Validator(plain)
    whole = valid_arguments(schema, seed, 1)
    if not whole:
        return
    for path, keyword, value in _wrong(plain, whole[0], ""):
        if not check.is_valid(value):
            yield Broken(path, keyword, value)


_Wrong = Iterator[tuple[str, str, Any]]


def _wrong(schema: dict[str, Any], value: Any, path: str) -> _Wrong:
    """(path, keyword, value with that wrong) for this schema and all inside it."""
    yield from ((path, keyword, wrong) for keyword, wrong in _here(schema, value))
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                step = name.replace("~", "~0").replace("/", "~1")
                for where, keyword, wrong in _wrong(inner, value[name], f"{path}/{step}"):
                    yield where, keyword, {**value, name: wrong}
    if isinstance(value, list) and value and isinstance(schema.get("items"), dict):
        for where, keyword, wrong in _wrong(schema["items"], value[0], f"{path}/0"):
            yield where, keyword, [wrong, *value[1:]]


def _here(schema: dict[str, Any], value: Any) -> Iterator[tuple[str, Any]]:
    for keyword in ("type", "enum", "const", "anyOf", "oneOf"):
        if keyword in schema:
            only = Draft202012Validator({keyword: schema[keyword]})
            wrong = [one for one in STRANGERS if not only.is_valid(one)]
            yield from ((keyword, copy.deepcopy(one)) for one in wrong[:2])
    if isinstance(value, dict):
        yield from _wrong_objects(schema, value)
    elif isinstance(value, list):
        yield from _wrong_lists(schema, value)
    elif isinstance(value, str):
        if schema.get("minLength", 0) > 0:
            yield "minLength", "x" * (schema["minLength"] - 1)
        if schema.get("maxLength", LONGEST_CHARS) < LONGEST_CHARS:
            yield "maxLength", (NONCE * (schema["maxLength"] // len(NONCE) + 1)).ljust(9)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for keyword, step in (("minimum", -1), ("maximum", 1)):
            if keyword in schema:
                yield keyword, schema[keyword] + step


def _wrong_objects(schema: dict[str, Any], value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in schema.get("required", []):
        yield "required", {key: item for key, item in value.items() if key != name}
    if schema.get("additionalProperties") is False:
        yield "additionalProperties", {**value, "tck-extra": NONCE}


def _wrong_lists(schema: dict[str, Any], value: list[Any]) -> Iterator[tuple[str, Any]]:
    if schema.get("minItems", 0) > 0:
        yield "minItems", value[: schema["minItems"] - 1]
    if "maxItems" in schema and value:
        yield "maxItems", [*value, *value[:1] * (schema["maxItems"] + 1 - len(value))]
    if schema.get("uniqueItems") and value:
        yield "uniqueItems", [value[0], *value[: max(1, schema.get("maxItems", 9) - 1)]]
