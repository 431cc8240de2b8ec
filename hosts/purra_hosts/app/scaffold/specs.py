"""A plugin manifest against the code: what differs, and the manifest as the code would have it.

What the code says wins: names, what decorators say, signatures, docstrings. What it does not say
stays as the manifest has it, else it is the default of the effect class, written out. So a bound
that stands only in the manifest survives (`minLength` of a text), and a tool that takes
`**keywords` leaves its arguments and its description to the manifest.

Only `[[provides]]` is changed, statement by statement: comments, order and everything else of the
file stay. A statement that is written anew loses the comment at its end.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from purra.contracts.tool import EFFECTS, declare
from purra.errors import PurraError
from purra_hosts.app.scaffold.describing import Described
from purra_hosts.app.toml_text import Statement, key_text, statements, value_text

__all__ = ["Specs", "specs"]

SUMMARY_CHARS: Final = 200
PATHS_SHOWN: Final = 4
_POLICY: Final = ("permission", "idempotency", "concurrency", "approval", "timeout_s", "shared")
_ORDER: Final = ("kind", "name", "summary", "description", "effect", *_POLICY, "needs")
_SHAPE: Final = ("type", "anyOf", "oneOf")
_STRUCTURE: Final = ("properties", "required", "items", *_SHAPE)
_ABSENT: Final = object()

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Specs:
    """`text`: the manifest as the code would have it. `differences`: in words, one for each thing
    that would hold otherwise then; a default that is only written out is none.
    """

    text: str
    differences: tuple[str, ...]


def specs(text: str, described: Sequence[Described]) -> Specs:
    """Compares the manifest `text`, which has been accepted, with what the code offers.

    Raises `PurraError(plugin_broken)` for a decorator that says what a manifest cannot, and
    `unsupported` for a manifest whose adapters are written as one inline array.
    """
    tables: list[Table] = tomllib.loads(text)["provides"]
    static = [table for table in tables if table.get("catalog") != "dynamic"]
    offered = {(offer.kind, offer.name): offer for offer in described}
    differences: list[str] = []
    wanted: list[tuple[Table | None, Table]] = []
    for offer in described:
        old = next((t for t in static if (t["kind"], t["name"]) == (offer.kind, offer.name)), None)
        new = _wanted(offer, old or {})
        wanted.append((old, new))
        differences += _differences(offer, old, new)
    gone = [table for table in static if (table["kind"], table["name"]) not in offered]
    differences += [f"{table['kind']} {table['name']}: is not in the code" for table in gone]
    return Specs(_Editor(text, tables).text(wanted, gone), tuple(differences))


# --- what the code would have -------------------------------------------------------------------


def _wanted(offer: Described, old: Table) -> Table:
    """The table of one adapter, in the order in which it is written."""
    summary = old.get("summary") or offer.doc[:SUMMARY_CHARS] or offer.name
    new: Table = {"kind": offer.kind, "name": offer.name, "summary": summary}
    if offer.kind != "tool":
        return new | {key: value for key, value in old.items() if key not in new}
    facts = dict(offer.facts)
    unknown = sorted(facts.keys() - {"effect", "needs", *_POLICY})
    if unknown or facts.get("effect") not in EFFECTS:
        what = f"{unknown[0]!r} is not known" if unknown else "its effect is not one"
        raise PurraError("plugin_broken", what, where=f"@tool {offer.name}")
    if offer.description and _plain(offer.description) != _plain(_described(old) or summary):
        new["description"] = offer.description
    elif "description" in old:
        new["description"] = old["description"]
    new |= _policy(offer.name, facts, old)
    schema = old.get("input")
    if offer.input is not None:
        schema = _refined(offer.input, old.get("input", {}))
    if schema is not None:
        new["input"] = schema
    return new


def _policy(name: str, facts: Table, old: Table) -> Table:
    """What a tool is allowed, in full. A value that was the default of another effect is none of
    the author's: it gives way to the default of the new one, which may be stricter.
    """
    new: Table = {"effect": facts["effect"]}
    defaults = _defaults(name, facts["effect"])
    before = _defaults(name, old["effect"]) if "effect" in old else {}
    for key in (*_POLICY, "needs"):
        kept = old.get(key, _ABSENT)
        if kept == before.get(key) and facts["effect"] != old.get("effect"):
            kept = _ABSENT
        new[key] = facts.get(key, defaults[key] if kept is _ABSENT else kept)
    return new


def _defaults(name: str, effect: Any) -> Table:
    schema = declare(name, "", {}, effect)
    return {**{key: getattr(schema, key) for key in _POLICY}, "needs": []}


def _refined(code: Mapping[str, Any], old: Mapping[str, Any]) -> Table:
    """The schema of the code, with what only the manifest says of the same shapes."""
    new = dict(code)
    if any(code.get(key) != old.get(key) for key in _SHAPE):
        if "description" in old:
            new.setdefault("description", old["description"])
        return new
    if "properties" in code:
        known = old.get("properties", {})
        new["properties"] = {
            name: _refined(part, known.get(name, {})) for name, part in code["properties"].items()
        }
    if "items" in code and "items" in old:
        new["items"] = _refined(code["items"], old["items"])
    says_all = "properties" in code
    return new | {
        key: value
        for key, value in old.items()
        if key not in new and not (says_all and key in _STRUCTURE)
    }


def _described(table: Table) -> str:
    return str(table.get("description") or table.get("summary") or "")


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


# --- what differs -------------------------------------------------------------------------------


def _differences(offer: Described, old: Table | None, new: Table) -> Iterator[str]:
    title = f"{offer.kind} {offer.name}"
    if old is None:
        yield f"{title}: is not in the manifest"
        return
    if offer.kind != "tool":
        return
    defaults = _defaults(offer.name, old["effect"])
    for key in ("effect", *_POLICY, "needs"):
        held = old.get(key, defaults.get(key))
        if held != new[key]:
            yield f"{title}: {key} is {held!r}, the code says {new[key]!r}"
    if _plain(_described(old)) != _plain(_described(new)):
        yield f"{title}: description is not the docstring"
    paths = list(_paths(old.get("input", {}), new.get("input", {}), "input"))
    if "input" not in old and not new.get("input", {}).get("properties"):
        paths = []  # no `input` means: no arguments
    more = [f"and {len(paths) - PATHS_SHOWN} more"] if len(paths) > PATHS_SHOWN else []
    for path in [*paths[:PATHS_SHOWN], *more]:
        yield f"{title}: {path}"


def _paths(old: Any, new: Any, place: str) -> Iterator[str]:
    """Where two schemas differ. The order of `required` means nothing."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*new, *(key for key in old if key not in new)):
            inside = f"{place}.{key}"
            if key not in old:
                yield f"{inside} is not in the manifest"
            elif key not in new:
                yield f"{inside} is not in the code"
            else:
                yield from _paths(old[key], new[key], inside)
    elif place.endswith(".required"):
        if sorted(old) != sorted(new):
            yield f"{place} is {old!r}, the code says {new!r}"
    elif old != new:
        yield f"{place} is {old!r}, the code says {new!r}"


# --- the file -----------------------------------------------------------------------------------


class _Editor:
    """The statements of a manifest, and which of them are which `[[provides]]`."""

    def __init__(self, text: str, tables: list[Table]) -> None:
        self._parts: list[list[Statement]] = [[]]
        self._blocks: dict[int, int] = {}
        inside = False
        for statement in statements(text):
            if statement.header:
                starts = statement.header == 2 and statement.keys == ("provides",)
                ends = inside and statement.keys[0] != "provides"
                if starts or ends:
                    self._begin(inside)
                if starts:
                    self._blocks[len(self._parts) - 1] = len(self._blocks)
                inside = starts or (inside and not ends)
            self._parts[-1].append(statement)
        self._begin(inside)
        self._tables = tables
        if len(self._blocks) != len(tables):
            raise PurraError(
                "unsupported",
                "only adapters that stand as [[provides]] can be written",
                hint="write each adapter as a [[provides]] of its own",
            )

    def _begin(self, inside: bool) -> None:
        """Ends a part; blank lines and comments after a block are what stands before the next."""
        after: list[Statement] = []
        while inside and self._parts[-1] and not self._parts[-1][-1].keys:
            after.insert(0, self._parts[-1].pop())
        self._parts += [after, []] if inside else [[]]

    def text(self, wanted: Sequence[tuple[Table | None, Table]], gone: Sequence[Table]) -> str:
        """The whole file, with every wanted adapter and without those that are gone."""
        changed = {id(old): new for old, new in wanted if old is not None}
        dropped = {id(table) for table in gone}
        parts: list[str] = []
        last = len(self._parts)
        for index, part in enumerate(self._parts):
            number = self._blocks.get(index)
            table = None if number is None else self._tables[number]
            if table is not None:
                last = len(parts) + 1
            if id(table) in dropped:
                parts.append("")
            elif id(table) in changed and table is not None:
                parts.append(_edited(part, table, changed[id(table)]))
            else:
                parts.append("".join(statement.text for statement in part))
        added = ["\n" + _block(new) for old, new in wanted if old is None]
        return "".join([*parts[:last], *added, *parts[last:]])


def _edited(part: list[Statement], old: Table, new: Table) -> str:
    """One block, with the statements replaced that say something else."""
    keeps_input = old.get("input") == new.get("input")
    top: list[str] = []
    below: list[str] = []
    in_input = False
    for statement in part:
        if statement.header == 1:
            in_input = True
        of_input = in_input or (not statement.header and statement.keys[:1] == ("input",))
        if of_input and not keeps_input:
            continue
        key = statement.keys[0] if statement.keys and not statement.header else ""
        if not of_input and key and old[key] != new.get(key):
            top.append(_pair(key, new[key]) if key in new else "")
        else:
            (below if in_input else top).append(statement.text)
    spare: list[str] = []
    while top and not top[-1].strip():
        spare.insert(0, top.pop())
    top += [_pair(key, new[key]) for key in _ORDER if key in new and key not in old]
    if not keeps_input:
        below = [_input(new["input"])] if "input" in new else []
        spare = spare or ["\n"]
    return "".join([*top, *spare, *below]).rstrip("\n") + "\n"


def _block(table: Table) -> str:
    pairs = [_pair(key, table[key]) for key in _ORDER if key in table]
    schema = ["\n", _input(table["input"])] if "input" in table else []
    return "".join(["[[provides]]\n", *pairs, *schema])


def _pair(key: str, value: Any) -> str:
    return f"{key_text(key)} = {value_text(value, long_text=True)}\n"


def _input(schema: Mapping[str, Any]) -> str:
    """A table of its own, and one for each property that says more than one thing."""
    lines = ["[provides.input]\n"]
    lines += [_pair(key, value) for key, value in schema.items() if key != "properties"]
    for name, part in schema.get("properties", {}).items():
        lines.append(f"\n[provides.input.properties.{key_text(name)}]\n")
        lines += [_pair(key, value) for key, value in part.items()]
    return "".join(lines)
