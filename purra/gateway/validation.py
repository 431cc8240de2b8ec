"""Do these arguments satisfy that schema? (TOOL-03, TOOL-04)

Each admitted schema is compiled once into closures: a table from the exact Python type of a value
to the rules that hold for it, so a type check is one look-up and no rule meets a value of another
type. jsonschema would do the same in 20 us instead of 1.5 us for three small arguments, after 90 ms
of import, in every process; it is what the tests compare this file with, verdict by verdict.

Meaning is that of JSON Schema 2020-12: `true` is not 1 and `1.0` is, lengths count code points,
`anyOf` needs one match and `oneOf` exactly one, `items` holds for every element. Nothing is
coerced.

Arguments come from a model and schemas from plugins, so both may be hostile: a list of 10^5
elements against a union of 10^3 members would hold up the whole process. Every list therefore pays
for its elements, by the size of the schema that each of them meets, out of `WORK`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, final

from purra.gateway.schema import TYPES, Path, Schema, pointer
from purra.values import Value, canonical_text

__all__ = ["VIOLATIONS", "WORK", "CompiledSchema", "Violation", "WorkExceeded", "type_name"]

VIOLATIONS: Final = 8
"""Reported at most, so that a model can correct several slips at once, within a bounded text."""
WORK: Final = 300_000
"""Schema nodes that may be visited in one validation. The longest arguments allowed hold some
50,000 values; a visit takes 0.15 us, or up to 0.8 us where it fails, as most branches of a union
do."""
_SHOWN_CHARS: Final = 120
"""Of a limit in a text."""


@final
@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. Never holds anything of the value but its type, length or count.

    `path` leads to the part that broke it, `keyword` is the rule and `limit` its bound, taken from
    the schema. `actual`: the type's name for `type`, a length, a count; None where it would be
    the value itself.
    """

    path: Path
    keyword: str
    limit: Value
    actual: str | int | None = None

    def __str__(self) -> str:
        text = f"{pointer(self.path) or '/'}: {self.keyword} {self._shown_limit()}"
        return text if self.actual is None else f"{text}, got {self.actual}"

    def to_value(self) -> dict[str, Value]:
        """A strict value for events and programs; a long limit is cut."""
        scalar = not isinstance(self.limit, (tuple, Mapping, str))
        return {
            "path": pointer(self.path),
            "keyword": self.keyword,
            "limit": self.limit if scalar else self._shown_limit(),
            "actual": self.actual,
        }

    def _shown_limit(self) -> str:
        text = self.limit if isinstance(self.limit, str) else canonical_text(self.limit)
        return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


_Found = tuple[Violation, ...] | None
"""What a rule answers; None = satisfied, which costs nothing to say."""


@final
class WorkExceeded(Exception):  # noqa: N818  # not an error of the arguments: nothing was found out
    """The validation would visit more than `WORK` schema nodes."""


class _Work:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK

    def spend(self, nodes: int) -> None:
        self.left -= nodes
        if self.left < 0:
            raise WorkExceeded


_Rule = Callable[[Any, _Work], _Found]


@final
class CompiledSchema:
    """A validator for one admitted schema. Immutable, and safe to share."""

    __slots__ = ("_rule", "schema")

    def __init__(self, schema: Schema) -> None:
        """`schema` comes from `purra.gateway.schema.admit`; nothing is checked again."""
        self.schema = schema
        self._rule, _ = _compile(schema)

    def violations(self, value: Value) -> tuple[Violation, ...]:
        """What `value`, a strict value frozen or not, breaks; at most `VIOLATIONS`, () if nothing.

        Raises `WorkExceeded` if finding out would take too long.
        """
        return (self._rule(value, _Work()) or ())[:VIOLATIONS]


# --- compilation: a schema to its rule, and to the number of nodes that one visit costs ----------

_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "object": (dict, MappingProxyType),
        "array": (list, tuple),
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }
)
_NAMES: Final[Mapping[type, str]] = MappingProxyType(
    {
        python: name
        for name, types in _PYTHON_TYPES.items()
        for python in types
        if (name, python) != ("number", int)
    }
)


def type_name(value: Value) -> str:
    """The JSON Schema type of a strict value; a whole float is a number here."""
    return _NAMES.get(type(value), type(value).__name__)


def _compile(schema: Schema) -> tuple[_Rule, int]:
    declared = schema.get("type", TYPES)
    names = declared if isinstance(declared, tuple) else (declared,)
    cost = 1
    union: list[_Rule] = []
    for keyword, make in (("anyOf", _any_of), ("oneOf", _one_of)):
        if keyword in schema:
            branches = [_compile(branch) for branch in schema[keyword]]
            cost += sum(spent for _, spent in branches)
            union.append(make(tuple(rule for rule, _ in branches)))
    for keyword in ("enum", "const"):
        if keyword in schema:
            allowed = schema[keyword] if keyword == "enum" else (schema[keyword],)
            rule, spent = _member(keyword, allowed, schema[keyword])
            union.append(rule)
            cost += spent
    objects, spent = _object_rules(schema)
    cost += spent
    own: dict[str, list[_Rule]] = {
        "object": objects,
        "array": _array_rules(schema),
        "string": _length_rules(schema, "minLength", "maxLength"),
        "integer": _range_rules(schema),
        "number": _range_rules(schema),
        "boolean": [],
        "null": [],
    }
    table = {python: tuple(own[name] + union) for name in names for python in _PYTHON_TYPES[name]}
    if "integer" in names and "number" not in names:
        table[float] = (_whole(declared), *own["integer"], *union)
    return _typed(table, declared), cost


def _typed(table: Mapping[type, tuple[_Rule, ...]], declared: Value) -> _Rule:
    # Made beforehand: in unions this is the usual answer, and making it is most of its cost.
    wrong = {python: (Violation((), "type", declared, name),) for python, name in _NAMES.items()}

    def check(value: Any, work: _Work) -> _Found:
        rules = table.get(type(value))
        if rules is None:
            known = wrong.get(type(value))
            return known or (Violation((), "type", declared, type_name(value)),)
        found: _Found = None
        for rule in rules:
            broken = rule(value, work)
            if broken is not None:
                found = broken if found is None else found + broken
        return found

    return check


def _whole(declared: Value) -> _Rule:
    def check(value: float, _work: _Work) -> _Found:
        return None if value.is_integer() else (Violation((), "type", declared, "number"),)

    return check


def _object_rules(schema: Schema) -> tuple[list[_Rule], int]:
    compiled = {name: _compile(inner) for name, inner in schema.get("properties", {}).items()}
    rules = tuple((name, rule) for name, (rule, _) in compiled.items())
    required = schema.get("required", ())
    closed = schema.get("additionalProperties") is False
    names = tuple(compiled)
    if not rules and not required and not closed:
        return [], 0

    def check(value: Mapping[str, Any], work: _Work) -> _Found:
        found: list[Violation] = []
        for name in required:
            if name not in value:
                found.append(Violation((), "required", name))
        known = 0
        for name, rule in rules:
            if name in value:
                known += 1
                broken = rule(value[name], work)
                if broken is not None:
                    _add_under(found, name, broken)
        if closed and len(value) > known:
            found.append(Violation((), "additionalProperties", names, len(value) - known))
        return tuple(found[:VIOLATIONS]) if found else None

    return [check], len(required) + sum(spent for _, spent in compiled.values())


def _array_rules(schema: Schema) -> list[_Rule]:
    rules = _length_rules(schema, "minItems", "maxItems")
    if "items" in schema:
        rules.append(_items(*_compile(schema["items"])))
    if schema.get("uniqueItems"):
        rules.append(_unique)
    return rules


def _items(rule: _Rule, cost: int) -> _Rule:
    def check(value: list[Any], work: _Work) -> _Found:
        work.spend(cost * len(value))
        found: list[Violation] = []
        for index, item in enumerate(value):
            broken = rule(item, work)
            if broken is not None:
                _add_under(found, index, broken)
                if len(found) >= VIOLATIONS:
                    break
        return tuple(found[:VIOLATIONS]) if found else None

    return check


def _add_under(found: list[Violation], part: str | int, broken: tuple[Violation, ...]) -> None:
    """Adds what a part broke, with the way to it."""
    for one in broken:
        found.append(Violation((part, *one.path), one.keyword, one.limit, one.actual))


def _unique(value: list[Any], work: _Work) -> _Found:
    seen: set[Hashable] = set()
    for index, item in enumerate(value):
        key = _identity(item, work)
        if key in seen:
            return (Violation((index,), "uniqueItems", True),)
        seen.add(key)
    return None


def _identity(value: Any, work: _Work) -> Hashable:
    """Equal for equal JSON values only: numbers by value, booleans never equal to numbers."""
    work.spend(2)  # hashed as well as visited
    if isinstance(value, (list, tuple)):
        return list, tuple(_identity(item, work) for item in value)
    if isinstance(value, Mapping):
        return dict, frozenset((key, _identity(item, work)) for key, item in value.items())
    return type(value) is bool, value


def _length_rules(schema: Schema, low_keyword: str, high_keyword: str) -> list[_Rule]:
    low = schema.get(low_keyword, 0)
    high = schema.get(high_keyword)

    def check(value: str | list[Any], _work: _Work) -> _Found:
        length = len(value)
        if length < low:
            return (Violation((), low_keyword, low, length),)
        if high is not None and length > high:
            return (Violation((), high_keyword, high, length),)
        return None

    return [check] if low > 0 or high is not None else []


def _range_rules(schema: Schema) -> list[_Rule]:
    low = schema.get("minimum")
    high = schema.get("maximum")

    def check(value: float, _work: _Work) -> _Found:
        if low is not None and value < low:
            return (Violation((), "minimum", low),)
        if high is not None and value > high:
            return (Violation((), "maximum", high),)
        return None

    return [check] if low is not None or high is not None else []


def _member(keyword: str, allowed: tuple[Value, ...], limit: Value) -> tuple[_Rule, int]:
    """Scalars are looked up; containers are compared one by one, each as far as it is equal."""
    containers = tuple(item for item in allowed if isinstance(item, (tuple, Mapping)))
    scalars = frozenset(
        (type(item) is bool, item) for item in allowed if not isinstance(item, (tuple, Mapping))
    )

    def check(value: Any, _work: _Work) -> _Found:
        if isinstance(value, (list, tuple, Mapping)):
            known = any(_same(item, value) for item in containers)
        else:
            known = (type(value) is bool, value) in scalars
        return None if known else (Violation((), keyword, limit),)

    return check, _parts(containers)


def _parts(value: Value) -> int:
    """How many scalars and containers a value is made of, itself not counted."""
    if isinstance(value, Mapping):
        return sum(1 + _parts(item) for item in value.values())
    return sum(1 + _parts(item) for item in value) if isinstance(value, tuple) else 0


def _same(mine: Value, other: Any) -> bool:
    """Whether two JSON values are equal. Never looks at more of `other` than `mine` is large."""
    if isinstance(mine, tuple):
        return (
            isinstance(other, (list, tuple))
            and len(mine) == len(other)
            and all(_same(left, right) for left, right in zip(mine, other, strict=True))
        )
    if isinstance(mine, Mapping):
        return (
            isinstance(other, Mapping)
            and len(mine) == len(other)
            and all(key in other and _same(item, other[key]) for key, item in mine.items())
        )
    return (type(mine) is bool) == (type(other) is bool) and bool(mine == other)


def _any_of(branches: tuple[_Rule, ...]) -> _Rule:
    def check(value: Any, work: _Work) -> _Found:
        failures: list[tuple[Violation, ...]] = []
        for branch in branches:
            broken = branch(value, work)
            if broken is None:
                return None
            failures.append(broken)
        return _nearest(failures) or (Violation((), "anyOf", len(branches), 0),)

    return check


def _one_of(branches: tuple[_Rule, ...]) -> _Rule:
    def check(value: Any, work: _Work) -> _Found:
        failures = [broken for rule in branches if (broken := rule(value, work)) is not None]
        matches = len(branches) - len(failures)
        if matches == 1:
            return None
        nearest = _nearest(failures) if matches == 0 else None
        return nearest or (Violation((), "oneOf", 1, matches),)

    return check


def _nearest(failures: list[tuple[Violation, ...]]) -> _Found:
    """The one branch that at least takes the type of the value: what it misses helps a model."""
    near = [
        broken
        for broken in failures
        if not any(one.keyword == "type" and not one.path for one in broken)
    ]
    return near[0] if len(near) == 1 else None
