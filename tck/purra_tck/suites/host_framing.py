"""FRM-001 to 005 and 010 to 017: how a host cuts, limits and judges what comes in."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import Final

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, Asked, HostSubject, hosted
from purra_tck.subjects.machine import Memory
from purra_tck.verdict import Case, RuleViolation

__all__ = ["CHECKS"]

CHECKS = Checks("FRM")

MIB: Final = 1024 * 1024
SMALL: Final = 4096
"""The least frame limit that may be agreed."""
CLAIM_BYTES: Final = 0x00FF_FFFF
HUGE_CLAIM_BYTES: Final = 0xFFFF_FFFF
SLICES: Final = (1, 2, 3, 7, 10, 11)
STALLS: Final = 12
STALL_S: Final = 0.02
"""Between two bytes of a frame that comes slowly."""
DELAY_S: Final = 0.015
"""What a call of another instance may take longer meanwhile, beside its usual time twice over."""
MUTATIONS: Final = 10_000
KILLING: Final = 60
"""Of these, mutations of headers, each of which may cost a process."""


@CHECKS.rule("FRM-001")
@hosted
async def any_slicing_means_the_same(case: Case, subject: HostSubject) -> None:
    """A read ends anywhere: inside a header, inside a body, behind the first of many bytes."""
    act = await subject.act()
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.slice(puppet.hello())
    await puppet.frame(frames.WELCOME)
    await puppet.slice(puppet.ready())
    await starting.value()
    for size in SLICES:
        seen: list[object] = []
        plain, streamed = act.ask(1), act.ask(2, on_item=seen.append)
        failing, late = act.ask(3), act.ask(4)
        ids = [(await puppet.called()).id for _ in range(4)]
        session = [
            frames.data(ids[1], "a"),
            frames.result(ids[0], {"x": [1, 2, 3]}),
            frames.data(ids[1], "b"),
            frames.frame(frames.LOG, 0, frames.pack({"level": "info", "msg": "sliced"})),
            frames.batch(ids[1], ["c", "d"]),
            frames.error(ids[2], "not_found"),
            frames.frame(0x30, 0, b"skipped"),
            frames.raw(ids[1], b""),
            frames.frame(frames.PONG, 0, frames.pack({})),
            frames.data(ids[1], None),
            frames.result(ids[1], "all"),
            frames.result(ids[3], ""),
        ]
        await puppet.slice(b"".join(session), size)
        ends = [str(await asked.ended()) for asked in (plain, streamed, late)]
        code = (await failing.fails()).code
        found = (ends, code, seen)
        usual = (["value {'x': [1, 2, 3]}", "value 'all'", "value ''"], "not_found")
        case.equal(
            found,
            (*usual, ["a", "b", "c", "d", b"", None]),
            f"the same results in pieces of {size} bytes",
        )


@CHECKS.rule("FRM-002")
@hosted
async def frames_that_come_together_are_all_handled(case: Case, subject: HostSubject) -> None:
    """One read may hold twenty frames. All of them count, in their order."""
    act = await subject.act()
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.greet()
    lines = [
        frames.frame(frames.LOG, 0, frames.pack({"level": "info", "msg": f"line {n}"}))
        for n in range(5)
    ]
    await puppet.write(*lines, puppet.ready())
    await starting.value()
    said = [str(record["text"]) for record in act.host.logs if record["stream"] == "log"]
    case.equal(said, [f"line {n}" for n in range(5)], "log lines that came with READY in one read")
    seen: list[object] = []
    streamed = act.ask(0, on_item=seen.append)
    others = [act.ask(n) for n in range(10)]
    first = (await puppet.called()).id
    ids = [(await puppet.called()).id for _ in others]
    items = [frames.data(first, n) for n in range(20)]
    results = [frames.result(call, n) for n, call in enumerate(ids)]
    await puppet.write(*items, *results, frames.result(first, "end"))
    case.equal([await other.value() for other in others], list(range(10)), "results of one read")
    case.equal(await streamed.value(), "end", "the last result of one read")
    case.equal(seen, list(range(20)), "items of one read, in order")


@CHECKS.rule("FRM-003")
@hosted
async def no_memory_for_a_claim(case: Case, subject: HostSubject) -> None:
    """Four bytes may say 4 GiB. A host that allocates first dies of a header."""
    act = await subject.act()
    puppet = await act.begin()
    await act.answers(puppet)
    asked, call = await act.asked(puppet)
    memory = Memory(subject.driver.pid)
    memory.mark()
    claim = frames.frame(frames.RESULT, call.id, b"some of it", size=CLAIM_BYTES)
    await puppet.write(claim)
    error = await asked.fails("too_large")
    case.saw(f"{error} for a claim of {CLAIM_BYTES} bytes")
    grown = memory.peak_growth()
    case.require(
        grown < 2 * MIB, "less than 2 MiB more memory for a claim of 16 MiB", f"{grown} bytes"
    )
    await act.stop()
    puppet = await act.begin()
    await act.answers(puppet)
    memory.mark()
    await puppet.write(frames.frame(frames.RESULT, 1, b"some of it", size=HUGE_CLAIM_BYTES))
    status = await act.down()
    case.equal(status.reason, "protocol_violation", "what a claim of 4 GiB is")
    grown = memory.peak_growth()
    case.require(
        grown < 2 * MIB, "less than 2 MiB more memory for a claim of 4 GiB", f"{grown} bytes"
    )


@CHECKS.rule("FRM-004")
@hosted
async def the_frame_limit_is_exact(case: Case, subject: HostSubject) -> None:
    """To the byte, in both directions, on a call and on the connection."""
    act = await subject.act()
    puppet = await act.begin(limits={"max_frame": SMALL, "max_message": 4 * SMALL})
    body = frames.pack("x" * (SMALL - 3))
    for size, answer in ((len(body), "value"), (len(body) + 1, "error")):
        asked, call = await act.asked(puppet)
        await puppet.write(frames.frame(frames.RESULT, call.id, body.ljust(size, b"\xc0")[:size]))
        ended = await asked.ended()
        case.equal(ended.how, answer, f"the end of a call with a result frame of {size} bytes")
        if ended.error is not None:
            case.equal(ended.error.code, "too_large", f"the error of a frame of {size} bytes")
    await act.answers(puppet)
    for size in (SMALL - 200, SMALL, 3 * SMALL):
        before = len(puppet.received)
        asked, call = await act.asked(puppet, "y" * size)
        longest = max(len(found.body) for found in puppet.received[before:])
        case.require(longest <= SMALL, f"no frame over {SMALL} bytes", f"one of {longest}")
        case.equal(call.args, "y" * size, "the arguments that came in fragments")
        await puppet.write(frames.result(call.id, None))
        await asked.value()
    before = len(puppet.received)
    error = await act.ask("z" * 4 * SMALL).fails("too_large")
    case.equal(error.executed, "no", "executed of a call that is over the message limit")
    await act.answers(puppet)
    calls = [f for f in puppet.received[before:] if f.kind == frames.CALL]
    case.equal(len(calls), 1, "CALLs sent, but for the next one")
    log = frames.pack({"level": "info", "msg": ""})
    line = frames.pack({"level": "info", "msg": "l" * (SMALL - len(log) - 2)})
    await puppet.write(frames.frame(frames.LOG, 0, line))
    await act.answers(puppet)
    await puppet.write(frames.frame(frames.LOG, 0, line + b"\xc0"))
    case.equal((await act.down()).reason, "protocol_violation", "a frame over the limit on id 0")


@CHECKS.rule("FRM-005")
@hosted
async def a_frame_that_is_cut_off_is_dropped(case: Case, subject: HostSubject) -> None:
    """The process ends after each byte of its answer: no part of it may be taken for the whole."""
    act = await subject.act()
    whole = frames.result(1, "partial")
    for cut in range(len(whole)):
        puppet = await act.begin()
        seen: list[object] = []
        asked, call = await act.asked(puppet, on_item=seen.append)
        await puppet.write(frames.result(call.id, "partial")[:cut])
        puppet.order("exit", status=0)
        ended = await asked.ended()
        case.require(
            ended.error is not None and ended.error.code in ("crashed", "closed") and not seen,
            f"the loss of the connection after {cut} of {len(whole)} bytes",
            f"{ended}, items {seen}",
        )
        await act.down()


@CHECKS.rule("FRM-010")
@hosted
async def unknown_types_are_skipped_unless_they_matter(case: Case, subject: HostSubject) -> None:
    """A newer peer may add messages. Bit 7 says which of them must be understood."""
    act = await subject.act()
    puppet = await act.begin()
    strange = (0x0A, 0x0F, 0x16, 0x30, 0x7F)
    asked, call = await act.asked(puppet)
    for kind in strange:
        body = b"\xc1 not even a value"
        await puppet.write(frames.frame(kind, 0, body), frames.frame(kind, call.id, body))
    await puppet.write(frames.result(call.id, "after"))
    case.equal(await asked.value(), "after", "the answer after frames of unknown type")
    ignored = (await act.status()).ignored
    if ignored is not None:
        count = sum(ignored.values())
        case.equal(count, 2 * len(strange), "frames that were skipped and counted")
    for kind in (0x80, 0x80 | frames.RESULT, 0xFF):
        await puppet.write(frames.frame(kind, 0, b""))
        status = await act.down()
        case.equal(status.reason, "protocol_violation", f"a frame of type {kind}, with bit 7")
        puppet = await act.begin()


@CHECKS.rule("FRM-011")
@hosted
async def answers_to_nothing(case: Case, subject: HostSubject) -> None:
    """An id that nobody issued is a violation; one that is over may only be late."""
    act = await subject.act()
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    await puppet.write(frames.result(call.id, 1))
    case.equal(await asked.value(), 1, "the answer before a late CREDIT")
    await puppet.write(frames.credit(call.id, 1))
    await act.answers(puppet, "after a late CREDIT")
    asked, call = await act.asked(puppet)
    asked.cancel()
    await puppet.frame(frames.CANCEL)
    await puppet.write(frames.data(call.id, "late"), frames.result(call.id, "late"))
    await act.answers(puppet, "after late frames of a call that was cancelled")
    ignored = (await act.status()).ignored
    if ignored is not None:
        case.require(sum(ignored.values()) >= 2, "late frames are counted", str(ignored))
    never = call.id + 100
    for what, stray in (
        ("RESULT", frames.result(never, 1)),
        ("ERROR", frames.error(never, "internal")),
        ("DATA", frames.data(never, 1)),
        ("CREDIT", frames.credit(never, 1)),
        ("RESULT on an id of its own", frames.result(2, 1)),
    ):
        asked, _ = await act.asked(puppet)
        await puppet.write(stray)
        error = await asked.fails()
        case.equal(error.code, "protocol_violation", f"{what} for an id that was never issued")
        await act.down()
        puppet = await act.begin()
    asked, call = await act.asked(puppet)
    again = frames.call(2, "nobody", "x", None, parent=call.id)
    await puppet.write(again)
    await puppet.frame(frames.ERROR, what="the refusal of a callback to nobody")
    await puppet.write(again)
    error = await asked.fails()
    case.equal(error.code, "protocol_violation", "the end after a callback whose id was used")


@CHECKS.rule("FRM-012")
@hosted
async def a_second_terminal_is_a_violation(case: Case, subject: HostSubject) -> None:
    """The first one stands, also if both come in one read."""
    act = await subject.act()
    for second in ("result", "error"):
        puppet = await act.begin()
        asked, call = await act.asked(puppet)
        again = (
            frames.result(call.id, "second")
            if second == "result"
            else frames.error(call.id, "internal")
        )
        await puppet.write(frames.result(call.id, "first"), again)
        case.equal(
            str(await asked.ended()), "value 'first'", "the end of a call with two terminals"
        )
        case.equal((await act.down()).reason, "protocol_violation", f"a second terminal, {second}")


@CHECKS.rule("FRM-013")
@hosted
async def a_violation_costs_one_instance(case: Case, subject: HostSubject) -> None:
    """Whoever sits beside it does not notice."""
    bad, good = await subject.act(id="bad"), await subject.act(id="good")
    puppet, other = await bad.begin(), await good.begin()
    waiting = [good.ask(n) for n in range(5)]
    ids = [(await other.called()).id for _ in waiting]
    asked, _ = await bad.asked(puppet)
    await puppet.write(b"no frame at all")
    case.equal((await asked.fails()).code, "protocol_violation", "the end of the bad one's call")
    await bad.down()
    await other.write(*(frames.result(call, n) for n, call in enumerate(ids)))
    ends = [str(await each.ended()) for each in waiting]
    case.equal(ends, [f"value {n}" for n in range(5)], "the calls of its sibling")
    await good.answers(other)
    states = [event.state for event in good.events()]
    case.equal(states[-1], "READY", "the last state of its sibling")


@CHECKS.rule("FRM-014")
@hosted
async def a_slow_frame_delays_nobody_else(case: Case, subject: HostSubject) -> None:
    """A frame that comes byte by byte must not be waited for where others are served."""
    slow, quick = await subject.act(id="slow"), await subject.act(id="quick")
    puppet, other = await slow.begin(), await quick.begin()
    line = frames.frame(frames.LOG, 0, frames.pack({"level": "info", "msg": "whole"}))
    usual = [await _latency(quick, other, puppet, line) for _ in range(STALLS)]
    asked, call = await slow.asked(puppet)
    whole = frames.result(call.id, "slow" * 4)
    meanwhile: list[float] = []
    for at in range(STALLS):
        meanwhile.append(await _latency(quick, other, puppet, whole[at : at + 1]))
        await asyncio.sleep(STALL_S)
    await puppet.write(whole[STALLS:])
    case.equal(await asked.value(), "slow" * 4, "the slow answer")
    bound = 2 * statistics.median(usual) + DELAY_S
    found = statistics.median(meanwhile)
    case.require(
        found <= bound,
        f"a call of another instance within {bound * 1000:.1f} ms while a frame stalls",
        f"{found * 1000:.1f} ms",
    )


async def _latency(act: Act, puppet: Puppet, other: Puppet, piece: bytes) -> float:
    """From a call to its answer, while another process writes something."""
    began = time.perf_counter()
    asked, call = await act.asked(puppet)
    await other.write(piece)
    await puppet.write(frames.result(call.id, None))
    await asked.value()
    return time.perf_counter() - began


@CHECKS.rule("FRM-015")
@hosted
async def a_large_message_lets_small_ones_pass(case: Case, subject: HostSubject) -> None:
    """While 12 MiB are under way to a plugin, a small call is not behind all of them."""
    act = await subject.act()
    puppet = await act.begin()
    await puppet.do("deaf", deaf=True)
    large = act.ask(b"x" * 12 * MIB)
    small = act.ask("small")
    await asyncio.sleep(0)
    await puppet.do("deaf", deaf=False)
    parts, at, ahead = 0, 0, -1
    more = True
    while more:
        found = await puppet.frame(frames.CALL)
        if found.call != 1:
            ahead = at
            await puppet.write(frames.result(found.call, "small"))
            continue
        parts, at, more = parts + 1, at + len(found.body), bool(found.flags & frames.MORE)
        if parts > 1:  # the first fragment of a CALL costs nothing
            await puppet.write(frames.credit(0, len(found.body) + frames.FRAME_COST_BYTES))
    await puppet.write(frames.result(1, "large"))
    case.require(parts > 1, "a large message in fragments", f"{parts} frames")
    case.require(
        0 <= ahead < 12 * MIB, "a small call before the end of a large one", f"after {ahead} bytes"
    )
    case.equal(await small.value(), "small", "the small answer")
    case.equal(await large.value(), "large", "the large answer")


@CHECKS.rule("FRM-017")
@hosted
async def damaged_sessions_harm_nobody(case: Case, subject: HostSubject) -> None:
    """Seeded damage to bodies and headers: each call ends, and nothing else happens."""
    chance = random.Random(case.seed)
    act = await subject.act(limits={"inflight": 256})
    puppet = await act.begin(limits={"inflight": 256})
    value = {"text": "héllo 😀", "list": [1, -2, 3.5, None, True], "bytes": b"\x00\xff", "n": 2**40}
    good = frames.pack(value)
    counts: dict[str, int] = {}
    left = MUTATIONS - KILLING
    while left > 0:
        asked = [act.ask(n) for n in range(min(250, left))]
        ids = [(await puppet.called()).id for _ in asked]
        bodies = [_damaged(good, chance) for _ in ids]
        chance.shuffle(ids)
        await puppet.write(
            *(frames.frame(frames.RESULT, call, b) for call, b in zip(ids, bodies, strict=True))
        )
        await _count(asked, counts, ("contract_violation",))
        left -= len(asked)
    await act.answers(puppet)
    case.saw(f"damaged bodies: {counts}")
    counts = {}
    for _ in range(KILLING):
        asked = [act.ask(n) for n in range(3)]
        ids = [(await puppet.called()).id for _ in asked]
        session = b"".join(frames.result(call, n) for n, call in enumerate(ids))
        await puppet.write(_damaged(session, chance))
        puppet.order("exit", status=0)
        await _count(asked, counts, ())
        await act.down()
        puppet = await act.begin()
    case.require(sum(counts.values()) == 3 * KILLING, "an end for each call", str(counts))


def _damaged(whole: bytes, chance: random.Random) -> bytes:
    """One to three of: a flipped bit, a lost byte, an inserted byte, a cut, a doubled piece."""
    data = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0 if data:
                data[at] ^= 1 << chance.randrange(8)
            case 1 if data:
                del data[at]
            case 2:
                data.insert(at, chance.randrange(256))
            case 3:
                del data[at:]
            case _:
                data[at:at] = data[at : at + 4]
    return bytes(data)


async def _count(asked: list[Asked], counts: dict[str, int], codes: tuple[str, ...]) -> None:
    for each in asked:
        ended = await each.ended()
        name = ended.how if ended.error is None else ended.error.code
        counts[name] = counts.get(name, 0) + 1
        if codes and ended.error is not None and name not in codes:
            raise RuleViolation(f"a value or {' or '.join(codes)}", str(ended))
