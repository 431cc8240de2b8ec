"""STR-001 to 011: items in order, credit, and streams that do not end well."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Called, Puppet
from purra_tck.subjects.host import Act, HostSubject, Stream, hosted
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("STR")

ITEMS: Final = 10_000
WINDOW_BYTES: Final = 64 * 1024
"""The default of one stream."""
LINK_BYTES: Final = 4 * 1024 * 1024
OFFERED_BYTES: Final = 1024 * 1024 * 1024
PIECE_BYTES: Final = 8 * 1024
FLUSHES: Final = 20
FLUSH_S: Final = 0.010
ABANDONED: Final = 20


async def _opened(act: Act, puppet: Puppet, **ask: Any) -> tuple[Stream, Called, asyncio.Task[Any]]:
    """A stream whose first item is awaited: only then its call is sent."""
    stream = act.stream(**ask)
    first = act.subject.spawn(stream.take())
    return stream, await puppet.called(), first


async def _fill(puppet: Puppet, call: int, window: int = WINDOW_BYTES) -> int:
    """Sends pieces while there is credit, as a producer that keeps the rules; bytes it cost."""
    spent = 0
    while spent < window + puppet.credit_of(call) and spent < 4 * LINK_BYTES:
        await puppet.write(frames.data(call, b"x" * PIECE_BYTES))
        spent += PIECE_BYTES + 3 + frames.FRAME_COST_BYTES
    return spent


@CHECKS.rule("STR-001")
@hosted
async def items_arrive_in_order(case: Case, subject: HostSubject) -> None:
    """Ten thousand numbers, alone and in batches of all sizes, each once."""
    chance = random.Random(case.seed)
    act = await subject.act()
    puppet = await act.begin()
    stream = act.stream()
    taking = subject.spawn(stream.rest())
    call = await puppet.called()
    at, spent = 0, 0
    while at < ITEMS:
        size = min(chance.choice((1, 1, 2, 3, 17, 100, 999)), ITEMS - at)
        piece = frames.batch(call.id, range(at, at + size))
        if size == 1:
            piece = frames.data(call.id, at)
        await puppet.room(call.id, spent, WINDOW_BYTES)
        puppet.post(piece)
        spent += len(piece) - frames.HEADER_BYTES + frames.FRAME_COST_BYTES
        at += size
    await puppet.write(frames.result(call.id, "end"))
    items, error = await subject.within(taking, "a stream of 10000 items")
    wrong = [n for n in range(ITEMS) if n >= len(items) or items[n] != n]
    case.require(
        not wrong and len(items) == ITEMS and error is None,
        f"the items 0 to {ITEMS - 1}, each once and in order",
        f"{len(items)} items, the first wrong one at {wrong[:1]}, error {error}",
    )
    case.equal(stream.items.result, "end", "the result after the items")


@CHECKS.rule("STR-002")
@hosted
async def nothing_follows_the_end(case: Case, subject: HostSubject) -> None:
    """An item after RESULT or ERROR is a violation, and is not handed on."""
    act = await subject.act()
    for name in ("RESULT", "ERROR"):
        puppet = await act.begin()
        stream = act.stream()
        taking = subject.spawn(stream.rest())
        call = await puppet.called()
        end = frames.result(call.id, None)
        if name == "ERROR":
            end = frames.error(call.id, "internal")
        await puppet.write(frames.data(call.id, 1), end, frames.data(call.id, 2))
        items, error = await subject.within(taking, "a stream with an item after its end")
        code = None if error is None else error.code
        due = None if name == "RESULT" else "internal"
        case.equal((items, code), ([1], due), f"the stream that ended by {name}")
        case.equal((await act.down()).reason, "protocol_violation", f"an item after {name}")


@CHECKS.rule("STR-003")
@hosted
async def credit_is_a_limit(case: Case, subject: HostSubject) -> None:
    """Of a stream, and of all streams together; whoever sends without it breaks the protocol."""
    act = await subject.act()
    for window in (0, 4096):
        puppet = await act.begin()
        stream, call, first = await _opened(act, puppet, window_bytes=window)
        case.equal(call.body.get("window") or 0, window, "the window of CALL")
        await puppet.write(frames.data(call.id, "first"))
        await subject.within(first, "the first item")
        used = len(frames.pack("first")) + 2 * frames.FRAME_COST_BYTES
        size = (window or WINDOW_BYTES) - used - 1  # so that a single byte of credit is left
        await puppet.write(frames.raw(call.id, b"x" * size), frames.raw(call.id, b"over"))
        await act.answers(puppet, "after one frame over the window, which is allowed")
        await puppet.write(frames.raw(call.id, b"y"))
        status = await act.down()
        case.equal(status.reason, "protocol_violation", f"DATA beyond a window of {window}")
        case.saw(f"taken before it: {await subject.within(stream.rest(), 'the rest')!s:.80}")
    puppet = await act.begin()
    streams = [await _opened(act, puppet, window_bytes=LINK_BYTES) for _ in range(5)]
    for _, call, _ in streams[:-1]:
        for _ in range(4):  # none of them is taken, so each keeps its credit
            await puppet.write(frames.raw(call.id, b"z" * (LINK_BYTES // 16)))
    await act.becomes("READY")
    await puppet.write(frames.raw(streams[-1][1].id, b"z"))
    case.equal(
        (await act.down()).reason, "protocol_violation", "DATA beyond the connection's window"
    )


@CHECKS.rule("STR-004")
@hosted
async def a_consumer_that_stands_still_stops_its_producer(case: Case, subject: HostSubject) -> None:
    """A gigabyte is offered, a window of it is taken, and no more is asked for."""
    act = await subject.act()
    puppet = await act.begin()
    stream, call, first = await _opened(act, puppet)
    await puppet.write(frames.data(call.id, "first"))
    await subject.within(first, "the first item")
    spent = await _fill(puppet, call.id)
    await act.answers(puppet, "while a stream stands still")
    spent += await _fill(puppet, call.id, WINDOW_BYTES - spent)
    case.require(
        spent <= 2 * WINDOW_BYTES,
        f"no credit beyond the window of {WINDOW_BYTES} bytes while nothing is taken",
        f"{spent} bytes of {OFFERED_BYTES} offered were taken",
    )
    await stream.take(4)
    got = await puppet.credited(call.id)
    case.saw(f"{spent} bytes went out, and {got} more may go after 4 items were taken")


@CHECKS.rule("STR-005")
@hosted
async def credit_that_cannot_be_is_a_violation(case: Case, subject: HostSubject) -> None:
    """Zero, less, too much, no number, or for nobody."""
    act = await subject.act()
    bad: tuple[tuple[str, bool, Any], ...] = (
        ("zero", True, 0),
        ("minus one", True, -1),
        ("2^63-1", True, 2**63 - 1),
        ("more than was sent", True, WINDOW_BYTES),
        ("a float", True, 1.0),
        ("text", True, "1"),
        ("nothing", True, None),
        ("true", True, True),
        ("a list", True, [1]),
        ("for an id that nobody issued", False, 1),
        ("more than was sent, on the connection", False, LINK_BYTES),
    )
    for name, on_call, count in bad:
        puppet = await act.begin()
        asked, call = await act.asked(puppet)
        target = call.id if on_call else (0 if "connection" in name else call.id + 50)
        await puppet.write(frames.credit(target, count))
        await asked.fails("protocol_violation")
        case.saw(f"CREDIT that is {name}: a violation")
        await act.down()


@CHECKS.rule("STR-006")
@hosted
async def whoever_leaves_gives_back(case: Case, subject: HostSubject) -> None:
    """By `aclose`, by an exception, or by forgetting the stream: one CANCEL, credit and place."""
    act = await subject.act(limits={"inflight": 2})
    puppet = await act.begin()
    for n in range(ABANDONED):
        stream, call, first = await _opened(act, puppet)
        await puppet.write(frames.data(call.id, "first"), frames.data(call.id, b"x" * 60_000))
        await subject.within(first, "the first item")
        if n % 2:
            await stream.leave()
            await stream.leave()
        del stream, first
        if not n % 2:
            gc.collect(1)  # what was made in this round is young
        found = await puppet.frame(frames.CANCEL, what="CANCEL for a stream that was left")
        case.equal(found.call, call.id, "the id of CANCEL")
        late = [frames.data(call.id, b"y" * 60_000)] * 3
        await puppet.write(*late, frames.error(call.id, "cancelled"))
    await act.answers(puppet, f"after {ABANDONED} streams were left")
    case.equal((await act.status()).calls, 0, "places that are still taken")
    cancels = sum(found.kind == frames.CANCEL for found in puppet.received)
    case.equal(cancels, ABANDONED, f"CANCELs for {ABANDONED} streams that were left")
    sent = ABANDONED * 240_000
    given = puppet.credit_of(0)
    case.require(
        given >= sent - LINK_BYTES // 2,
        f"the connection's credit back, {sent} bytes but for half a window",
        f"{given} bytes",
    )


@CHECKS.rule("STR-007")
@hosted
async def a_stream_that_breaks_does_not_end(case: Case, subject: HostSubject) -> None:
    """What was delivered stays, then comes the error; never the end of a stream that is whole."""
    act = await subject.act()
    for how in ("ERROR", "SIGKILL", "the end of the channel", "exit 0"):
        puppet = await act.begin()
        stream = act.stream()
        taking = subject.spawn(stream.rest())
        call = await puppet.called()
        await puppet.write(frames.data(call.id, 1), frames.batch(call.id, [2, 3]))
        if how == "ERROR":
            await puppet.write(frames.error(call.id, "upstream"))
        elif how == "SIGKILL":
            puppet.order("signal", number=9)
        elif how == "exit 0":
            puppet.order("exit", status=0)
        else:
            await puppet.do("close")
        items, error = await subject.within(taking, f"a stream that breaks by {how}")
        case.equal(items, [1, 2, 3], f"the items before {how}")
        case.require(
            error is not None and error.code in ("upstream", "crashed", "closed"),
            f"an error at the end of a stream that broke by {how}",
            str(error),
        )
        if how == "ERROR":
            await act.stop()
        await act.down()


@CHECKS.rule("STR-008")
@hosted
async def a_stream_may_be_empty(case: Case, subject: HostSubject) -> None:
    """An end without an item is an end."""
    act = await subject.act()
    puppet = await act.begin()
    for name, before in (("no frame", b""), ("an empty batch", b"batch")):
        stream = act.stream()
        taking = subject.spawn(stream.rest())
        call = await puppet.called()
        await puppet.write(frames.batch(call.id, []) if before else b"", frames.result(call.id, 5))
        items, error = await subject.within(taking, f"a stream of {name}")
        case.equal((items, error), ([], None), f"a stream of {name}")
        case.equal(stream.items.result, 5, "its result")
    stream = act.stream()
    taking = subject.spawn(stream.rest())
    call = await puppet.called()
    await puppet.write(frames.error(call.id, "not_found"))
    items, error = await subject.within(taking, "a stream that fails at once")
    case.equal((items, error and error.code), ([], "not_found"), "a stream that fails at once")


@CHECKS.rule("STR-009")
@hosted
async def a_slow_consumer_stalls_itself_only(case: Case, subject: HostSubject) -> None:
    """Two streams of one instance: one is not taken from, the other one goes on."""
    act = await subject.act()
    puppet = await act.begin()
    slow, slow_call, first = await _opened(act, puppet)
    await puppet.write(frames.data(slow_call.id, "first"))
    await subject.within(first, "the first item")
    await _fill(puppet, slow_call.id)
    quick = act.stream()
    taking = subject.spawn(quick.rest())
    call = await puppet.called()
    spent = 0
    for n in range(200):
        await puppet.room(call.id, spent, WINDOW_BYTES)
        await puppet.write(frames.data(call.id, [n, "x" * 1000]))
        spent += 1100
    await puppet.write(frames.result(call.id, None))
    items, error = await subject.within(taking, "the quick stream")
    case.equal(
        ([item[0] for item in items], error), (list(range(200)), None), "items of the quick stream"
    )
    await act.answers(puppet, "while a stream stands still")
    await slow.leave()


@CHECKS.rule("STR-010")
@hosted
async def an_item_is_handed_on_at_once(case: Case, subject: HostSubject) -> None:
    """It does not wait for the next one, nor for a timer."""
    act = await subject.act()
    puppet = await act.begin()
    stream, call, first = await _opened(act, puppet)
    await puppet.write(frames.data(call.id, 0))
    await subject.within(first, "the first item")
    delays: list[float] = []
    for n in range(FLUSHES):
        taking = subject.spawn(stream.take())
        await asyncio.sleep(0)
        began = time.perf_counter()
        puppet.post(frames.data(call.id, n))
        await subject.within(taking, "an item without a next one")
        delays.append(time.perf_counter() - began)
    plain: list[float] = []
    for _ in range(FLUSHES):
        began = time.perf_counter()
        await puppet.write(frames.frame(frames.STATUS, 0, frames.pack({})))
        plain.append(time.perf_counter() - began)
    bound = FLUSH_S + 2 * statistics.median(plain)
    found = statistics.median(delays)
    case.require(found <= bound, f"an item within {bound * 1000:.1f} ms", f"{found * 1000:.1f} ms")
