"""LIF-001 to 009: what an instance goes through, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from purra_tck.checks import Checks
from purra_tck.drivers.host import Event
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, Asked, HostSubject, hosted
from purra_tck.subjects.machine import alive, children
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("LIF")

LEGAL: Final[dict[str, tuple[str, ...]]] = {
    "": ("STARTING",),
    "STARTING": ("HANDSHAKE", "STOPPING", "FAILED"),
    "HANDSHAKE": ("INIT", "STOPPING", "FAILED"),
    "INIT": ("READY", "STOPPING", "FAILED"),
    "READY": ("DRAINING", "TAINTED", "UNRESPONSIVE", "FAILED"),
    "TAINTED": ("DRAINING",),
    "UNRESPONSIVE": ("TERM", "REAPED"),
    "DRAINING": ("STOPPING", "FAILED"),
    "STOPPING": ("TERM", "REAPED", "FAILED"),
    "FAILED": ("TERM", "KILL", "REAPED"),
    "TERM": ("KILL", "REAPED"),
    "KILL": ("REAPED", "ABANDONED"),
    "REAPED": (),
}
"""Chapter 1 as a table: what may follow what."""
ORDINARY: Final = ["STARTING", "HANDSHAKE", "INIT", "READY", "DRAINING", "STOPPING", "REAPED"]
STARTERS: Final = 32
REPEATS: Final = 10
HEALTH_S: Final = 0.25
SENTINEL: Final = """
import os
with open({path!r}, "a") as file:
    file.write(f"{{os.getpid()}} ")
from purra_sdk import Plugin, tool

@tool(effect="pure")
def t(call):
    return os.getpid()

plugin = Plugin(tools=[t])
"""


async def _ordinary(act: Act) -> None:
    puppet = await act.begin()
    await act.answers(puppet)
    await act.stop()


async def _crash(act: Act) -> None:
    puppet = await act.begin()
    await puppet.leave("signal", number=9)


async def _violation(act: Act) -> None:
    puppet = await act.begin()
    await puppet.write(b"no frame")


async def _no_hello(act: Act) -> None:
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.leave("exit", status=1)
    await starting.fails("crashed")


async def _stopped_early(act: Act) -> None:
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.greet()
    await act.stop()
    await starting.fails("not_active")


async def _refused(act: Act) -> None:
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.write(puppet.hello(version="9"))
    await starting.fails("manifest_mismatch")


async def _deaf(act: Act) -> None:
    puppet = await act.begin()
    asked, _ = await act.asked(puppet)
    await puppet.do("ignore", number=15)
    await puppet.do("stay")
    asked.cancel()
    await puppet.frame(frames.CANCEL)


LIVES: Final[tuple[Callable[[Act], Awaitable[None]], ...]] = (
    _ordinary,
    _crash,
    _violation,
    _no_hello,
    _stopped_early,
    _refused,
    _deaf,
)
NEEDS: Final = {_no_hello: "hello", _refused: "hello"}
"""What a life needs of its host."""


@CHECKS.rule("LIF-001")
@hosted
async def each_life_is_a_legal_one(case: Case, subject: HostSubject) -> None:
    """Each step is in the table, and is announced once, with the instance and its generation."""
    times = {"grace_s": 0.05, "drain_s": 0.05, "exit_s": 0.1, "term_s": 0.05}
    if not subject.has("processes"):
        times["kill_s"] = 0.1  # a thread that does not end is given up
    host = await subject.host(**times)
    lives = [live for live in LIVES if live not in NEEDS or subject.has(NEEDS[live])]
    for live in lives:
        act = await subject.act(host, id=live.__name__.strip("_").replace("_", "-"))
        await live(act)
        await act.announced("REAPED", "ABANDONED")
        events = act.events()
        _judge_life(case, live.__name__, events)
        case.equal({event.generation for event in events}, {1}, "the generation of each event")
    states = [event.state for event in host.events if event.plugin == "ordinary"]
    case.equal(states, ORDINARY, "the states of an ordinary life")
    abandoned = sum(event.state == "ABANDONED" for event in host.events)
    due = 0 if subject.has("processes") else 1
    case.equal(abandoned, due, "instances that do not end, whatever is done")


def _judge_life(case: Case, name: str, events: list[Event]) -> None:
    case.equal(len({event.instance for event in events}), 1, f"instances of {name}")
    before = ""
    for event in events:
        case.require(
            event.state in LEGAL[before],
            f"one of {', '.join(LEGAL[before])} after {before or 'nothing'} ({name})",
            event.state,
        )
        before = event.state
    twice = [state for state, count in Counter(e.state for e in events).items() if count > 1]
    case.equal(twice, [], f"states of {name} that were announced more than once")


@CHECKS.rule("LIF-002")
@hosted
async def many_starts_make_one_instance(case: Case, subject: HostSubject) -> None:
    """Whoever comes while it starts waits for that start."""
    act = await subject.act()
    before = len(children(subject.driver.pid))
    starts = [act.start() for _ in range(STARTERS // 2)]
    calls = [act.ask(n) for n in range(STARTERS // 2)]
    puppet = await act.stage.enter()
    await puppet.greet()
    starts += [act.start() for _ in range(STARTERS)]
    await act.settled()
    await puppet.write(puppet.ready())
    for start in starts:
        await start.value()
    for _ in calls:
        call = await puppet.called()
        await puppet.write(frames.result(call.id, call.args))
    values = [await asked.value() for asked in calls]
    case.equal(values, list(range(STARTERS // 2)), "the values of calls that came while it started")
    started = len({event.instance for event in act.events()})
    case.equal(started, 1, f"instances after {len(starts)} starts at once")
    due = 1 if subject.has("processes") else 0
    case.equal(len(children(subject.driver.pid)) - before, due, "processes")


@CHECKS.rule("LIF-003")
@hosted
async def a_refusal_leaves_nothing(case: Case, subject: HostSubject) -> None:
    """A plugin that gives up says why; then it is gone, with all that was made for it."""
    act = await subject.act()
    await _ordinary(act)
    await act.stop()
    residue = subject.residue()
    for code, before_welcome in (("internal", True), ("failed_precondition", False)):
        for stays in (False, True) if subject.has("processes") else (False,):
            starting = act.start()
            puppet = await act.stage.enter()
            if stays:
                await puppet.do("stay")
            if not before_welcome:
                await puppet.greet()
            await puppet.write(frames.error(0, code, "no licence for today"))
            error = await starting.fails(code)
            case.require(
                "no licence for today" in error.message, "the plugin's own words", error.message
            )
            case.equal(error.executed, "no", "executed of a start")
            await act.becomes("DOWN")
            await puppet.gone()
    await subject.nothing_left(case, residue, "after starts that were refused")


@CHECKS.rule("LIF-004")
@hosted
async def silence_has_an_end(case: Case, subject: HostSubject) -> None:
    """Before HELLO and after WELCOME, each with a name of its own; neither is a crash."""
    subject.needs("clock")
    host = await subject.host(
        hello_s=30.0, ready_s=50.0, ready_longest_s=100.0, term_s=5.0, exit_s=5.0, kill_s=0.5
    )
    silences = (("handshake_timeout", 30.0), ("start_timeout", 50.0))
    for code, wait_s in silences if subject.has("hello") else silences[1:]:
        act = await subject.act(host, id=code.replace("_", "-"))
        starting = act.start()
        puppet = await act.stage.enter()
        if subject.has("processes"):
            await puppet.do("ignore", number=15)
            await puppet.do("stay")
        if code == "start_timeout":
            await puppet.greet()
        await host.advance(wait_s - 3.0)
        case.require(not starting.done, f"patience until {wait_s:g} s", "the start has ended")
        await host.advance(4.0)
        error = await starting.fails(code)
        case.equal(error.origin, "host", f"whose word {code} is")
        await host.advance(6.0)
        await puppet.gone()
        status = await act.becomes("DOWN")
        case.equal(status.reason, code, "the reason of the plugin's state")
    act = await subject.act(host, id="extends")
    starting = act.start()
    puppet = await act.stage.enter()
    await puppet.greet()
    more = frames.frame(frames.STATUS, 0, frames.pack({"phase": "loads", "extend_ms": 15_000}))
    await host.advance(45.0)
    await puppet.write(more)
    await act.settled()
    await host.advance(10.0)
    await puppet.write(puppet.ready())
    await starting.value()
    case.saw("a start that asked for more time got it")
    act = await subject.act(host, id="extends-and-extends")
    starting = act.start()
    puppet = await act.stage.enter()
    if subject.has("processes"):
        await puppet.do("ignore", number=15)
    await puppet.greet()
    more = frames.frame(frames.STATUS, 0, frames.pack({"phase": "loads", "extend_ms": 60_000}))
    for _ in range(8):  # 112 s of the 100 that a start may take, however it asks
        await puppet.write(more)
        await act.settled()
        await host.advance(14.0)
    await starting.fails("start_timeout")


@CHECKS.rule("LIF-005")
@hosted
async def a_stop_wins_and_can_be_repeated(case: Case, subject: HostSubject) -> None:
    """In every state, ten times, and all at once."""
    host = await subject.host(exit_s=0.1, term_s=0.1)
    for name in ("new", "starting", "handshake", "init", "ready", "failed", "busy"):
        act = await subject.act(host, id=name)
        starting = act.start() if name != "new" else None
        puppet = None
        if name not in ("new", "starting"):
            puppet = await act.stage.enter()
        if puppet is not None and name != "handshake":
            await puppet.greet()
        if puppet is not None and name in ("ready", "busy"):
            await puppet.write(puppet.ready())
            await act.becomes("READY")
        if puppet is not None and name == "failed":
            await puppet.leave("signal", number=9)
            await act.down()
        asked = act.ask() if name == "busy" else None
        await act.settled()
        stops = [Asked(subject, act.handle.stop(0.05), "a stop") for _ in range(REPEATS)]
        for stop in stops:
            await stop.value()
        for _ in range(REPEATS):
            await act.stop()
        if starting is not None and name in ("starting", "handshake", "init"):
            await starting.fails("not_active")
        if asked is not None:
            await asked.fails("retired", "not_active", "closed")
        status = await act.status()
        case.require(status.pid is None, f"no process after a stop when {name}", str(status.pid))
        error = await act.ask().fails("not_active", "crashed")
        case.saw(f"a call after a stop when {name}: {error}")
        if puppet is not None:
            case.require(not alive(puppet.pid), "the process has ended", f"{puppet.pid} lives")
    for _ in range(REPEATS):
        await subject.within(host.close(), "closing a closed host")
    await act.ask().fails("not_active")
    case.saw(f"closed {REPEATS} times")


@CHECKS.rule("LIF-006")
@hosted
async def a_failed_start_can_be_tried_again(case: Case, subject: HostSubject) -> None:
    """What is routable is what it was before; also where only one may start at a time."""
    host = await subject.host(starts=1)
    other, act = await subject.act(host, id="other"), await subject.act(host)
    beside = await other.begin()
    before = await other.status()
    for how in ("a refusal", "a crash", "a lie"):
        starting = act.start()
        puppet = await act.stage.enter()
        if how == "a refusal":
            await puppet.greet()
            await puppet.write(frames.error(0, "internal"))
        elif how == "a crash":
            puppet.order("signal", number=9)
        elif subject.has("hello"):
            await puppet.write(puppet.hello(plugin="somebody-else"))
        else:
            await puppet.write(puppet.ready(("tool", "somebody-else")))
        await starting.fails()
        status = await act.becomes("DOWN")
        case.equal((status.calls, status.queued, status.pid), (0, 0, None), f"held after {how}")
    case.equal(await other.status(), before, "the status of its sibling")
    await other.answers(beside, "after its sibling's failed starts")
    puppet = await act.begin()
    await act.answers(puppet, "after three failed starts")
    case.equal((await act.status()).generation, 4, "the generation after three failed starts")


@CHECKS.rule("LIF-007")
@hosted
async def the_end_goes_on_whatever_fails(case: Case, subject: HostSubject) -> None:
    """Somebody who is told of each step fails at each of them. All is taken down all the same:
    first the process, then its folder; and every failure is told.
    """
    subject.needs("inside")
    processes = subject.has("processes")
    raised: list[str] = []
    order: list[tuple[bool, bool]] = []
    homes: dict[str, str] = {}
    pids: dict[str, int] = {}

    def listen(event: Event) -> None:
        if event.state == "REAPED":
            order.append((alive(pids[event.plugin]), os.path.isdir(homes[event.plugin])))
        if event.state in ("DRAINING", "STOPPING", "TERM", "KILL", "REAPED"):
            raised.append(f"{event.plugin} {event.state}")
            raise ArithmeticError(f"told of {event.plugin} {event.state}")

    host = await subject.host(listener=listen, exit_s=0.1, term_s=0.1)
    subject.excused.add(id(host))
    acts = {name: await subject.act(host, id=name) for name in ("a", "b", "c")}
    residue = subject.residue()
    for name, act in acts.items():
        puppet = await act.begin()
        homes[name], pids[name] = puppet.facts["cwd"], puppet.pid
        if name == "b" and processes:
            await puppet.do("ignore", number=15)
            await puppet.do("stay")
    await subject.within(host.close(), "closing a host whose listener fails")
    left = [name for name in homes if alive(pids[name]) or os.path.isdir(homes[name])]
    case.equal(left, [], "plugins of which something is left")
    due = (False, processes)
    case.equal(order, [due] * 3, "process there, folder there, when REAPED is told")
    told = sum("ArithmeticError" in fault for fault in host.faults)
    case.equal(told, len(raised), "failures that are told")
    case.require(len(raised) >= 9, "a failure at each step of three ends", str(raised))
    await subject.nothing_left(case, residue, "after an end with failures")


@CHECKS.rule("LIF-008")
@hosted
async def nothing_runs_before_the_start(case: Case, subject: HostSubject) -> None:
    """The plugin's module leaves a trace where it is imported: there is none before the start, and
    in the host's process never, unless plugins are threads of it.
    """
    trace = subject.folder / "imported"
    module = f"sentinel_{subject.folder.name.removeprefix('tck-')}"
    act = await subject.act(
        id="sentinel",
        entry=f"{module}:plugin",
        files={f"{module}.py": SENTINEL.format(path=str(trace))},
    )
    await act.status()
    await act.settled()
    case.require(not trace.exists(), "no import by opening a plugin", "its module was imported")
    asked = act.ask({"arguments": {}})
    value = await asked.answer()
    pids = trace.read_text().split()
    case.equal(pids, [str(value)], "processes that imported it")
    own = value != subject.driver.pid
    case.equal(own, subject.has("processes"), "that it runs in a process of its own")
    pid = (await act.status()).pid
    case.equal(pid, value if own else None, "the process of the instance")


@CHECKS.rule("LIF-009")
@hosted
async def asking_does_not_touch_the_plugin(case: Case, subject: HostSubject) -> None:
    """The state is known without it: also while it stands still, and in every state."""
    act = await subject.act()
    processes = subject.has("processes")
    states = [await _asked_quickly(case, act)]
    starting = act.start()
    puppet = await act.stage.enter()
    states.append(await _asked_quickly(case, act))
    await puppet.greet()
    states.append(await _asked_quickly(case, act))
    await puppet.write(puppet.ready())
    await starting.value()
    before = len(puppet.received)
    await _stands(puppet, True, processes)
    for _ in range(3):
        states.append(await _asked_quickly(case, act))
    await _stands(puppet, False, processes)
    await act.answers(puppet, "after it stood still")
    kinds = [found.name for found in puppet.received[before:]]
    case.equal(kinds, ["CALL"], "frames to the plugin while its state was asked for")
    await puppet.leave("exit", status=0)
    await act.down()
    states.append(await _asked_quickly(case, act))
    before_welcome = "HANDSHAKE" if subject.has("hello") else "INIT"
    case.equal(
        states,
        ["STOPPED", before_welcome, "INIT", "READY", "READY", "READY", "DOWN"],
        "the states that were told",
    )


async def _stands(puppet: Puppet, still: bool, process: bool) -> None:
    """Makes it stand still, or go on: by a signal, or by not reading."""
    if process:
        os.kill(puppet.pid, signal.SIGSTOP if still else signal.SIGCONT)
    else:
        await puppet.do("deaf", deaf=still)


async def _asked_quickly(case: Case, act: Act) -> str:
    began = time.perf_counter()
    status = await act.status()
    await asyncio.sleep(0)
    took_s = time.perf_counter() - began
    case.require(took_s < HEALTH_S, f"an answer within {HEALTH_S:g} s", f"{took_s:.3f} s")
    return status.state
