"""TOL-006 to 013: effects, keys, order, and what the author calls safe and invalid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import anyio

from purra.contracts.call import CallContext, Stop
from purra.contracts.tool import Tools, ToolSchema
from purra.errors import AdapterError
from purra.limits import TOOL_GRACE_S
from purra.values import canonical_text
from purra_tck.checks import Checks
from purra_tck.subjects.plugin import PluginSubject, Reply, Running, about_plugin
from purra_tck.subjects.plugin_kernel import Asked, announce, one_by_one
from purra_tck.subjects.plugin_tap import Sent
from purra_tck.subjects.plugin_tools import (
    examples_of,
    need_examples,
    probe,
    untestable_without,
    ways_to_call,
)
from purra_tck.verdict import Case, NotApplicable, RuleViolation, SubjectFailed, Untestable

__all__ = ["CHECKS"]

CHECKS = Checks("TOL")

KINDS: Final = ("safe", "invalid")
TIMES: Final = 10
RACERS: Final = 32
STARTS: Final = 3
RUNS: Final = 3
BATCH: Final = 8
"""Calls of one batch; as many run at once."""
KEY: Final = "tck-one"
LATE_S: Final = 0.3
"""How long after a cancelled call an effect of it is still looked for."""
SENT_S: Final = 0.05
"""Time for a call to get to its handler before it is cancelled."""
CANCEL_S: Final = TOOL_GRACE_S + 1.0


# --- TOL-006 ------------------------------------------------------------------------------------


@CHECKS.rule("TOL-006")
@about_plugin
async def a_cancelled_call_says_what_is_known(case: Case, subject: PluginSubject) -> None:
    """Somebody who cancels a write wants to know whether it happened; "no" must be true."""
    running = await subject.running()
    schemas = subject.tool_schemas()
    need_examples(case, subject, "safe", [each for each in schemas if _for_examples(each)])
    for schema in schemas:
        for arguments in examples_of(subject, "safe", schema.name)[:2]:
            await _stopped_before(case, subject, running, schema, arguments)
            await _stopped_meanwhile(case, subject, running, schema, arguments)


def _for_examples(schema: ToolSchema) -> bool:
    """Of what leaves this machine or cannot be undone an author may have no safe example."""
    return schema.effect not in ("external_write", "irreversible")


async def _stopped_before(
    case: Case,
    subject: PluginSubject,
    running: Running,
    schema: ToolSchema,
    arguments: dict[str, Any],
) -> None:
    stop = Stop()
    stop.request()
    before, calls = await probe(subject), len(subject.tap.calls)
    tools = running.tools((schema,))
    expected = f"{schema.name}: a call that is cancelled before it starts has no effect"
    try:
        await tools.call(schema.name, arguments, CallContext(stop=stop))
    except AdapterError as error:
        case.require(error.executed == "no", expected, f"{error.code}, executed {error.executed}")
    else:
        raise RuleViolation(expected, "it was carried out")
    case.require(await probe(subject) == before, expected, "the state has changed")
    case.saw(f"{len(subject.tap.calls) - calls} calls at the port, none at the plugin")


async def _stopped_meanwhile(
    case: Case,
    subject: PluginSubject,
    running: Running,
    schema: ToolSchema,
    arguments: dict[str, Any],
) -> None:
    before = await probe(subject)
    stop = Stop()
    replies: list[Reply] = []
    what = f"{schema.name} {subject.shown(arguments)}"

    async def call() -> None:
        replies.append(await running.stopped(schema.name, "call", {"arguments": arguments}, stop))

    with anyio.move_on_after(SENT_S + CANCEL_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.sleep(SENT_S)
            stop.request()
    if not replies:
        raise SubjectFailed(f"{what}: an end within {CANCEL_S:g} s of the cancel", "nothing")
    (reply,) = replies
    if not _claims_nothing(schema, reply):
        case.saw(f"{what}: {reply}")
        return
    after = await _settled(subject, before)
    case.require(
        after == before,
        f"{what}: a cancelled call that says `not_started` has changed nothing "
        "(say effect_state = `unknown` when it is not known)",
        f"{reply}; the state has changed",
    )


def _claims_nothing(schema: ToolSchema, reply: Reply) -> bool:
    """Whether the answer says that there was no effect."""
    if reply.error is not None:
        claimed = reply.error.detail.get("effect_state")
        return claimed == "not_started" or reply.error.executed == "no"
    result = reply.value if isinstance(reply.value, dict) else {}
    return bool(result.get("is_error")) and result.get("effect_state") == "not_started"


async def _settled(subject: PluginSubject, before: str) -> str:
    """The state once nothing more is to be expected, or as soon as it has changed."""
    with anyio.move_on_after(LATE_S):
        while True:
            now = await probe(subject)
            if now != before:
                return now
            await anyio.sleep(LATE_S / 10)
    return await probe(subject)


# --- TOL-007 ------------------------------------------------------------------------------------


@CHECKS.rule("TOL-007")
@about_plugin
async def a_read_changes_nothing(case: Case, subject: PluginSubject) -> None:
    """Reads are retried, run at once and never asked about. A write that calls itself a read is
    done any number of times.
    """
    reads = [schema for schema in subject.tool_schemas() if schema.reads]
    if not reads:
        raise NotApplicable("all of its tools are writes")
    wanted = subject.manifest.capabilities
    elsewhere = wanted.network not in ("none", ()) or wanted.subprocess
    if elsewhere and subject.fixtures.tool.probe is None:
        raise Untestable(
            "its tools reach beyond this machine, where the kit sees nothing",
            f'to {subject.fixtures.path or "tck.toml"}\n[tool]\nprobe = ["a-program", "that '
            'prints", "the state"]  # or "module:function"',
        )
    running = await subject.running()
    for schema in reads:
        told = [each for kind in KINDS for each in examples_of(subject, kind, schema.name)]
        ways = told or [each for each, _ in ways_to_call(subject, schema, case.seed)]
        if not ways:
            raise untestable_without(subject, "safe", [schema], case.seed)
        for arguments in ways:
            before = await probe(subject)
            replies = [
                await running.ask(schema.name, "call", {"arguments": arguments})
                for _ in range(TIMES)
            ]
            after = await probe(subject)
            what = f"{schema.name} {subject.shown(arguments)}"
            case.require(
                after == before,
                f"{what}: its effect is {schema.effect!r}, so {TIMES} calls change nothing",
                f"changed: {_difference(before, after)}",
            )
            if schema.effect == "pure":
                different = len({str(reply) for reply in replies})
                case.require(
                    different == 1,
                    f"{what}: a pure tool gives one answer (else it is a world_read)",
                    f"{different} different answers in {TIMES} calls",
                )


def _difference(before: str, after: str) -> str:
    lines = set(before.splitlines()) ^ set(after.splitlines())
    return "; ".join(sorted(lines))[:300] or "nothing"


# --- TOL-008, TOL-009 ---------------------------------------------------------------------------


def _keyed(subject: PluginSubject) -> list[ToolSchema]:
    schemas = [each for each in subject.tool_schemas() if each.idempotency != "none"]
    if not schemas:
        raise NotApplicable("no tool declares idempotency")
    return schemas


@CHECKS.rule("TOL-008")
@about_plugin
async def one_key_has_one_effect(case: Case, subject: PluginSubject) -> None:
    """A run that was interrupted asks again with the same key. Two asks at once are the case that a
    table without a lock gets wrong.
    """
    for number, schema in enumerate(_keyed(subject)):
        need_examples(case, subject, "safe", [schema])
        row, race = subject.beside(f"row-{number}"), subject.beside(f"race-{number}")
        once = await _in_a_row(case, row, schema)
        await _racing(case, race, schema, once)
        await _other_arguments(case, row, schema)


async def _in_a_row(case: Case, subject: PluginSubject, schema: ToolSchema) -> str:
    """The state after one effect."""
    running = await subject.running()
    arguments = examples_of(subject, "safe", schema.name)[0]
    before = await probe(subject)
    replies = [await _with_key(running, schema, arguments, KEY)]
    once = await probe(subject)
    replies += [await _with_key(running, schema, arguments, KEY) for _ in range(TIMES - 1)]
    _one_result(case, schema, replies, "one after the other")
    if once == before:
        raise Untestable(
            f"the probe does not show the effect of {schema.name}",
            f"to {subject.fixtures.path or 'tck.toml'}\n[tool]\nprobe = …",
        )
    case.require(
        await probe(subject) == once,
        f"{schema.name}: one effect for {TIMES} calls with one key",
        "the state changed after the first call",
    )
    return once


async def _racing(case: Case, subject: PluginSubject, schema: ToolSchema, once: str) -> None:
    running = await subject.running()
    arguments = examples_of(subject, "safe", schema.name)[0]
    before = await probe(subject)
    replies: list[Reply] = []

    async def one() -> None:
        replies.append(await _with_key(running, schema, arguments, KEY))

    async with anyio.create_task_group() as tasks:
        for _ in range(RACERS):
            tasks.start_soon(one)
    _one_result(case, schema, replies, "at once")
    after = await probe(subject)
    hand = subject.fixtures.tool.probe
    if hand is not None and (hand.call or hand.command):
        count = int(after) - int(before) if before.isdigit() and after.isdigit() else 1
        case.require(count == 1, f"{schema.name}: one effect for {RACERS} calls at once", count)
        return
    case.require(
        after == once,
        f"{schema.name}: {RACERS} calls at once with one key leave what one call leaves "
        "(if that is never the same twice: a probe that prints how many effects there were)",
        f"{_difference(once, after)}",
    )


def _one_result(case: Case, schema: ToolSchema, replies: Sequence[Reply], how: str) -> None:
    different = sorted({str(reply) for reply in replies})
    case.require(
        len(different) == 1 and not _code_of(replies[0]),
        f"{schema.name}: one result for {len(replies)} calls with one key, {how}",
        f"{len(different)} different: {'; '.join(different[:3])}",
    )


async def _with_key(
    running: Running, schema: ToolSchema, arguments: dict[str, Any], key: str
) -> Reply:
    """Past the port, which would let a write run alone: the plugin itself must hold."""
    return await running.ask(schema.name, "call", {"arguments": arguments}, key=key)


async def _other_arguments(case: Case, subject: PluginSubject, schema: ToolSchema) -> None:
    running = await subject.running()
    examples = examples_of(subject, "safe", schema.name)
    if len(examples) < 2:
        raise untestable_without(subject, "safe", [schema], case.seed)
    await _with_key(running, schema, examples[0], "tck-other")
    before = await probe(subject)
    reply = await _with_key(running, schema, examples[1], "tck-other")
    conflict = _code_of(reply) == "conflict"
    case.require(
        conflict and await probe(subject) == before,
        f"{schema.name}: other arguments with a used key are a `conflict`, without effect",
        str(reply),
    )


def _code_of(reply: Reply) -> str:
    if reply.error is not None:
        return reply.error.code
    result = reply.value if isinstance(reply.value, dict) else {}
    return str(result.get("code", "")) if result.get("is_error") else ""


@CHECKS.rule("TOL-009")
@about_plugin
async def a_failed_try_is_not_done(case: Case, subject: PluginSubject) -> None:
    """A key that remembers a failure makes it final: nobody can try again."""
    schemas = _keyed(subject)
    running = await subject.running()
    for schema in schemas:
        need_examples(case, subject, "safe", [schema])
        need_examples(case, subject, "invalid", [schema])
        good = examples_of(subject, "safe", schema.name)[0]
        for bad in examples_of(subject, "invalid", schema.name):
            key = f"tck-{canonical_text(bad)[:40]}"
            failed = await _with_key(running, schema, bad, key)
            case.require(bool(_code_of(failed)), "an invalid call fails", str(failed))
            before = await probe(subject)
            tried = await _with_key(running, schema, good, key)
            case.require(
                not _code_of(tried) and await probe(subject) != before,
                f"{schema.name}: after a failed try the same key can be used and has its effect",
                f"after {failed}: {tried}",
            )


# --- TOL-010, TOL-011 ---------------------------------------------------------------------------


@CHECKS.rule("TOL-010")
@about_plugin
async def what_is_serial_does_not_overlap(case: Case, subject: PluginSubject) -> None:
    """Whoever declares a tool serial has no lock of his own."""
    schemas = [each for each in subject.tool_schemas() if each.concurrency != "parallel"]
    if not schemas:
        raise NotApplicable("all of its tools may run at the same time")
    with_examples = [each for each in schemas if examples_of(subject, "safe", each.name)]
    need_examples(case, subject, "safe", [each for each in schemas if _for_examples(each)])
    running = await subject.running()
    tools = running.tools(subject.tool_schemas())
    for schema in with_examples:
        arguments = examples_of(subject, "safe", schema.name)
        calls = [Asked(schema.name, json.dumps(each)) for each in (arguments * 3)[:3]]
        before = len(subject.tap.calls)
        await announce(tools, *([calls] for _ in range(RUNS)))
        sent = subject.tap.calls[before:]
        case.require(
            len(sent) == RUNS * len(calls), "every call is made", f"{len(sent)} calls at the port"
        )
        for first, second in _that_must_not_overlap(schema, sent):
            case.require(
                not first.overlaps(second),
                f"{schema.name} is {schema.concurrency}: its calls do not overlap",
                f"calls {first.id} and {second.id}: {_span(first)}, {_span(second)}",
            )


def _that_must_not_overlap(schema: ToolSchema, sent: Sequence[Sent]) -> list[tuple[Sent, Sent]]:
    pairs = [(one, two) for place, one in enumerate(sent) for two in sent[place + 1 :]]
    if schema.concurrency != "actor_serial":
        return pairs
    return [
        (one, two)
        for one, two in pairs
        if one.request.trace.get("run") == two.request.trace.get("run")
    ]


def _span(sent: Sent) -> str:
    end = "…" if sent.ended_s is None else f"{sent.ended_s * 1000:.1f}"
    return f"{sent.began_s * 1000:.1f} to {end} ms"


@CHECKS.rule("TOL-011")
@about_plugin
async def each_call_gets_its_own_result(case: Case, subject: PluginSubject) -> None:
    """Results that change places are the right answers to the wrong questions."""
    running = await subject.running()
    tools = running.tools(subject.tool_schemas())
    batch: list[tuple[Asked, bool]] = []
    for schema in subject.tool_schemas():
        ways = list(ways_to_call(subject, schema, case.seed))
        batch += [(Asked(schema.name, json.dumps(each)), schema.reads) for each, _ in ways[:4]]
    if len(batch) < 2:
        raise untestable_without(subject, "safe", subject.tool_schemas(), case.seed)
    reads = [asked for asked, read in batch if read][:BATCH]
    stable: dict[Asked, str] = {}
    for asked in reads:
        one, two = [str(*await one_by_one(tools, [asked])) for _ in range(2)]
        if one == two:
            stable[asked] = one
    await _in_order(case, tools, [asked for asked, _ in batch][:BATCH], {})
    for calls in (reads, reads[::-1]):
        await _in_order(case, tools, calls, stable)


async def _in_order(
    case: Case, tools: Tools, calls: Sequence[Asked], alone: dict[Asked, str]
) -> None:
    if not calls:
        return
    (told,) = await announce(tools, [calls])
    for place, asked in enumerate(calls):
        answer = told.of(0, place)
        if answer is None:
            raise RuleViolation("one result for each call of a batch", f"none for {asked}")
        case.require(
            answer.name == asked.tool and answer.order in (place, -1),
            "results in the order of the calls",
            f"call {place} ({asked.tool}) has the result {answer.order} ({answer.name})",
        )
        if asked in alone and answer.code != "tool_batch_aborted":
            case.require(
                str(answer) == alone[asked],
                f"{asked.tool} {asked.text}: the same result in a batch as alone: {alone[asked]}",
                str(answer),
            )


# --- TOL-012, TOL-013 ---------------------------------------------------------------------------


@CHECKS.rule("TOL-012")
@about_plugin
async def the_list_of_tools_stays(case: Case, subject: PluginSubject) -> None:
    """A run pins what it was offered; a list that changes by itself breaks every run at random."""
    lists: list[str] = []
    for _ in range(STARTS):
        running = await subject.start()
        tools = running.tools(subject.tool_schemas())
        for _ in range(2):
            catalog = await tools.catalog()
            lists.append(canonical_text([[each.name, each.parameters] for each in catalog]))
        await running.end()
    case.require(
        len(set(lists)) == 1, "one list over all starts and calls", f"{len(set(lists))} lists"
    )
    names = [schema.name for schema in subject.tool_schemas()]
    case.equal(len(names), len(set(names)), "names that differ")


@CHECKS.rule("TOL-013")
@about_plugin
async def examples_are_as_their_author_says(case: Case, subject: PluginSubject) -> None:
    """What is invalid is refused, by the schema or by the tool; what is safe works, and again."""
    schemas = subject.tool_schemas()
    need_examples(case, subject, "safe", [each for each in schemas if _for_examples(each)])
    if not subject.fixtures.tool.invalid:
        raise untestable_without(subject, "invalid", schemas[:1], case.seed)
    running = await subject.running()
    tools = running.tools(schemas)
    known = {schema.name for schema in schemas}
    for example in (*subject.fixtures.tool.safe, *subject.fixtures.tool.invalid):
        case.require(
            example.tool in known,
            f"{subject.fixtures.path}: examples of the tools {sorted(known)}",
            f"an example of {example.tool!r}",
        )
    for example in subject.fixtures.tool.invalid:
        text = json.dumps(subject.filled(dict(example.args)))
        (answer,) = await one_by_one(tools, [Asked(example.tool, text)])
        case.require(
            answer is not None and answer.is_error,
            f"{example.tool} {text} is refused: it is invalid",
            f"{answer}",
        )
    for example in subject.fixtures.tool.safe:
        text = json.dumps(subject.filled(dict(example.args)))
        for time in ("the first time", "again"):
            (answer,) = await one_by_one(tools, [Asked(example.tool, text)])
            case.require(
                answer is not None and not answer.is_error,
                f"{example.tool} {text} works {time}: it is safe",
                f"{answer}",
            )
