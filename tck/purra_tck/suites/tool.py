"""TOL-001 to 005: schemas, arguments, names, results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from purra.contracts.tool import Tools, ToolSchema
from purra.errors import PurraError
from purra.limits import ARGUMENT_CHARS
from purra.values import canonical_text, freeze, thaw
from purra_tck.checks import Checks
from purra_tck.schema_cases import NONCE, broken_arguments, valid_arguments
from purra_tck.subjects.plugin import PluginSubject, about_plugin
from purra_tck.subjects.plugin_kernel import Answer, Asked, Intercepted, Narrowed, one_by_one
from purra_tck.subjects.plugin_manifests import Change, judge_own, of_tools, raw_manifest, refuses
from purra_tck.subjects.plugin_tap import Sent
from purra_tck.subjects.plugin_tools import callable_freely, need_examples, ways_to_call
from purra_tck.verdict import Case, RuleViolation

__all__ = ["CHECKS"]

CHECKS = Checks("TOL")

VALID: Final = 6
"""Valid arguments that are tried of each tool."""
RESULT_BYTES: Final = 16 * 1024 * 1024
"""Largest message of the wire, and so the largest result."""
ADMITTED: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf"),
        *("enum", "const", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
        *("minimum", "maximum", "title", "description"),
    }
)
"""Keywords of a tool's schema, by chapter 15."""
MISFITS: Final = frozenset(
    {"internal", "invalid_argument", "contract_violation", "unimplemented", "tool_result_encoding"}
)
"""Codes of a handler that did not expect arguments which its schema admits."""
REFUSALS: Final = frozenset(
    {
        "invalid_tool_arguments_json",
        "invalid_tool_arguments_shape",
        "tool_arguments_too_large",
    }
)

LENIENT: Final[Mapping[str, tuple[Any, ...]]] = {
    "integer": ("7", "7.0", True),
    "number": ("7.5",),
    "boolean": ("true", 1, 0, "1"),
    "string": (7,),
}
"""By type: values that a lenient reader would make fit."""


# --- TOL-001 ------------------------------------------------------------------------------------


@CHECKS.rule("TOL-001")
@about_plugin
async def a_schema_promises_only_what_is_enforced(case: Case, subject: PluginSubject) -> None:
    """A keyword that a validator passes over is a promise that nobody keeps."""
    judge_own(case, subject)
    places = of_tools(raw_manifest(subject))
    for schema in subject.tool_schemas():
        strange = set(_keywords(thaw(schema.parameters))) - ADMITTED
        case.require(not strange, "only admitted keywords", f"{schema.name}: {sorted(strange)}")
    for what, part in _not_admitted():
        change = _with_property(places[0], part)
        refuses(case, subject, what, f"provides[{places[0]}].input", change)
    for what, whole in _not_a_schema():
        refuses(case, subject, what, f"provides[{places[0]}].input", _with_input(places[0], whole))


def _keywords(schema: Any) -> Iterator[str]:
    yield from schema
    for inner in schema.get("properties", {}).values():
        yield from _keywords(inner)
    for inner in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from _keywords(inner)
    if "items" in schema:
        yield from _keywords(schema["items"])


def _not_admitted() -> Iterator[tuple[str, Any]]:
    for keyword, value in {
        "$ref": "#/$defs/x",
        "$defs": {"x": {}},
        "$id": "https://example.org/x",
        "$anchor": "x",
        "allOf": [{}],
        "not": {},
        "if": {},
        "pattern": "(a+)+$",
        "format": "uri",
        "default": 1,
        "exclusiveMinimum": 1,
        "multipleOf": 2,
        "patternProperties": {"^a": {}},
        "propertyNames": {},
        "minProperties": 1,
        "dependentRequired": {"a": ["b"]},
        "prefixItems": [{}],
        "contains": {},
        "unevaluatedProperties": False,
        "contentEncoding": "base64",
        "tck-unknown": 1,
    }.items():
        yield f"the keyword {keyword}", {keyword: value}
    yield "an unknown type", {"type": "date"}
    yield "no type in a list of types", {"type": []}
    yield "an empty enum", {"enum": []}
    yield "a negative length", {"type": "string", "minLength": -1}
    yield "a length that is text", {"type": "string", "maxLength": "9"}
    yield "additional properties by schema", {"type": "object", "additionalProperties": {}}
    yield "a schema that is a truth value", True


def _not_a_schema() -> Iterator[tuple[str, Any]]:
    yield "input of another type than object", {"type": "array"}
    yield "input without a type", {"properties": {}}
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}}
    yield "a schema of 40 levels", deep
    wide = {f"p{number}": {"type": "string"} for number in range(4200)}
    yield "a schema of 4,200 properties", {"type": "object", "properties": wide}
    long = {"type": "object", "description": "x" * (70 * 1024)}
    yield "a schema of 70 KiB", long


def _with_property(place: int, part: Any) -> Change:
    def change(table: dict[str, Any]) -> None:
        schema = table["provides"][place].setdefault("input", {"type": "object"})
        schema.setdefault("properties", {})["tck"] = part

    return change


def _with_input(place: int, schema: Any) -> Change:
    def change(table: dict[str, Any]) -> None:
        table["provides"][place]["input"] = schema

    return change


# --- TOL-002, TOL-003 ---------------------------------------------------------------------------


@CHECKS.rule("TOL-002")
@about_plugin
async def arguments_are_judged_before_the_handler(case: Case, subject: PluginSubject) -> None:
    """A schema and its handler are written in two places: what the one admits, the other must take,
    and what it does not admit must never get there.
    """
    running = await subject.running()
    tools = running.tools(subject.tool_schemas())
    for schema in subject.tool_schemas():
        await _takes_valid(case, subject, tools, schema)
        await _stops_broken(case, subject, tools, schema)


async def _takes_valid(
    case: Case, subject: PluginSubject, tools: Tools, schema: ToolSchema
) -> None:
    edges = valid_arguments(schema.parameters, case.seed, 2 * VALID, edges=True)
    await _admits(case, subject, Intercepted(tools), schema, edges)
    before = len(subject.tap.calls)
    if callable_freely(subject, schema):
        made = valid_arguments(schema.parameters, case.seed, VALID)
        await _admits(case, subject, tools, schema, made)
    for sent in subject.tap.calls[before:]:
        _fits(case, subject, sent)


async def _admits(
    case: Case,
    subject: PluginSubject,
    tools: Tools,
    schema: ToolSchema,
    made: Sequence[Mapping[str, Any]],
) -> None:
    asked = [Asked(schema.name, json.dumps(arguments)) for arguments in made]
    for arguments, answer in zip(made, await one_by_one(tools, asked), strict=True):
        case.require(
            answer is not None and answer.code not in REFUSALS,
            "arguments that satisfy the schema are admitted",
            f"{schema.name} {subject.shown(arguments)}: {answer}",
        )


def _fits(case: Case, subject: PluginSubject, sent: Sent) -> None:
    """The handler took what its schema admits."""
    error = sent.error
    case.require(
        error is None or error.code not in MISFITS,
        f"the handler of {sent.request.adapter} takes what its schema admits (give it the missing "
        "parameter, or take it out of [provides.input])",
        f"{subject.shown(thaw(sent.request.args))}: {error or 'taken'}",
    )


async def _stops_broken(
    case: Case, subject: PluginSubject, tools: Tools, schema: ToolSchema
) -> None:
    vectors = list(broken_arguments(schema.parameters, case.seed))
    before = len(subject.tap.calls)
    asked = [Asked(schema.name, json.dumps(vector.arguments)) for vector in vectors]
    answers = await one_by_one(tools, asked)
    arrived = subject.tap.calls[before:]
    case.require(
        not arrived,
        f"arguments of {schema.name} that break its schema never reach the handler",
        f"{len(arrived)} of {len(vectors)} reached it"
        + (f", first {subject.shown(thaw(arrived[0].request.args))}" if arrived else ""),
    )
    for vector, found in zip(vectors, answers, strict=True):
        what = f"{schema.name}: {vector.keyword} at {vector.path or '/'}"
        answer = _refused(case, found, what)
        named = vector.path in answer.message or not vector.path
        case.require(named, f"{what}: the message names the place", answer.message)
        case.require(
            NONCE not in answer.message, f"{what}: the message holds no value", answer.message
        )


def _refused(case: Case, answer: Answer | None, what: str) -> Answer:
    if answer is None:
        raise RuleViolation(f"{what} is refused", "the run ended before its result")
    right = answer.is_error and answer.code in REFUSALS and answer.effect_state == "not_started"
    case.require(right, f"{what} is refused, with no effect", f"{what}: {answer}")
    return answer


@CHECKS.rule("TOL-003")
@about_plugin
async def only_one_json_object_is_arguments(case: Case, subject: PluginSubject) -> None:
    """What two parsers read differently is two calls: one that was approved and one that ran."""
    running = await subject.running()
    tools = running.tools(subject.tool_schemas())
    for schema in subject.tool_schemas():
        vectors = list(_no_arguments(schema, case.seed))
        before = len(subject.tap.calls)
        answers = await one_by_one(tools, [Asked(schema.name, text) for _, text in vectors])
        for (what, text), answer in zip(vectors, answers, strict=True):
            _refused(case, answer, f"{schema.name}: {what} ({text[:40]!r})")
        arrived = subject.tap.calls[before:]
        case.require(
            not arrived,
            "nothing of it reaches the handler",
            f"{schema.name}: {[subject.shown(thaw(sent.request.args)) for sent in arrived][:3]}",
        )


def _no_arguments(schema: ToolSchema, seed: int) -> Iterator[tuple[str, str]]:
    made = valid_arguments(schema.parameters, seed, 1)
    good = json.dumps(made[0] if made else {})
    inner = good[1:-1]
    comma = ", " if inner else ""
    yield "a list", f"[{good}]"
    yield "a text", '"x"'
    yield "a number", "1"
    yield "null", "null"
    yield "true", "true"
    yield "a comma at the end", f"{{{inner}, }}"
    yield "half of it", good[:-1]
    yield "more after it", good + good
    yield "text after it", f"{good} done"
    yield "single quotes", "{'a': 1}"
    yield "a comment", f"{{ /* x */ {inner}}}"
    yield "NaN", f'{{"tck": NaN{comma}{inner}}}'
    yield "Infinity", f'{{"tck": -Infinity{comma}{inner}}}'
    yield "a code fence", f"```json\n{good}\n```"
    yield "a lone surrogate", f'{{"tck": "\\ud800"{comma}{inner}}}'
    yield "an integer outside 64 bits", f'{{"tck": 9223372036854775808{comma}{inner}}}'
    yield "too much text", f'{{"tck": "{"x" * ARGUMENT_CHARS}"{comma}{inner}}}'
    yield "too deep", f'{{"tck": {"[" * 2000}{"]" * 2000}{comma}{inner}}}'
    parameters = thaw(schema.parameters)
    for name in list(made[0] if made else {})[:1]:
        value = json.dumps(made[0][name])
        yield "a key twice", f"{{{json.dumps(name)}: {value}, {inner}}}"
    if parameters.get("additionalProperties") is False:
        yield "a key too many", f'{{"tck": 1{comma}{inner}}}'
    yield from _other_types(parameters, made)


def _other_types(
    parameters: Mapping[str, Any], made: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    if not made:
        return
    for name, schema in parameters.get("properties", {}).items():
        kind = schema.get("type")
        if isinstance(kind, str) and name in made[0]:
            for value in LENIENT.get(kind, ()):
                yield f"{value!r} for {kind}", json.dumps({**made[0], name: value})


# --- TOL-004, TOL-005 ---------------------------------------------------------------------------


@CHECKS.rule("TOL-004")
@about_plugin
async def only_granted_tools_run(case: Case, subject: PluginSubject) -> None:
    """A name that nobody granted is a refusal with a code, for the gateway and for the plugin."""
    running = await subject.running()
    schemas = subject.tool_schemas()
    names = [schema.name for schema in schemas]
    granted, denied = names[: max(1, len(names) - 1)], names[max(1, len(names) - 1) :]
    tools = Narrowed(running.tools(schemas), granted)
    strange = [names[0].swapcase(), f"{names[0]} ", "tck-unknown", *denied]
    before = len(subject.tap.calls)
    for name, answer in zip(
        strange, await one_by_one(tools, [Asked(name, "{}") for name in strange]), strict=True
    ):
        right = answer is not None and answer.code == "unknown_tool"
        case.require(right, f"{name!r} is refused: unknown_tool", f"{name!r}: {answer}")
    case.equal(len(subject.tap.calls) - before, 0, "calls that reached the plugin")
    for name in ("tck-unknown", names[0].swapcase(), f"{names[0]}.more"):
        reply = await running.ask(name, "call", {"arguments": {}})
        case.require(
            reply.error is not None and reply.error.executed == "no",
            f"the plugin refuses the tool {name!r}, and says that nothing ran",
            f"{name!r}: {reply}",
        )


@CHECKS.rule("TOL-005")
@about_plugin
async def a_failure_is_no_success(case: Case, subject: PluginSubject) -> None:
    """An error that comes as a value is read by a model as an answer, and by a run as an effect."""
    running = await subject.running()
    for schema in subject.tool_schemas():
        for arguments, safe in ways_to_call(subject, schema, case.seed):
            sent_before = len(subject.tap.calls)
            reply = await running.ask(schema.name, "call", {"arguments": arguments})
            what = f"{schema.name} {subject.shown(arguments)}"
            case.equal(len(subject.tap.calls) - sent_before, 1, f"{what}: calls")
            if reply.error is not None:
                case.require(
                    not safe and bool(reply.error.code), f"{what} succeeds", f"{what}: {reply}"
                )
                continue
            _judge_result(case, what, reply.value, safe=safe)
    need_examples(case, subject, "safe", [s for s in subject.tool_schemas() if s.reads])


def _judge_result(case: Case, what: str, result: Any, *, safe: bool) -> None:
    shaped = type(result) is dict and "value" in result
    case.require(shaped, f"{what}: RESULT is a map with a value", f"{result!r}"[:200])
    try:
        size = len(canonical_text(freeze(result["value"])).encode())
    except PurraError as error:
        raise RuleViolation(f"{what}: a strict value", str(error)) from None
    case.require(size <= RESULT_BYTES, f"{what}: at most {RESULT_BYTES} bytes", f"{size} bytes")
    failed = result.get("is_error", False)
    case.require(not (safe and failed), f"{what} succeeds: it is safe", f"{what}: {result!r}"[:300])
    if failed:
        case.require(bool(result.get("code")), f"{what}: a failure has a code", f"{result!r}"[:200])
        return
    value = result["value"]
    hidden = isinstance(value, dict) and isinstance(value.get("error"), str) and value["error"]
    case.require(
        not hidden,
        f"{what}: a failure says is_error (raise ToolError instead of returning it)",
        f"a success with the value {value!r}"[:300],
    )
