"""FRM-006 to 009 and 016: which values pass, which bodies are refused, and what either costs."""

from __future__ import annotations

import math
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.subjects.machine import Memory
from purra_tck.vectors import Bad, bad_values, good_values
from purra_tck.verdict import Case, RuleViolation

__all__ = ["CHECKS", "ROUGH", "same"]

CHECKS = Checks("FRM")

MIB: Final = 1024 * 1024
ON_THE_CONNECTION: Final = 8
"""Bad bodies that are also tried on id 0: each costs an instance."""
ROUGH: Final[tuple[tuple[str, Any], ...]] = (
    ("NaN", math.nan),
    ("infinity", math.inf),
    ("negative infinity, deeper", {"a": [-math.inf]}),
    ("the integer 2^63", 2**63),
    ("the integer -2^63-1", [-(2**63) - 1]),
    ("a key that is no text", {1: 2}),
    ("a key that is bytes", {b"a": 1}),
    ("a set", {1, 2}),
    ("a lone surrogate", "\ud800"),
    ("an object", object()),
)
"""Arguments that no host may put on the wire."""
FALSY: Final[tuple[Any, ...]] = (None, False, 0, 0.0, "", b"", [], {})


async def _refused(case: Case, act: Act, puppet: Any, bad: Bad) -> None:
    asked = act.ask()
    call = await puppet.called(skip=(frames.CANCEL,))
    await puppet.write(frames.frame(frames.RESULT, call.id, bad.body))
    error = (await asked.ended()).error
    code = "a value" if error is None else error.code
    if code != "contract_violation":
        raise RuleViolation(
            f"contract_violation for a result that holds {bad.name}",
            f"{code}: {bad.body.hex()[:80]}",
        )
    offset = error.detail.get("offset") if error is not None else None
    case.require(
        type(offset) is int and 0 <= offset <= len(bad.body),
        f"the offset of what is wrong with {bad.name}",
        f"{bad.name}: {offset!r}",
    )


async def _each(case: Case, subject: HostSubject, rule: str) -> None:
    """Every bad body of a rule as a result: it costs its call and nothing else."""
    act = await subject.act()
    puppet = await act.begin()
    bodies = [bad for bad in bad_values() if bad.rule == rule]
    for bad in bodies:
        await _refused(case, act, puppet, bad)
        item = act.stream()
        taking = subject.spawn(item.rest())
        call = await puppet.called(skip=(frames.CANCEL,))
        await puppet.write(frames.frame(frames.DATA, call.id, bad.body))
        await puppet.write(frames.result(call.id, None))
        items, error = await subject.within(taking, "a stream with a bad item")
        code = None if error is None else error.code
        case.require(
            code == "contract_violation" and not items,
            f"contract_violation for an item that holds {bad.name}",
            f"{code}, items {items!r:.80}",
        )
    asked = act.ask()
    call = await puppet.called(skip=(frames.CANCEL,))
    await puppet.write(frames.result(call.id, "yes"))
    case.equal(await asked.value(), "yes", "the answer after all of them")
    starts = len({event.instance for event in act.events()})
    case.equal(starts, 1, f"instances after {len(bodies)} bad bodies")


@CHECKS.rule("FRM-006")
@hosted
async def an_unreadable_body_costs_its_call(case: Case, subject: HostSubject) -> None:
    """On a call it is that call's end, on the connection the connection's."""
    await _each(case, subject, "FRM-006")
    act = await subject.act(id="connection")
    bodies = [bad for bad in bad_values() if bad.rule == "FRM-006"][:ON_THE_CONNECTION]
    shapes = [("a list", frames.pack([])), ("a map without its fields", frames.pack({}))]
    for name, body in [(bad.name, bad.body) for bad in bodies] + shapes:
        puppet = await act.begin()
        await puppet.write(frames.frame(frames.LOG, 0, body))
        case.equal((await act.down()).reason, "protocol_violation", f"LOG that holds {name}")


@CHECKS.rule("FRM-007")
@hosted
async def what_is_no_strict_value_is_refused(case: Case, subject: HostSubject) -> None:
    """Encoders of other languages make them, and most decoders take them without a word."""
    await _each(case, subject, "FRM-007")
    act = await subject.act(id="caller")
    puppet = await act.begin()
    for name, value in ROUGH:
        error = await act.ask({"x": value}).fails("invalid_argument")
        case.equal(error.executed, "no", f"executed of a call whose arguments hold {name}")
    await act.answers(puppet)
    calls = [found for found in puppet.received if found.kind == frames.CALL]
    case.equal(len(calls), 1, "CALLs sent, but for the one that was right")


@CHECKS.rule("FRM-008")
@hosted
async def depth_and_claims_are_bounded(case: Case, subject: HostSubject) -> None:
    """A kilobyte may claim gigabytes, or be a thousand lists deep."""
    memory = Memory(subject.driver.pid)
    await _each(case, subject, "FRM-008")
    act = await subject.act(id="deep")
    puppet = await act.begin()
    memory.mark()
    long = b"\xdd\x00\x0f\xff\xff" * 20_000
    deep = b"\x91" * 200_000 + b"\x01"
    for name, body in (("claims inside claims, 100 kB", long), ("200000 lists deep", deep)):
        await _refused(case, act, puppet, Bad(name, "FRM-008", body))
    grown = memory.peak_growth()
    case.require(grown < 8 * MIB, "less than 8 MiB more memory for claims", f"{grown} bytes")
    asked, call = await act.asked(puppet)
    await puppet.write(frames.frame(frames.RESULT, call.id, b"\x91" * 64 + b"\x01"))
    case.equal(str(await asked.value()), "[" * 64 + "1" + "]" * 64, "a result 64 lists deep")


@CHECKS.rule("FRM-009")
@hosted
async def values_survive(case: Case, subject: HostSubject) -> None:
    """Each goes out in its shortest form, and comes back the same from every legal form."""
    act = await subject.act()
    puppet = await act.begin()
    for good in good_values():
        forms = (good.canonical, *good.other)
        if good.name != "nested 64 deep":  # inside the map of arguments it would be 65
            asked, call = await act.asked(puppet, {"x": good.value})
            case.require(
                b"\xa4args\x81\xa1x" + good.canonical in call.raw,
                f"{good.name} in its shortest form, {good.canonical.hex()[:60]}",
                f"{good.name}: {call.raw.hex()[:200]}",
            )
            await puppet.write(frames.result(call.id, None))
            await asked.value()
        for form in forms:
            asked, call = await act.asked(puppet)
            await puppet.write(frames.frame(frames.RESULT, call.id, form))
            value = await asked.value()
            case.require(
                same(value, good.value),
                f"{good.name} = {good.value!r:.60} from {form.hex()[:60]}",
                f"{good.name} = {value!r:.60} ({type(value).__name__})",
            )


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal kinds all the way down; -0.0 is not 0.0, bytes may be of any kind."""
    if isinstance(left, (bytes, bytearray)) and isinstance(right, (bytes, bytearray)):
        return left == right
    if type(left) is not type(right):
        return False
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    if type(left) is dict:
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if type(left) is float:
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


@CHECKS.rule("FRM-016")
@hosted
async def empty_is_not_missing(case: Case, subject: HostSubject) -> None:
    """Nothing, zero, false and the empty ones are answers like any other."""
    act = await subject.act()
    puppet = await act.begin()
    for value in FALSY:
        asked, call = await act.asked(puppet, value)
        case.require(same(call.args, value), f"{value!r} as arguments", f"{call.args!r}")
        await puppet.write(frames.result(call.id, value))
        found = await asked.value()
        case.require(same(found, value), f"{value!r} as a result", f"{found!r}")
    stream = act.stream()
    taking = subject.spawn(stream.rest())
    call = await puppet.called()
    await puppet.write(*(frames.data(call.id, value) for value in FALSY))
    await puppet.write(frames.batch(call.id, []), frames.batch(call.id, list(FALSY)))
    await puppet.write(frames.raw(call.id, b""), frames.raw(call.id, b"\0"))
    await puppet.write(frames.result(call.id, None))
    items, error = await subject.within(taking, "a stream of empty items")
    due = [*FALSY, *FALSY, b"", b"\0"]
    case.require(
        error is None and same(items, due), f"the items {due!r}", f"{items!r}, error {error}"
    )
