"""HSK-001 to 011: who is let in, and what is agreed with them."""

from __future__ import annotations

from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.drivers.host import Restarts
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.vectors import rows
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("HSK")

HELLO_BYTES: Final = 64 * 1024
LONG_S: Final = 90.0
"""Longer than any wait for a restart in these checks."""
RESTARTS: Final = Restarts(first_s=0.2, longest_s=2.0, quarantine_s=5.0)
BANNERS: Final = (b"Hello, world!\n", b"\n", b"{}", b"HTTP/1.1 200 OK\r\n")


async def _refused(act: Act, first: bytes, *codes: str) -> tuple[Puppet, Any]:
    """Starts a process that stays, writes `first`, and gives the error of the start."""
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.do("stay")
    await puppet.write(first)
    return puppet, await starting.fails(*codes)


@CHECKS.rule("HSK-001")
@hosted
async def hello_comes_first(case: Case, subject: HostSubject) -> None:
    """Whatever else comes first ends the process, and trying again is no use."""
    host = await subject.host(restarts=RESTARTS)
    for name, kind in (("RESULT", frames.RESULT), ("READY", frames.READY), ("PING", frames.PING)):
        act = await subject.act(host, id=name.lower())
        body = frames.pack({"offers": []} if name == "READY" else {})
        starting = act.start()
        puppet = await act.stage.enter()
        await puppet.do("stay")
        await puppet.write(frames.frame(kind, 0, body), puppet.hello())
        error = await starting.fails("protocol_violation")
        case.equal(error.executed, "no", f"executed after {name} first")
        await puppet.gone()
        await host.advance(LONG_S)
        await act.becomes("DOWN")
        case.equal(act.starts(), 1, f"processes started after {name} first")


@CHECKS.rule("HSK-002")
@hosted
async def the_highest_common_version_is_spoken(case: Case, subject: HostSubject) -> None:
    """From both ranges, and if they do not meet, the error names both."""
    for low, high in ((1, 1), (0, 1), (1, 2), (0, 99)):
        act = await subject.act(id=f"p{low}-{high}")
        starting = act.start()
        puppet = await act.stage.enter()
        welcome = await puppet.greet(proto=[low, high])
        case.equal(welcome["proto"], 1, f"the version agreed with {low} to {high}")
        await puppet.write(puppet.ready())
        await starting.value()
        await act.answers(puppet, f"in the version agreed with {low} to {high}")
    for low, high in ((0, 0), (2, 3), (99, 99)):
        act = await subject.act(id=f"n{low}-{high}")
        starting = act.start()
        puppet = await act.stage.enter()
        await puppet.write(puppet.hello(proto=[low, high]))
        error = await starting.fails("version_mismatch")
        told = {str(error.detail.get("plugin")), str(error.detail.get("host"))}
        case.equal(told, {str([low, high]), "[1, 1]"}, "the ranges that the error names")


@CHECKS.rule("HSK-003")
@hosted
async def another_version_is_not_tried_again(case: Case, subject: HostSubject) -> None:
    """The same program will not speak another version a second later."""
    subject.needs("restarts")
    host = await subject.host(restarts=RESTARTS)
    act = await subject.act(host)
    asked = act.ask()
    puppet = await act.stage.enter()
    await puppet.write(puppet.hello(proto=[99, 99]))
    await asked.fails("version_mismatch")
    await puppet.gone()
    await host.advance(LONG_S)
    await act.ask().fails("version_mismatch")
    await host.advance(LONG_S)
    case.equal(act.starts(), 1, "processes started after a version mismatch")


@CHECKS.rule("HSK-004")
@hosted
async def hello_is_read_as_it_is_meant(case: Case, subject: HostSubject) -> None:
    """What is new is ignored; what is missing or of a wrong type is named."""
    act = await subject.act()
    for row in rows("hello.json"):
        starting = act.start()
        puppet = await act.stage.enter()
        await puppet.write(puppet.hello(**row["change"]))
        if row["fault"] is None:
            found = await puppet.frame(frames.WELCOME, what=f"WELCOME after {row['name']}")
            case.saw(f"{found.name} after {row['name']}")
            await puppet.write(puppet.ready())
            await starting.value()
            await act.stop()
            continue
        error = await starting.fails("protocol_violation", "version_mismatch")
        case.require(
            row["fault"] in error.message,
            f"an error that names {row['fault']}, for {row['name']}",
            error.message,
        )
        await act.down()


@CHECKS.rule("HSK-005")
@hosted
async def who_it_is_must_be_in_the_manifest(case: Case, subject: HostSubject) -> None:
    """A stale install, or a plugin that claims what nobody read, is not let in."""
    act = await subject.act(offers=(("tool", "t"), ("tool", "u")))
    lies = [{"plugin": "other"}, {"version": "0.1.1"}, {"manifest_sha256": "0" * 64}]
    if not subject.has("hello"):
        lies.clear()
        await _another_manifest(case, act)
    for lie in lies:
        starting = act.start()
        puppet = await act.stage.enter()
        await puppet.write(puppet.hello(**lie))
        error = await starting.fails("manifest_mismatch")
        (field,) = lie
        case.require(field in error.message, f"an error that names {field}", error.message)
        await act.down()
    t, u, store = ("tool", "t"), ("tool", "u"), ("store", "s")
    for offers in ((t,), (t, u, store), (t, ("store", "u")), (t, u, u)):
        starting = act.start()
        puppet = await act.stage.enter()
        await puppet.greet()
        await puppet.write(puppet.ready(*offers))
        error = await starting.fails("manifest_mismatch")
        case.saw(f"{offers}: {error.message}")
        calls = [found for found in puppet.received if found.kind == frames.CALL]
        case.equal(len(calls), 0, "CALLs to a plugin that was refused")
        await act.down()
    puppet = await act.begin()
    await act.answers(puppet, "after it has told the truth")


async def _another_manifest(case: Case, act: Act) -> None:
    """The host says HELLO itself, so all that can differ is what lies on the disk."""
    manifest = act.stage.spec.folder / "purra-plugin.toml"
    before = manifest.read_bytes()
    manifest.write_bytes(before + b"# another one\n")
    error = await act.start().fails("manifest_mismatch")
    due = "manifest_sha256"
    case.require(due in error.message, f"an error that names {due}", error.message)
    manifest.write_bytes(before)
    await act.down()


@CHECKS.rule("HSK-007")
@hosted
async def a_stranger_is_read_64_kib(case: Case, subject: HostSubject) -> None:
    """Nothing is agreed before WELCOME, so nobody may send more than HELLO needs."""
    act = await subject.act()
    puppet = Puppet(0, subject.tap, subject.patience_s, act.stage.spec)
    plain = len(puppet.hello(sdk="x" * 60_000)) - 60_000
    room = HELLO_BYTES + frames.HEADER_BYTES - plain
    for over in (0, 1, 1024):
        hello = puppet.hello(sdk="x" * (room + over))
        starting = act.start()
        process = await act.stage.enter()
        await process.write(hello)
        size = len(hello) - frames.HEADER_BYTES
        if over == 0:
            found = await process.frame(frames.WELCOME, what=f"WELCOME after {size} bytes")
            case.saw(f"{found.name} after HELLO of {size} bytes")
            await act.stop()
        else:
            error = await starting.fails("protocol_violation")
            case.saw(f"HELLO of {size} bytes: {error.message}")
        await act.down()


@CHECKS.rule("HSK-008")
@hosted
async def hello_comes_once(case: Case, subject: HostSubject) -> None:
    """A second one would change who is speaking."""
    act = await subject.act()
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.greet()
    await puppet.write(puppet.hello())
    await starting.fails("protocol_violation")
    await act.down()
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    await puppet.write(puppet.hello(), frames.result(call.id, 1))
    error = await asked.fails("protocol_violation")
    case.equal((await act.down()).reason, "protocol_violation", "HELLO from an active instance")
    case.saw(error.message)


@CHECKS.rule("HSK-009")
@hosted
async def text_before_hello_is_seen_at_once(case: Case, subject: HostSubject) -> None:
    """A banner on the channel is no frame. It must not be waited for as if it were one."""
    act = await subject.act()
    for banner in BANNERS:
        puppet, error = await _refused(act, banner, "protocol_violation")
        shown = banner.strip(b"\0\r\n").decode()
        case.require(shown[:10] in error.message, f"an error that shows {banner!r}", error.message)
        await puppet.gone()
        await act.down()
    preamble = b"\0PURRA1\n" + puppet.hello()
    puppet, error = await _refused(act, preamble, "protocol_violation")
    case.saw(f"the preamble of standard streams: {error.message}")
    await act.down()
    puppet = await act.begin()
    await puppet.write(b"late banner")
    case.equal((await act.down()).reason, "protocol_violation", "text on an active channel")


@CHECKS.rule("HSK-010")
@hosted
async def older_peers_are_understood(case: Case, subject: HostSubject) -> None:
    """Sessions as they were recorded, byte by byte, when the version was new."""
    frozen: dict[str, Any] = rows("sessions.json")
    for session in frozen["sessions"]:
        host = await subject.host()
        stage = await subject.stage(id="frozen", version="1.0.0")
        (stage.spec.folder / "purra-plugin.toml").write_text(frozen["manifest"], encoding="utf-8")
        act = await subject.play(stage, host)
        starting = act.start()
        puppet = await stage.enter()
        await puppet.write(bytes.fromhex(session["hello"]))
        found = await puppet.frame(frames.WELCOME, what=f"WELCOME in session {session['name']}")
        case.saw(f"{found.name} in session {session['name']}")
        await puppet.write(bytes.fromhex(session["ready"]))
        await starting.value()
        for call in session["calls"]:
            items: list[Any] = []
            asked, _ = await act.asked(puppet, on_item=items.append)
            await puppet.write(bytes.fromhex(call["answer"]))
            ended = await asked.ended()
            how = str(ended) if ended.error is None else ended.error.code
            case.equal(how, call["ends"], f"the end of a call of session {session['name']}")
            told = [
                {"bytes": bytes(i).hex()} if isinstance(i, (bytes, bytearray)) else i for i in items
            ]
            case.equal(told, call.get("items", []), "its items")


def _told(item: Any) -> Any:
    return {"bytes": bytes(item).hex()} if isinstance(item, (bytes, bytearray)) else item


@CHECKS.rule("HSK-011")
@hosted
async def the_smaller_limit_holds(case: Case, subject: HostSubject) -> None:
    """Each limit is the smaller of both ends', in WELCOME and from then on."""
    own = {"inflight": 5, "max_frame_bytes": 8192}
    theirs = {"max_frame": 4096, "inflight": 64, "window": 2048, "max_message": 16384}
    act = await subject.act(limits=own)
    starting = act.start()
    puppet = await act.stage.enter()
    limits = (await puppet.greet(limits=theirs))["limits"]
    agreed = {name: limits.get(name) for name in theirs}
    due = {"max_frame": 4096, "inflight": 5, "window": 2048, "max_message": 16384}
    case.equal(agreed, due, "the limits of WELCOME")
    await puppet.write(puppet.ready())
    await starting.value()
    await act.ask("x" * 20_000).fails("too_large")
    asked, call = await act.asked(puppet, "y" * 6000)
    longest = max(len(found.body) for found in puppet.received)
    case.require(longest <= 4096, "no frame over the smaller limit of 4096 bytes", f"{longest}")
    await puppet.write(frames.result(call.id, None))
    await asked.value()
    stream = act.stream()
    taking = subject.spawn(stream.take())
    call = await puppet.called()
    await puppet.write(*(frames.data(call.id, "z" * 1000) for _ in range(2)))
    await subject.within(taking, "the first item")
    await puppet.write(frames.raw(call.id, b"z" * 4096), frames.raw(call.id, b"z"))
    case.equal((await act.down()).reason, "protocol_violation", "more than the window of 2048")
    puppet = await act.begin(limits={"inflight": 2})
    waiting = [act.ask(n) for n in range(4)]
    for _ in range(2):
        call = await puppet.called()
    case.equal((await act.status()).calls, 2, "calls sent where the plugin takes 2")
    await puppet.write(frames.result(call.id, None))
    await puppet.called()
    case.equal(len(puppet.waiting), 0, "calls sent beyond the smaller limit")
    case.equal(sum(asked.done for asked in waiting), 1, "calls that have ended")
