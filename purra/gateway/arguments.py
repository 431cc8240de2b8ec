"""From a call's raw argument text to checked arguments (TOOL-03, TOOL-05 to TOOL-08).

Four stages, each with one code: size, strict JSON, shape (an object), schema. Only two liberties
are taken with what a model wrote, both declared here. Empty text stands for `{}`, because providers
stream nothing for a call without arguments (K01). And a text where the schema demands a list or an
object, and nothing else, is read once more as JSON, because models quote such parts; where that
happened is recorded. A text stays a text wherever the schema allows one (K29). Nothing is
completed, closed, renamed or coerced (K05).

Errors hold places, sizes, types and limits of the schema; nothing of the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from purra.errors import PurraError
from purra.gateway.schema import TYPES, Path, Schema, pointer
from purra.gateway.strict_json import JsonError, parse
from purra.gateway.validation import WORK, CompiledSchema, Violation, WorkExceeded, type_name
from purra.limits import ARGUMENT_CHARS, ERROR_TEXT_CHARS, EVENT_VALUE_DEPTH
from purra.values import MAX_DEPTH, Value, deeper, freeze

__all__ = ["Arguments", "read_arguments", "validate"]

_BLANK: Final = " \t\n\r"
"""What JSON calls whitespace; a text of nothing else stands for `{}`."""
_QUOTABLE: Final = frozenset({"object", "array"})


@final
@dataclass(frozen=True, slots=True)
class Arguments:
    """`value`: a frozen object that satisfies the schema. `recovered`: JSON Pointers of the parts
    that came as quoted JSON and were read once more."""

    value: Mapping[str, Value]
    recovered: tuple[str, ...] = ()


def read_arguments(
    tool: str, schema: CompiledSchema, text: str, *, max_chars: int = ARGUMENT_CHARS
) -> Arguments:
    """The arguments that `text` spells for `tool`.

    Raises `PurraError` with `where` = the tool and the stage in `detail`:
    `tool_arguments_too_large` (characters, or the work of checking them),
    `invalid_tool_arguments_json` (line, column, offset), `invalid_tool_arguments_shape` (not an
    object, or the violations of the schema).
    """
    if len(text) > max_chars:
        raise _refused(
            "tool_arguments_too_large",
            tool,
            "size",
            f"the arguments have {len(text)} characters; {max_chars} are allowed",
            actual=len(text),
            bound=max_chars,
        )
    value = _document(tool, text, max_chars)
    if not isinstance(value, Mapping):
        found = type_name(value)
        raise _refused(
            "invalid_tool_arguments_shape",
            tool,
            "shape",
            f"the arguments must be one JSON object, got {found}",
            actual=found,
        )
    violations = _violations(tool, schema, value)
    if not violations:
        return Arguments(value)
    recovered: list[str] = []
    value = _unquoted(schema.schema, value, (), recovered)
    if recovered:
        value = freeze(value, where=tool)
        violations = _violations(tool, schema, value)
    if violations:
        raise _broken(tool, violations)
    return Arguments(value, tuple(recovered))


def validate(tool: str, schema: CompiledSchema, arguments: object) -> Mapping[str, Value]:
    """A frozen copy of arguments that do not come from a model's text: a person's edit, a host.

    Raises `PurraError`: `invalid_value`, or as `read_arguments` for shape, schema and work.
    """
    value = freeze(arguments, where=tool)
    if deeper(value, EVENT_VALUE_DEPTH):
        what = f"the arguments nest deeper than {EVENT_VALUE_DEPTH} levels"
        raise _refused("invalid_tool_arguments_shape", tool, "shape", what, bound=EVENT_VALUE_DEPTH)
    violations = _violations(tool, schema, value)
    if violations:
        raise _broken(tool, violations)
    frozen: Mapping[str, Value] = value
    return frozen


def _document(tool: str, text: str, max_chars: int) -> Value:
    try:
        return parse(
            text if text.strip(_BLANK) else "{}", max_chars=max_chars, max_depth=EVENT_VALUE_DEPTH
        )
    except JsonError as error:
        raise _refused(
            "invalid_tool_arguments_json",
            tool,
            "json",
            f"the arguments are not one strict JSON document: {error}",
            reason=error.reason,
            line=error.line,
            column=error.column,
            offset=error.offset,
        ) from None


def _violations(tool: str, schema: CompiledSchema, value: Value) -> Sequence[Violation]:
    try:
        return schema.violations(value)
    except WorkExceeded:
        raise _refused(
            "tool_arguments_too_large",
            tool,
            "schema",
            f"checking the arguments would take more than {WORK} steps; send shorter lists",
            bound=WORK,
        ) from None


def _broken(tool: str, violations: Sequence[Violation]) -> PurraError:
    told = "; ".join(str(one) for one in violations)
    if len(told) > ERROR_TEXT_CHARS:
        told = told[: ERROR_TEXT_CHARS - 1] + "…"
    return _refused(
        "invalid_tool_arguments_shape",
        tool,
        "schema",
        told,
        violations=[one.to_value() for one in violations],
    )


def _refused(code: str, tool: str, stage: str, message: str, **detail: Value) -> PurraError:
    return PurraError(code, message, where=tool, detail={"tool": tool, "stage": stage, **detail})


# --- quoted JSON --------------------------------------------------------------------------------


def _unquoted(schema: Schema, value: Value, path: Path, recovered: list[str]) -> Any:
    """`value` with its quoted parts read. What was read is not searched for more quotes.

    Called only for arguments that break the schema, as a quoted part always does. Bounded as the
    validation before it: properties and elements only, never the branches of a union.
    """
    if isinstance(value, str):
        demanded = _demanded(schema)
        if demanded:
            found = _quoted(value, MAX_DEPTH - len(path))
            if type_name(found) in demanded:
                recovered.append(pointer(path))
                return found
        return value
    if isinstance(value, Mapping) and "properties" in schema:
        inner = {
            name: _unquoted(below, value[name], (*path, name), recovered)
            for name, below in schema["properties"].items()
            if name in value
        }
        return {**value, **inner}
    if isinstance(value, tuple) and "items" in schema:
        return [
            _unquoted(schema["items"], item, (*path, index), recovered)
            for index, item in enumerate(value)
        ]
    return value


def _quoted(text: str, max_depth: int) -> Value:
    """The value that a text spells, None if it spells none."""
    try:
        return parse(text, max_chars=len(text), max_depth=max_depth)
    except JsonError:
        return None


def _demanded(schema: Schema) -> frozenset[str]:
    """`object`, `array` or both, if the schema accepts these, perhaps null, and nothing else."""
    accepted = _accepted(schema)
    return accepted & _QUOTABLE if accepted <= {*_QUOTABLE, "null"} else frozenset()


def _accepted(schema: Schema) -> frozenset[str]:
    declared = schema.get("type", TYPES)
    accepted = frozenset(declared if isinstance(declared, tuple) else (declared,))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            accepted &= frozenset().union(*map(_accepted, schema[keyword]))
    return accepted
