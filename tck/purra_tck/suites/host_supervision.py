"""SUP-001 to 008 and 013 to 018: how an instance ends, who notices, and what is left of it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Final

import anyio

from purra_tck.checks import Checks
from purra_tck.drivers.host import Restarts
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.subjects.machine import Memory, Signals, alive
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("SUP")

NOTICE_S: Final = 1.0
CYCLES: Final = 100
MIB: Final = 1024 * 1024
WORDS: Final = b"these are my last words\n"
KINDS: Final = ("exit 0", "exit 1", "SIGSEGV", "SIGKILL", "channel closed")
STATUS: Final[dict[str, tuple[int | None, int | None]]] = {
    "exit 0": (0, None),
    "exit 1": (1, None),
    "SIGSEGV": (None, 11),
    "SIGKILL": (None, 9),
}
"""Exit status and signal that the error must tell."""


async def _die(puppet: Puppet, how: str) -> None:
    """Ends the process, or only its channel, with something on standard error before."""
    await puppet.do("write", fd=2, data=WORDS)
    if how == "channel closed":
        await puppet.do("stay")
        await puppet.do("close")
    elif how.startswith("exit"):
        await puppet.leave("exit", status=int(how[-1]))
    else:
        await puppet.leave("signal", number=int(getattr(signal, how)))


def _judge(case: Case, error: Any, how: str, when: str) -> None:
    """The error says how it ended, and what it last wrote."""
    due = "closed" if how == "channel closed" else "crashed"
    case.equal(error.code, due, f"the error of {how} {when}")
    found = (error.detail.get("exit"), error.detail.get("signal"))
    if how in STATUS:
        case.equal(found, STATUS[how], f"exit status and signal of {how} {when}")
    tail = str(error.detail.get("stderr", ""))
    case.require(
        tail.endswith(WORDS.decode()), f"the end of standard error with {how} {when}", repr(tail)
    )


@CHECKS.rule("SUP-001")
@hosted
async def death_before_hello(case: Case, subject: HostSubject) -> None:
    """Whatever way it ends, the start fails and says how."""
    act = await subject.act()
    for how in KINDS:
        starting = act.start()
        puppet = await act.stage.enter()
        await _die(puppet, how)
        _judge(case, await starting.fails("crashed", "closed"), how, "before HELLO")
        await puppet.gone()
        status = await act.becomes("DOWN")
        case.equal(status.pid, None, f"a process after {how} before HELLO")
    if "clock" in subject.driver.declares:
        starting = act.start()
        puppet = await act.stage.enter()
        await puppet.do("write", fd=2, data=WORDS)
        os.kill(puppet.pid, signal.SIGSTOP)
        await act.host.advance(11.0)
        error = await starting.fails("handshake_timeout")
        case.equal(
            error.detail.get("stderr"), WORDS.decode(), "what it wrote before it stood still"
        )
        await act.host.advance(2.0)
        await puppet.gone()


@CHECKS.rule("SUP-002")
@hosted
async def death_inside_hello(case: Case, subject: HostSubject) -> None:
    """Half of HELLO is not HELLO."""
    act = await subject.act()
    for how in ("exit 0", "SIGKILL", "channel closed"):
        for part in (3, 10, 40):
            starting = act.start()
            puppet = await act.stage.enter()
            await puppet.write(puppet.hello()[:part])
            await _die(puppet, how)
            error = await starting.fails("crashed", "closed")
            _judge(case, error, how, f"{part} bytes into HELLO")
            welcomes = sum(found.kind == frames.WELCOME for found in puppet.received)
            case.equal(welcomes, 0, f"WELCOMEs after {part} bytes of HELLO")
            await act.down()


@CHECKS.rule("SUP-003")
@hosted
async def death_before_ready(case: Case, subject: HostSubject) -> None:
    """Not ready is not ready: the start fails, and no call is sent."""
    act = await subject.act()
    for how in KINDS:
        starting, asked = act.start(), act.ask()
        puppet = await act.stage.enter()
        await puppet.greet()
        await _die(puppet, how)
        _judge(case, await starting.fails("crashed", "closed"), how, "before READY")
        error = await asked.fails("crashed", "closed")
        case.equal(error.executed, "no", f"executed of a call that waited, {how} before READY")
        sent = sum(found.kind == frames.CALL for found in puppet.received)
        case.equal(sent, 0, f"CALLs to an instance that was not ready ({how})")
        await act.down()
    ready = [event for event in act.events() if event.state == "READY"]
    case.equal(len(ready), 0, "instances that were announced as ready")


@CHECKS.rule("SUP-004")
@hosted
async def death_while_idle(case: Case, subject: HostSubject) -> None:
    """Noticed within a second and without a call; and exit 0 is no way to end either."""
    act = await subject.act()
    for how in KINDS:
        puppet = await act.begin()
        began = time.perf_counter()
        await _die(puppet, how)
        status = await act.down()
        took_s = time.perf_counter() - began
        due = "closed" if how == "channel closed" else "crashed"
        case.equal(status.reason, due, f"what {how} of an idle instance is")
        case.require(took_s <= NOTICE_S + 0.5, f"{how} seen within a second", f"{took_s:.2f} s")
        states = [event.state for event in act.events(act.events()[-1].instance)]
        case.require("FAILED" in states, f"FAILED announced after {how}", str(states))


@CHECKS.rule("SUP-005")
@hosted
async def calls_of_the_dead_are_not_repeated(case: Case, subject: HostSubject) -> None:
    """Sent, or half answered: both fail. What waited may go to the next instance, once."""
    subject.needs("restarts", "clock")
    host = await subject.host(restarts=Restarts(first_s=0.1, jitter=0.0))
    act = await subject.act(host, limits={"inflight": 2})
    puppet = await act.begin()
    items: list[Any] = []
    sent, half = act.ask("sent"), act.ask("half", on_item=items.append)
    await puppet.called()
    call = await puppet.called()
    queued = act.ask("queued")
    await puppet.write(frames.data(call.id, "a first half"))
    await _die(puppet, "SIGKILL")
    for name, asked in (("sent", sent), ("half answered", half)):
        error = await asked.fails("crashed")
        case.equal(error.executed, "maybe", f"executed of a call that was {name}")
    case.equal(items, ["a first half"], "items before the death")
    await host.advance(1.0)
    fresh = await act.stage.enter()
    await fresh.handshake()
    call = await fresh.called()
    await fresh.write(frames.result(call.id, "done"))
    case.equal(await queued.value(), "done", "the call that had not been sent")
    await act.answers(fresh, "after the death of the one before")
    seen = [found.value["args"] for found in fresh.received if found.kind == frames.CALL]
    case.equal(seen, ["queued", "are you there?"], "what the next instance was asked")


@CHECKS.rule("SUP-006")
@hosted
async def death_on_the_way_out(case: Case, subject: HostSubject) -> None:
    """While draining, or after it: the stop ends all the same, and at once."""
    host = await subject.host(drain_s=60.0, exit_s=60.0)
    for when in ("while draining", "after draining", "in the middle of a stream"):
        act = await subject.act(host, id=when.replace(" ", "-"))
        puppet = await act.begin()
        stream = act.stream()
        taking = subject.spawn(stream.rest())
        call = await puppet.called()
        await puppet.write(frames.data(call.id, 1))
        if when == "after draining":
            await puppet.write(frames.result(call.id, None))
            await puppet.do("stay")
        if when != "in the middle of a stream":
            stopping = subject.spawn(act.stop())
            await puppet.frame(frames.DRAIN)
            await puppet.leave("signal", number=9)
            await subject.within(stopping, f"a stop of what dies {when}")
        else:
            await puppet.leave("signal", number=9)
        items, error = await subject.within(taking, f"a stream of what dies {when}")
        case.equal(items, [1], f"items of what died {when}")
        if when != "after draining":
            code = "no error" if error is None else error.code
            case.equal(code, "crashed", f"the end of a stream of what died {when}")
        status = await act.down()
        case.equal(status.pid, None, f"a process of what died {when}")


@CHECKS.rule("SUP-007")
@hosted
async def no_channel_no_life(case: Case, subject: HostSubject) -> None:
    """A process that closes its channel and lives on is dead for its host, and then for all."""
    act = await subject.act()
    for how in ("close", "shut"):
        puppet = await act.begin()
        await puppet.do("ignore", number=15)
        await puppet.do("stay")
        asked, _ = await act.asked(puppet)
        await puppet.do(how, **({"how": 1} if how == "shut" else {}))
        await asked.fails("closed")
        await puppet.gone()
        status = await act.down()
        case.equal(status.reason, "closed", f"what {how} of the channel is")
        case.require(not alive(puppet.pid), "the process has ended", "it lives")


@CHECKS.rule("SUP-008")
@hosted
async def standing_still_is_noticed(case: Case, subject: HostSubject) -> None:
    """A stopped process does not answer a PING, and is ended; one that answers is left alone."""
    subject.needs("heartbeat", "clock")
    host = await subject.host(ping_s=5.0, unresponsive_s=20.0, term_s=1.0)
    act = await subject.act(host)
    puppet = await act.begin()
    for beat in range(1, 7):
        await host.advance(5.5)
        await puppet.until(lambda beat=beat: puppet.pings >= beat, "PING after 5 s of silence")
        await act.answers(puppet, f"{beat} PINGs")
    case.saw(f"{puppet.pings} PINGs in 33 s, all answered")
    asked, _ = await act.asked(puppet)
    os.kill(puppet.pid, signal.SIGSTOP)
    await host.advance(17.0)
    await act.settled()
    case.equal((await act.status()).state, "READY", "the state after 17 s of silence")
    await host.advance(6.0)
    await asked.fails("unresponsive")
    await host.advance(2.0)
    await puppet.gone()
    case.equal((await act.down()).reason, "unresponsive", "what standing still is")


@CHECKS.rule("SUP-013")
@hosted
async def the_past_cannot_speak(case: Case, subject: HostSubject) -> None:
    """What the last instance left behind writes to its channel; the new one is asked meanwhile."""
    if not subject.has("processes"):
        await _given_up(case, subject)
        return
    act = await subject.act()
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    late = frames.result(call.id, "from the past")
    mark = subject.folder / "written"
    subject.adopt(await puppet.do("haunt", late=late * 3, mark=str(mark)))
    first = (await act.status()).instance
    await puppet.leave("signal", number=9)
    await asked.fails("crashed")
    fresh = await act.begin()
    second = (await act.status()).instance
    case.require(first != second, "a new id for a new instance", f"{first} twice")
    asked, call = await act.asked(fresh)
    mark.with_name("written.go").touch()
    await subject.until(mark.exists, "the child has written")
    await act.settled()
    case.require(not asked.done, "no answer from an old channel", "the call has ended")
    await fresh.write(frames.result(call.id, "from the present"))
    case.equal(await asked.value(), "from the present", "the answer")


async def _given_up(case: Case, subject: HostSubject) -> None:
    """A thread that does not end still has its end of the channel, and writes to it."""
    act = await subject.act(await subject.host(grace_s=0.05, drain_s=0.05, exit_s=0.05, kill_s=0.1))
    puppet = await act.begin()
    asked, call = await act.asked(puppet, timeout_s=0.05, exclusive=True)
    await puppet.do("stay")
    first = (await act.status()).instance
    await asked.fails("deadline_exceeded")
    await act.announced("ABANDONED")
    fresh = await act.begin()
    case.require((await act.status()).instance != first, "a new id", f"{first} twice")
    asked, later = await act.asked(fresh)
    case.equal(later.id, call.id, "the id of its first call, as in the old instance")
    await puppet.write(frames.result(call.id, "from the past"))
    await act.settled()
    case.require(not asked.done, "no answer from an old channel", "the call has ended")
    await fresh.write(frames.result(later.id, "from the present"))
    case.equal(await asked.value(), "from the present", "the answer")


@CHECKS.rule("SUP-014")
@hosted
async def a_hundred_crashes_leave_nothing(case: Case, subject: HostSubject) -> None:
    """No zombie, descriptor, thread, task, nor memory that grows with each."""
    acts = [await subject.act(id=f"p{n}") for n in range(4)]
    await _all_crash(acts, 2)
    residue, memory = subject.residue(), Memory(subject.driver.pid)
    await _all_crash(acts, CYCLES // len(acts) // 2)
    memory.mark()  # not earlier: an allocator grows at first, whoever uses it
    await _all_crash(acts, CYCLES // len(acts) // 2)
    await subject.nothing_left(case, residue, f"after {CYCLES} crashes")
    grown = memory.growth()
    half = CYCLES // 2
    case.require(grown < 6 * MIB, f"less than 6 MiB more after {half} crashes", f"{grown} bytes")


async def _all_crash(acts: list[Act], count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for act in acts:
            tasks.start_soon(_crashes, act, count)


async def _crashes(act: Act, count: int) -> None:
    for _ in range(count):
        await _one_crash(act)


async def _one_crash(act: Act) -> None:
    puppet = await act.begin()
    asked, _ = await act.asked(puppet)
    await puppet.leave("signal", number=9)
    await asked.fails("crashed")
    await act.down()


@CHECKS.rule("SUP-016")
@hosted
async def a_stop_takes_all_that_was_started(case: Case, subject: HostSubject) -> None:
    """Children go with it. One in a session of its own does too, or the report says it may not."""
    act = await subject.act()
    for end in ("a stop", "a crash"):
        puppet = await act.begin()
        child = subject.adopt(await puppet.do("fork", ignore=True))
        apart = subject.adopt(await puppet.do("fork", session=True, ignore=True))
        tree = (await act.status()).isolation.get("tree", "none")
        if end == "a stop":
            await act.stop()
        else:
            await puppet.leave("signal", number=9)
            await act.down()
        await subject.ended(child, f"the child of its group ends after {end}")
        case.saw(f"the child of the group is gone after {end}")
        claimed = not tree.startswith(("none", "best effort"))
        case.require(
            not alive(apart) or not claimed,
            f"the child in its own session gone after {end}, or tree reported as best effort",
            f"it lives, and tree is {tree!r}",
        )


@CHECKS.rule("SUP-017")
@hosted
async def the_dead_are_not_signalled(case: Case, subject: HostSubject) -> None:
    """A number that was reaped may belong to anybody."""
    subject.needs("inside")
    host = await subject.host(exit_s=0.1, term_s=0.1)
    act = await subject.act(host)
    with Signals() as signals:
        for how in (*KINDS, "a stop", "a deaf stop"):
            puppet = await act.begin()
            if how == "a deaf stop":
                await puppet.do("ignore", number=15)
                await puppet.do("stay")
            if how in KINDS:
                await _die(puppet, how)
                await act.down()
            await act.stop()
            await act.stop()
        await subject.within(host.close(), "closing")
    case.require(signals.sent > 0, "signals to what lives", f"{signals.sent} signals were sent")
    case.equal(signals.to_nobody, [], "signals to processes that were reaped")


@CHECKS.rule("SUP-018")
@hosted
async def what_cannot_be_run_is_named(case: Case, subject: HostSubject) -> None:
    """The program and the system's reason, in one line; and nothing is left."""
    files = {
        "no-x": "#!/bin/sh\n",
        "bad-shebang": "#!/no/such/interpreter\n",
        "garbage": "\x7fELF but not really",
    }
    acts: dict[str, Any] = {}
    for name in ("no-such-file", "/no/such/python", *files):
        act = await subject.act(id=f"p{len(acts)}", command=(name, "x.py"), files=files)
        for file in ("bad-shebang", "garbage"):
            (act.stage.spec.folder / file).chmod(0o755)
        acts[name] = act
    await acts["no-such-file"].start().fails("spawn_failed")
    residue = subject.residue()
    for name, act in acts.items():
        error = await act.start().fails("spawn_failed")
        told = f"{error.message} {error.detail}"
        case.require(name in told, f"an error that names {name}", told)
        case.require("Traceback" not in told and "\n" not in error.message, "one line", told)
        case.equal((error.origin, error.executed), ("host", "no"), f"the blame for {name}")
        case.require(type(error.detail.get("errno")) is int, "the system's errno", told)
        case.equal((await act.down()).reason, "spawn_failed", f"the state with {name}")
    await subject.nothing_left(case, residue, "after programs that cannot be run")
