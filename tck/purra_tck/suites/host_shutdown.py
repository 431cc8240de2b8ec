"""SHD-001 to 007: how instances are ended, in order and otherwise, and how one follows another."""

from __future__ import annotations

from typing import Any, Final

import anyio

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Asked, HostSubject, hosted
from purra_tck.verdict import Case, SubjectFailed

__all__ = ["CHECKS"]

CHECKS = Checks("SHD")

MIB: Final = 1024 * 1024
PLUGINS: Final = 8
LOAD: Final = 60
QUANTUM_S: Final = 0.6
"""What a step may be late: the kit moves the clock by quarters of a second."""


@CHECKS.rule("SHD-001")
@hosted
async def an_orderly_stop_lets_calls_finish(case: Case, subject: HostSubject) -> None:
    """DRAIN, then answers, then the end of the channel, then exit 0; nobody is killed."""
    host = await subject.host(drain_s=30.0, exit_s=30.0)
    act = await subject.act(host)
    puppet = await act.begin()
    asked = [await act.asked(puppet, n) for n in range(3)]
    stopping = subject.spawn(act.stop())
    drain = await puppet.frame(frames.DRAIN, what="DRAIN at an orderly stop")
    told = drain.value
    case.equal(type(told.get("reason")), str, "the type of DRAIN.reason")
    case.require(
        0 < (told.get("deadline_ms") or 0) <= 30_000, "DRAIN.deadline_ms up to 30 s", str(told)
    )
    await act.ask("too late").fails("not_active", "draining")
    case.require(not puppet.eof, "a channel that is open while calls finish", "it has ended")
    await puppet.write(*(frames.result(call.id, call.args) for _, call in asked))
    values = [await each.value() for each, _ in asked]
    case.equal(values, [0, 1, 2], "the answers of calls in flight")
    await subject.within(stopping, "an orderly stop")
    await puppet.gone()
    states = [event.state for event in act.events()][4:]
    case.equal(states, ["DRAINING", "STOPPING", "REAPED"], "the steps of an orderly stop")
    case.equal(act.events()[-1].code, "", "the code of an orderly end")
    sent = [found.value["args"] for found in puppet.received if found.kind == frames.CALL]
    case.equal(sent, [0, 1, 2], "calls that the plugin saw")


@CHECKS.rule("SHD-002")
@hosted
async def the_deaf_are_stopped_step_by_step(case: Case, subject: HostSubject) -> None:
    """Each step has its time, and together they have an end."""
    subject.needs("clock")
    times = {"drain_s": 3.0, "exit_s": 2.0, "term_s": 4.0}
    host = await subject.host(**times, kill_s=100.0)
    act = await subject.act(host)
    puppet = await act.begin()
    asked, _ = await act.asked(puppet)
    await puppet.do("ignore", number=15)
    await puppet.do("stay")
    stopping = Asked(subject, act.handle.stop(), "a stop of a deaf plugin")
    await act.settled()
    await host.advance(2.0)
    case.require(not asked.done, "a call in flight has its time to finish", "it has ended")
    await host.advance(10.0)
    await asked.fails("retired")
    await puppet.gone()
    await stopping.value()
    steps = {event.state: event.at_s for event in act.events()}
    order = ("DRAINING", "STOPPING", "TERM", "KILL")
    case.require(all(name in steps for name in order), f"the steps {order}", str(list(steps)))
    for (name, wait_s), at, after in zip(times.items(), order, order[1:], strict=False):
        took_s = steps[after] - steps[at]
        case.require(
            wait_s - 0.01 <= took_s <= wait_s + QUANTUM_S,
            f"{wait_s:g} s of {name} from {at} to {after}",
            f"{took_s:.2f} s",
        )
    case.require("REAPED" in steps, "REAPED in the end", str(list(steps)))
    await _who_heeds_term_is_not_killed(case, subject)


async def _who_heeds_term_is_not_killed(case: Case, subject: HostSubject) -> None:
    """It is told, and gets to clean up."""
    host = await subject.host(drain_s=3.0, exit_s=2.0, term_s=1000.0)
    act = await subject.act(host, id="heeds")
    puppet = await act.begin()
    cleaned = subject.folder / "cleaned"
    await puppet.do("obey", number=15, path=str(cleaned))
    await puppet.do("stay")
    stopping = Asked(subject, act.handle.stop(), "a stop of a plugin that heeds SIGTERM")
    await act.settled()
    await host.advance(6.0)
    await puppet.gone()
    await stopping.value()
    case.require(cleaned.exists(), "a plugin that is told by SIGTERM", "it was ended without")
    states = [event.state for event in act.events()]
    case.require("KILL" not in states, "no KILL for who heeds SIGTERM", str(states))


@CHECKS.rule("SHD-003")
@hosted
async def who_does_not_read_cannot_hold_up_the_end(case: Case, subject: HostSubject) -> None:
    """Its channel is full, and the host still has megabytes for it."""
    act = await subject.act()
    puppet = await act.begin()
    await puppet.do("deaf")
    asked = [act.ask("x" * MIB) for _ in range(8)]
    await act.settled()
    await act.stop()
    for each in asked:
        await each.fails("retired", "closed", "crashed", "not_active")
    await puppet.gone()
    case.equal((await act.down()).pid, None, "a process after the stop")
    started = await act.begin()
    await act.answers(started, "after one that did not read")


@CHECKS.rule("SHD-004")
@hosted
async def plugins_are_stopped_together(case: Case, subject: HostSubject) -> None:
    """Eight slow ones take as long as one."""
    subject.needs("clock")
    processes = subject.has("processes")
    times = {"term_s": 100.0} if processes else {"term_s": 0.2, "kill_s": 0.2}
    host = await subject.host(exit_s=6.0, drain_s=1.0, **times)
    acts = [await subject.act(host, id=f"p{n}") for n in range(PLUGINS)]
    puppets = [await act.begin() for act in acts]
    for puppet in puppets:
        await puppet.do("stay")  # TERM still ends a process; a thread is given up
    closing = Asked(subject, host.close(), f"a close with {PLUGINS} slow plugins")
    await acts[0].settled()
    await host.advance(7.5)
    for puppet in puppets if processes else ():
        await puppet.gone()
    await closing.value()
    ends = [act.events()[-1].at_s for act in acts]
    begins = [event.at_s for act in acts for event in act.events() if event.state == "STOPPING"]
    took_s = max(ends) - min(begins)
    case.require(took_s < 12.0, "all ends within 6 s and a little", f"{took_s:.1f} s")


@CHECKS.rule("SHD-006")
@hosted
async def a_reload_loses_nothing(case: Case, subject: HostSubject) -> None:
    """The new instance is ready before the old one is retired; each call is answered, once."""
    subject.needs("reload")
    host = await subject.host(retire_s=30.0, exit_s=30.0)
    act = await subject.act(host)
    old = await act.begin()
    served: dict[int, list[Any]] = {1: [], 2: []}
    asked: list[Asked] = []

    async def serve(puppet: Puppet, generation: int) -> None:
        try:
            while True:
                call = await puppet.called(skip=(frames.DRAIN,))
                served[generation].append(call.args)
                await puppet.write(frames.result(call.id, [generation, call.args]))
        except SubjectFailed:
            pass  # its channel has ended

    async def load(count: int) -> None:
        for _ in range(count):
            asked.append(act.ask(len(asked)))
            await anyio.sleep(0)

    subject.spawn(serve(old, 1))
    await load(LOAD)
    held = act.ask("held")
    reloading = Asked(subject, act.handle.reload(), "a reload")
    await load(LOAD)
    new = await act.stage.enter()
    await new.greet()
    await load(LOAD)
    for each in asked:
        await each.value()
    case.equal(len(served[2]), 0, "calls to the new instance before it is ready")
    await new.write(new.ready())
    await reloading.value()
    subject.spawn(serve(new, 2))
    await load(LOAD)
    values = [await each.value() for each in asked]
    await held.value()
    case.equal([value[1] for value in values], list(range(4 * LOAD)), "the answers of all calls")
    both = [args for args in served[1] + served[2] if args != "held"]
    case.equal(sorted(both), list(range(4 * LOAD)), "calls that both instances saw, each once")
    case.equal(len(served[2]), LOAD, "calls to the new instance after it was ready")
    await old.gone()
    order = [(e.generation, e.state) for e in act.events() if e.state in ("READY", "DRAINING")]
    case.equal(order, [(1, "READY"), (2, "READY"), (1, "DRAINING")], "the order of the swap")
    case.equal((await act.status()).generation, 2, "the generation that serves")


@CHECKS.rule("SHD-007")
@hosted
async def a_failed_reload_changes_nothing(case: Case, subject: HostSubject) -> None:
    """The old instance goes on, whatever its successor died of."""
    subject.needs("reload")
    act = await subject.act()
    old = await act.begin()
    before = await act.status()
    for how, code in (("refuses", "internal"), ("dies", "crashed"), ("lies", "manifest_mismatch")):
        asked, call = await act.asked(old, how)
        reloading = Asked(subject, act.handle.reload(), f"a reload whose successor {how}")
        new = await act.stage.enter()
        if how == "refuses":
            await new.greet()
            await new.write(frames.error(0, "internal"))
        elif how == "dies":
            new.order("signal", number=9)
        elif subject.has("hello"):
            await new.write(new.hello(version="7"))
        else:
            await new.write(new.ready(("tool", "another")))
        await reloading.fails(code)
        await old.write(frames.result(call.id, "still here"))
        case.equal(await asked.value(), "still here", f"the call in flight when it {how}")
        await act.answers(old, f"after its successor {how}")
        after = await act.status()
        found = (after.state, after.instance, after.generation, after.pid)
        due = (before.state, before.instance, before.generation, before.pid)
        case.equal(found, due, f"state, instance, generation and process after it {how}")
        await new.gone()
    states = {event.state for event in act.events(before.instance)}
    case.equal(sorted(states), sorted(["STARTING", "HANDSHAKE", "INIT", "READY"]), "its steps")
