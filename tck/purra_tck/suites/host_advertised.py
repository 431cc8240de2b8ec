"""LIM-008: each limit that a host says it enforces is tried, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.suites.host_capabilities import nested
from purra_tck.verdict import Case, Untestable

__all__ = ["CHECKS"]

CHECKS = Checks("LIM-008")

MIB: Final = 1024 * 1024
LIMITS: Final = {
    "inflight": 2,
    "queue": 1,
    "max_frame_bytes": 64 * 1024,
    "output_bytes": 50_000,
    "nofile": 48,
    "memory_bytes": 96 * MIB,
    "cpu_s": 30,
}
"""What the plugin of these probes is run with."""
MARK_CHARS: Final = 100
"""What a record may hold beside the line: that it was cut."""
LINES: Final = 6000
PIECE_BYTES: Final = 8192
BURST: Final = 256


Probe = Callable[[Case, Act, Puppet, int], Awaitable[None]]


async def _frame(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    asked, call = await act.asked(puppet)
    await puppet.write(frames.frame(frames.RESULT, call.id, frames.pack("x" * limit)))
    await asked.fails("too_large")


async def _message(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    error = await act.ask("x" * limit).fails("too_large")
    case.equal(error.executed, "no", f"executed of a call with {limit} bytes of arguments")


async def _raw_message(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    stream = act.stream(window_bytes=4 * MIB)
    taking = act.subject.spawn(stream.rest())
    call = await puppet.called()
    piece = frames.frame(frames.DATA, call.id, b"r" * PIECE_BYTES, frames.RAW | frames.MORE)
    for _ in range(limit // (BURST * PIECE_BYTES) + 1):
        await puppet.write(*[piece] * BURST)
    await puppet.write(frames.raw(call.id, b"its end"))
    items, error = await act.subject.within(taking, "a raw message that is too long")
    code = "no error" if error is None else error.code
    case.equal((items, code), ([], "too_large"), f"a raw message of more than {limit} bytes")


async def _output(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    stream = act.stream(window_bytes=4 * MIB)
    taking = act.subject.spawn(stream.rest())
    call = await puppet.called()
    for _ in range(limit // 4000 + 2):
        await puppet.write(frames.data(call.id, "o" * 4000))
    _, error = await act.subject.within(taking, "a stream without an end")
    code = "no error" if error is None else error.code
    case.equal(code, "resource_exhausted", f"a stream of more than {limit} bytes")


async def _inflight(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    waiting = [act.ask(n) for n in range(limit + 1)]
    for _ in range(limit):
        await puppet.called()
    await act.settled()
    open_calls = sum(found.kind == frames.CALL for found in puppet.received)
    case.equal(open_calls, limit, f"calls open of {len(waiting)}")


async def _queue(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    for n in range(LIMITS["inflight"] + limit):
        act.ask(n)
    await act.settled()
    await act.ask("one more").fails("overloaded")


async def _instances(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    for n in range(LIMITS["inflight"] * limit + 1):
        act.ask(n)
    await act.settled()
    case.require(
        act.starts() <= limit, f"at most {limit} instances", f"{act.starts()} were started"
    )


async def _tells(act: Act, puppet: Puppet, line: str, times: int = 1) -> None:
    """On its standard output where that is captured, else in messages."""
    if act.subject.has("processes"):
        await puppet.do("write", fd=1, data=f"{line}\n".encode() * times)
    else:
        body = frames.pack({"level": "info", "msg": line})
        await puppet.write(frames.frame(frames.LOG, 0, body) * times)


async def _log_line(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    await _tells(act, puppet, "L" * (2 * limit))
    await act.answers(puppet, "after a long line")
    longest = max(len(str(record["text"])) for record in act.host.logs)
    case.require(
        limit <= longest <= limit + MARK_CHARS, f"a line cut at {limit}", f"{longest} characters"
    )


async def _log_rate(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    await _tells(act, puppet, "line", LINES)
    await act.answers(puppet, "after many lines")
    count = sum(record["text"] == "line" for record in act.host.logs)
    case.require(0 < count <= 3 * limit, f"{limit} lines a second of {LINES}", f"{count} lines")


async def _nofile(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    count, _ = await puppet.do("open_files", most=4 * limit)
    case.require(count < limit, f"fewer than {limit} open files", f"{count} files")


async def _memory(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    got = await puppet.do("allocate", size=2 * limit)
    case.equal(got, 0, f"bytes to be had beyond {limit}")


async def _cpu(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    found = (await puppet.do("limits"))["RLIMIT_CPU"]
    case.equal(found[0], limit, "the kernel's limit of processor time, in seconds")


async def _late_write(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    asked = act.ask("write", exclusive=True, timeout_s=0.05)
    await puppet.called()
    await puppet.do("ignore", number=15)
    await puppet.do("stay")
    await asked.fails("deadline_exceeded")
    await puppet.gone()


async def _depth(case: Case, act: Act, puppet: Puppet, limit: int) -> None:
    told, _ = await nested(act.subject, limit + 1)
    due = ["resource_exhausted", *["value"] * limit]
    case.equal(told, due, f"the answers of {limit + 1} callbacks inside each other")


PROBES: Final[dict[str, Probe]] = {
    "frame_bytes": _frame,
    "message_bytes": _message,
    "raw_message_bytes": _raw_message,
    "output_bytes": _output,
    "inflight": _inflight,
    "queue": _queue,
    "instances": _instances,
    "callback_depth": _depth,
    "log_line_bytes": _log_line,
    "log_lines_per_s": _log_rate,
    "nofile": _nofile,
    "memory_bytes": _memory,
    "cpu_s": _cpu,
    "late_write": _late_write,
}


@CHECKS.rule("LIM-008")
@hosted
async def what_is_advertised_is_enforced(case: Case, subject: HostSubject) -> None:
    """Each limit is gone beyond, in an instance of its own. What nobody enforces reads `none`."""
    act = await subject.act(id="advertises", limits=LIMITS)
    advertised: dict[str, Any] = dict((await act.status()).limits)
    case.require(bool(advertised), "limits that are advertised", "none at all")
    held = {name: limit for name, limit in advertised.items() if limit != "none"}
    unknown = sorted(set(held) - set(PROBES))
    if unknown:
        raise Untestable(f"the kit has no probe for {', '.join(unknown)}")
    for name, limit in held.items():
        probed = await subject.act(await subject.host(), id=name.replace("_", "-"), limits=LIMITS)
        puppet = await probed.begin()
        await PROBES[name](case, probed, puppet, limit if type(limit) is int else 0)
        case.saw(f"{name} {limit} holds")
