"""IOC-001 to 006: what a plugin prints, and what it cannot do by it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.subjects.machine import Memory
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("IOC")

MIB: Final = 1024 * 1024
FLOOD_BYTES: Final = 100 * MIB
LINE: Final = b"all work and no play makes a dull log, said the plugin, and said it again\n"
PIECE: Final = LINE * 800
TAIL_BYTES: Final = 64 * 1024
TEXT_CHARS: Final = 64 * 1024
"""No record is longer, whatever was printed and however it is shown."""
SECRET: Final = "canary-0f3a9c7e51"


def _texts(act: Act, stream: str) -> list[str]:
    """Texts of what one plugin printed."""
    plugin = act.stage.spec.id
    return [
        str(record["text"])
        for record in act.host.logs
        if record["stream"] == stream and record["plugin"] == plugin
    ]


async def _lines(act: Act, stream: str, count: int) -> None:
    """Waits until so many records of a stream are there."""
    await act.subject.until(lambda: len(_texts(act, stream)) >= count, f"{count} lines of {stream}")


@CHECKS.rule("IOC-001")
@hosted
async def a_flood_harms_nobody(case: Case, subject: HostSubject) -> None:
    """A hundred megabytes on standard error: drained, bounded, and the end of it is kept."""
    act, other = await subject.act(id="loud"), await subject.act(id="calm")
    puppet, beside = await act.begin(), await other.begin()
    await puppet.do("write", fd=2, data=PIECE, times=20)
    memory = Memory(subject.driver.pid)
    memory.mark()
    times = FLOOD_BYTES // len(PIECE)
    flooding = subject.spawn(puppet.do("write", fd=2, data=PIECE, times=times))
    answered = 0
    while not flooding.done():
        await other.answers(beside, "while its sibling floods")
        answered += 1
        await asyncio.sleep(0.005)
    await subject.within(flooding, "a flood that nobody blocks")
    grown = memory.peak_growth()
    case.require(grown < 16 * MIB, "less than 16 MiB more memory for the flood", f"{grown} bytes")
    case.saw(f"{answered} calls of its sibling were answered meanwhile")
    await act.answers(puppet, "after its flood")
    await puppet.do("write", fd=2, data=b"and that was the end\n")
    asked, _ = await act.asked(puppet)
    await puppet.leave("signal", number=9)
    tail = str((await asked.fails("crashed")).detail.get("stderr", ""))
    case.require(tail.endswith("and that was the end\n"), "the end of the flood", tail[-80:])
    case.require(len(tail) <= TAIL_BYTES + 200, "a tail of at most 64 KiB", f"{len(tail)} bytes")
    head = tail[:100]
    case.require("cut" in head, "a tail that begins by saying that it was cut", head)


@CHECKS.rule("IOC-002")
@hosted
async def last_words_are_kept(case: Case, subject: HostSubject) -> None:
    """A crash, and a start that takes too long, carry what the plugin wrote on standard error."""
    subject.needs("clock")
    host = await subject.host(hello_s=5.0, ready_s=5.0)
    act = await subject.act(host)
    for code in ("crashed", "handshake_timeout", "start_timeout"):
        starting = act.start()
        puppet = await act.stage.enter()
        if code == "start_timeout":
            await puppet.greet()
        await puppet.do("write", fd=2, data=f"why it ends: {code}".encode())
        if code == "crashed":
            puppet.order("exit", status=2)
        else:
            await host.advance(6.0)
        error = await starting.fails(code)
        tail = str(error.detail.get("stderr", ""))
        case.equal(tail, f"why it ends: {code}", f"the end of standard error with {code}")
        await host.advance(2.0)
        await act.down()


@CHECKS.rule("IOC-003")
@hosted
async def printing_is_not_speaking(case: Case, subject: HostSubject) -> None:
    """Neither `print` nor a write to descriptor 1 gets into the protocol."""
    act = await subject.act()
    puppet = await act.begin()
    forged = frames.result(1, "forged")
    for n in range(5):
        asked, call = await act.asked(puppet, n)
        await puppet.do("print", text=f"printed {n}")
        await puppet.do("write", fd=1, data=forged + b"\n")
        await puppet.write(frames.result(call.id, n))
        case.equal(await asked.value(), n, "an answer after printing")
    await act.answers(puppet, "after printing")
    printed = [text for text in _texts(act, "stdout") if text.startswith("printed")]
    case.equal(printed, [f"printed {n}" for n in range(5)], "what was printed, in the log")


@CHECKS.rule("IOC-004")
@hosted
async def any_bytes_are_a_log(case: Case, subject: HostSubject) -> None:
    """NUL, terminal control, what is no UTF-8, and a megabyte without an end."""
    act = await subject.act()
    puppet = await act.begin()
    odd = {
        "NUL": b"a\0b",
        "ANSI": b"\x1b[2J\x1b[31mred\x1b[0m",
        "no UTF-8": b"caf\xe9 \xff\xfe \xed\xa0\x80",
        "C1": "\x9b31m".encode(),
        "return": b"over\rwritten",
    }
    for fd in (1, 2):
        for name, text in odd.items():
            await puppet.do("write", fd=fd, data=name.encode() + b": " + text + b"\n")
        await puppet.do("write", fd=fd, data=b"long: " + b"x" * MIB)
        await puppet.do("write", fd=fd, data=b"\nafter\n")
    await act.answers(puppet, "after odd output")
    for stream in ("stdout", "stderr"):
        await _lines(act, stream, len(odd) + 2)
        texts = _texts(act, stream)
        names = [text.partition(":")[0] for text in texts]
        case.equal(names, [*odd, "long", "after"], f"the lines of {stream}")
        loose = [char for text in texts for char in text if not char.isprintable()]
        case.equal(loose, [], f"characters of {stream} that do something to a terminal")
        longest = max(map(len, texts))
        case.require(longest <= TEXT_CHARS, "no record over 64 KiB", f"{longest} characters")


@CHECKS.rule("IOC-005")
@hosted
async def each_record_says_whose_it_is(case: Case, subject: HostSubject) -> None:
    """Plugin and instance, and the order of each stream."""
    acts = [await subject.act(id=f"p{n}") for n in range(2)]
    puppets = [await act.begin() for act in acts]
    captured = subject.has("processes")
    for n in range(20):
        for puppet in puppets:
            if captured:
                await puppet.do("write", fd=1, data=f"out {n}\n".encode())
                await puppet.do("write", fd=2, data=f"err {n}\n".encode())
            line = frames.pack({"level": "info", "msg": f"log {n}", "fields": {"n": n}})
            await puppet.write(frames.frame(frames.LOG, 0, line))
    for act, puppet in zip(acts, puppets, strict=True):
        await act.answers(puppet, "after its lines")
        instance = (await act.status()).instance
        streams = (("log", "log"), ("stdout", "out"), ("stderr", "err"))
        for stream, word in streams if captured else streams[:1]:
            due = [f"{word} {n}" for n in range(20)]
            await _lines(act, stream, 20)
            case.equal(_texts(act, stream), due, f"the order of {stream}")
        owners: set[Any] = {
            record.get("instance")
            for record in act.host.logs
            if record.get("plugin") == act.stage.spec.id
        }
        case.equal(owners, {instance}, "the instance in the records of a plugin")


@CHECKS.rule("IOC-006")
@hosted
async def secrets_are_masked(case: Case, subject: HostSubject) -> None:
    """A plugin prints what it was given; nobody reads it in a log or an error."""
    act = await subject.act(secrets={"token": SECRET})
    starting = act.start()
    puppet = await act.stage.enter()
    welcome = await puppet.handshake()
    await starting.value()
    case.require(SECRET in str(welcome), "a secret that the plugin has", "it has none")
    descriptors = (1, 2) if subject.has("processes") else ()
    for fd in descriptors:
        await puppet.do("write", fd=fd, data=f"my token is {SECRET}, and again {SECRET}\n".encode())
    line = frames.pack({"level": "error", "msg": f"with {SECRET}"})
    await puppet.write(frames.frame(frames.LOG, 0, line))
    await act.answers(puppet, "after it printed a secret")
    asked, _ = await act.asked(puppet)
    await puppet.leave("exit", status=1)
    error = await asked.fails("crashed")
    told = f"{error.message} {error.detail} {[event.message for event in act.host.events]}"
    case.require(SECRET not in told, "a crash error without the secret", "the secret is in it")
    found = [str(record) for record in act.host.logs]
    printed = sum(len(_texts(act, stream)) for stream in ("stdout", "stderr", "log"))
    case.equal(printed, len(descriptors) + 1, "lines in the log")
    case.require(not any(SECRET in text for text in found), "no secret in the log", "it is there")
