"""CAN-001 to 011: callers that leave, times that run out, plugins that do not listen."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.drivers.host import Ask, Restarts
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, Asked, HostSubject, hosted
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("CAN")

RACES: Final = 2000
AT_ONCE: Final = 50
CANCELS: Final = 10_000
HOUR_S: Final = 3600.0
TOLERANCE_MS: Final = 400
"""A host may look at its clock a little earlier than the kit, and is late on a busy machine."""


class _Stoppable:
    """A call whose answer stays welcome after `stop`."""

    def __init__(self, act: Act, **ask: Any) -> None:
        self._requests: list[Any] = []
        work = act.handle.stopping(Ask(**ask), self._requests.append)
        self.asked = Asked(act.subject, work)

    def stop(self) -> None:
        self._requests[0]()


@CHECKS.rule("CAN-001")
@hosted
async def what_ends_before_it_is_sent_is_never_seen(case: Case, subject: HostSubject) -> None:
    """Not one frame of it, whether its time was up or its caller gone."""
    subject.needs("clock")
    host = await subject.host(ping_s=1000.0, grace_s=1000.0)
    act = await subject.act(host, limits={"inflight": 1})
    puppet = await act.begin()
    expired = await act.ask("no time", timeout_s=0.0).fails("deadline_exceeded")
    case.equal(expired.executed, "no", "executed of a call without time")
    await act.answers(puppet, "after a call that was never sent")
    busy, call = await act.asked(puppet, "busy")
    late, left = act.ask("late", timeout_s=2.0), act.ask("left")
    stopped = _Stoppable(act, args="stopped")
    await act.settled()
    left.cancel()
    stopped.stop()
    await host.advance(3.0)
    case.equal((await late.fails("deadline_exceeded")).executed, "no", "executed of a late call")
    case.equal((await left.ended()).how, "cancelled", "the end of a call that was left")
    error = await stopped.asked.fails("cancelled")
    case.equal(error.executed, "no", "executed of a call that was stopped in the queue")
    await puppet.write(frames.result(call.id, None))
    await busy.value()
    await act.answers(puppet, "after calls that were never sent")
    sent = [found.value["args"] for found in puppet.received if found.kind == frames.CALL]
    there = "are you there?"
    case.equal(sent, [there, "busy", there], "arguments of the CALLs that the plugin saw")
    cancels = [found for found in puppet.received if found.kind == frames.CANCEL]
    case.equal(len(cancels), 0, "CANCELs that the plugin saw")


@CHECKS.rule("CAN-002")
@hosted
async def a_cancel_is_sent_once_and_not_waited_for(case: Case, subject: HostSubject) -> None:
    """The caller goes at once; one who wants the answer waits no longer than the grace time."""
    host = await subject.host(grace_s=2.0, ping_s=1000.0)
    act = await subject.act(host)
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    asked.cancel()
    case.equal((await asked.ended()).how, "cancelled", "the end of a call that its caller left")
    found = await puppet.frame(frames.CANCEL, what="CANCEL for a call that its caller left")
    case.equal(found.call, call.id, "the id of CANCEL")
    await puppet.write(frames.error(call.id, "cancelled", executed="maybe"))
    stopping = _Stoppable(act)
    call = await puppet.called()
    stopping.stop()
    stopping.stop()
    found = await puppet.frame(frames.CANCEL, what="CANCEL for a stop")
    await puppet.write(frames.result(call.id, "stopped after 3 of 5"))
    value = await stopping.asked.value()
    case.equal(value, "stopped after 3 of 5", "the answer after a stop")
    await puppet.do("deaf")
    deaf = _Stoppable(act)
    await act.settled()
    deaf.stop()
    await host.advance(1.5)
    case.require(not deaf.asked.done, "an answer is waited for within the grace time", "it ended")
    await host.advance(1.0)
    error = await deaf.asked.fails("tainted", "cancelled")
    case.equal(error.executed, "maybe", "executed of a call that a deaf plugin never ended")
    cancels = [found.call for found in puppet.received if found.kind == frames.CANCEL]
    case.equal(len(cancels), len(set(cancels)), f"CANCELs, one for each of {len(set(cancels))}")


@CHECKS.rule("CAN-003")
@hosted
async def a_cancel_and_an_answer_have_one_outcome(case: Case, subject: HostSubject) -> None:
    """They cross in every order of a few steps; caller, plugin and host see the same."""
    chance = random.Random(case.seed)
    act = await subject.act(limits={"inflight": AT_ONCE})
    puppet = await act.begin()
    outcomes = {"cancelled": 0, "value": 0}
    answered: set[int] = set()
    for _ in range(RACES // AT_ONCE):
        races = [act.ask(n) for n in range(AT_ONCE)]
        calls = [await puppet.called(skip=(frames.CANCEL,)) for _ in races]
        steps = [(call.id, "answer") for call in calls] + [(call.id, "cancel") for call in calls]
        by_id = {call.id: races[call.args] for call in calls}
        chance.shuffle(steps)
        for call_id, what in steps:
            if what == "cancel":
                by_id[call_id].cancel()
            else:
                puppet.post(frames.result(call_id, call_id))
            for _ in range(chance.choice((0, 0, 0, 1, 2, 5))):
                await asyncio.sleep(0)
        for call_id, asked in by_id.items():
            ended = await asked.ended()
            case.require(
                ended.how == "cancelled" or ended.value == call_id,
                "the caller's cancel or the call's own value",
                str(ended),
            )
            outcomes[ended.how] += 1
            if ended.how == "value":
                answered.add(call_id)
        await act.answers_all(puppet)
    case.require(min(outcomes.values()) > 0, "both outcomes occur", str(outcomes))
    cancels = {found.call for found in puppet.received if found.kind == frames.CANCEL}
    case.equal(len(cancels & answered), 0, "calls with a value whose CANCEL was sent too")
    case.equal((await act.status()).calls, 0, f"places still taken after {RACES} races")


@CHECKS.rule("CAN-004")
@hosted
async def a_cancel_after_the_end_does_nothing(case: Case, subject: HostSubject) -> None:
    """Nor does a second one."""
    act = await subject.act()
    puppet = await act.begin()
    stopped = _Stoppable(act)
    call = await puppet.called()
    await puppet.write(frames.result(call.id, "done"))
    case.equal(await stopped.asked.value(), "done", "the answer")
    stopped.stop()
    stopped.asked.cancel()
    await act.answers(puppet, "after a stop that came too late")
    stream = act.stream()
    taking = subject.spawn(stream.rest())
    call = await puppet.called()
    await puppet.write(frames.data(call.id, 1), frames.result(call.id, None))
    await subject.within(taking, "a stream")
    await stream.leave()
    failed, call = await act.asked(puppet)
    await puppet.write(frames.error(call.id, "internal"))
    await failed.fails("internal")
    failed.cancel()
    await act.answers(puppet, "after cancels that came too late")
    sent = [found.name for found in puppet.received if found.call]
    case.equal(sent, ["CALL"] * 5, "frames of calls that the plugin saw")
    case.equal((await act.status()).calls, 0, "places that are still taken")


@CHECKS.rule("CAN-005")
@hosted
async def a_deaf_instance_is_replaced(case: Case, subject: HostSubject) -> None:
    """Tainted after the grace time; and where the call may write, killed at its hard time."""
    subject.needs("clock")
    host = await subject.host(
        grace_s=2.0, drain_s=5.0, exit_s=5.0, ping_s=1000.0, restarts=Restarts(first_s=0.01)
    )
    act = await subject.act(host)
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    other, other_call = await act.asked(puppet)
    asked.cancel()
    await puppet.frame(frames.CANCEL)
    await host.advance(2.5)
    status = await act.becomes("TAINTED", "DRAINING")
    case.equal(status.state, "DRAINING", "the state of an instance that does not heed a cancel")
    await puppet.frame(frames.DRAIN, what="DRAIN of a tainted instance")
    await puppet.write(frames.result(call.id, "late"), frames.result(other_call.id, "in time"))
    case.equal(await other.value(), "in time", "the answer of its sibling")
    await puppet.gone()
    following = act.ask()
    fresh = await act.stage.enter()
    await fresh.handshake()
    call = await fresh.called()
    await fresh.write(frames.result(call.id, "fresh"))
    case.equal(await following.value(), "fresh", "the answer of the instance that replaces it")
    await _a_late_write(case, subject)


async def _a_late_write(case: Case, subject: HostSubject) -> None:
    """The grace time never ends here, so only the hard time can have killed it; and whoever called
    meanwhile waited, and is answered by the next instance.
    """
    host = await subject.host(grace_s=1000.0, ping_s=1000.0, restarts=Restarts(first_s=0.01))
    act = await subject.act(host, id="writes")
    puppet = await act.begin()
    writing, _ = await act.asked(puppet, timeout_s=5.0, exclusive=True)
    beside = act.ask("beside")
    if subject.has("processes"):
        await puppet.do("ignore", number=15)
        await puppet.do("stay")
    await host.advance(4.0)
    case.require(not writing.done, "a call may use its time", "it ended before")
    await host.advance(1.5)
    await writing.fails("deadline_exceeded")
    await puppet.gone()
    await act.settled()
    case.require(not beside.done, "a call beside a write waits for its end", "it ended with it")
    fresh = await act.stage.enter()
    await fresh.handshake()
    call = await fresh.called()
    await fresh.write(frames.result(call.id, "served"))
    case.equal(await beside.value(), "served", "the answer of a call beside a write that was ended")
    states = [event.state for event in act.events() if event.generation == 1]
    case.equal(
        [state for state in states if state in ("DRAINING", "STOPPING", "TERM", "KILL")],
        ["KILL"],
        "the steps to the end of an instance whose write ran out of time",
    )


@CHECKS.rule("CAN-006")
@hosted
async def a_cancelled_task_sees_its_cancellation(case: Case, subject: HostSubject) -> None:
    """Not an error, not a value; and what the task has to clean up is cleaned up."""
    act = await subject.act()
    puppet = await act.begin()
    steps: list[str] = []

    async def caller(stream: bool) -> None:
        try:
            if stream:
                await anext(act.handle.stream(Ask()))
            else:
                await act.handle.call(Ask())
            steps.append("returned")
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise
        except Exception as error:  # whatever it is, it is not the cancellation
            steps.append(type(error).__name__)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    for stream in (False, True):
        steps.clear()
        task = subject.spawn(caller(stream))
        call = await puppet.called()
        task.cancel()
        await subject.within(asyncio.wait((task,)), "a cancelled task")
        what = "a task that waits for an item" if stream else "a task that waits for a value"
        case.equal(steps, ["cancelled", "cleaned up"], f"what was seen in {what}")
        case.equal(task.cancelled(), True, f"that {what} counts as cancelled")
        await puppet.frame(frames.CANCEL)
        await puppet.write(frames.error(call.id, "cancelled"))
    await act.answers(puppet, "after cancelled tasks")


@CHECKS.rule("CAN-007")
@hosted
async def a_cancel_concerns_one_call(case: Case, subject: HostSubject) -> None:
    """Its siblings, streams among them, go on."""
    act = await subject.act()
    puppet = await act.begin()
    stream = act.stream()
    taking = subject.spawn(stream.rest())
    streamed = await puppet.called()
    asked = [await act.asked(puppet, n) for n in range(4)]
    await puppet.write(frames.data(streamed.id, 1))
    asked[1][0].cancel()
    await puppet.frame(frames.CANCEL)
    await puppet.write(frames.data(streamed.id, 2))
    await puppet.write(*(frames.result(call.id, call.args) for _, call in asked))
    await puppet.write(frames.data(streamed.id, 3), frames.result(streamed.id, None))
    items, error = await subject.within(taking, "the stream beside a cancel")
    case.equal((items, error), ([1, 2, 3], None), "the stream beside a cancel")
    ends = [str(await each.ended()) for each, _ in asked]
    case.equal(ends, ["value 0", "cancelled", "value 2", "value 3"], "the calls around a cancel")
    case.equal(len(act.stage.puppets), 1, "instances")


@CHECKS.rule("CAN-008")
@hosted
async def a_deadline_is_what_is_left(case: Case, subject: HostSubject) -> None:
    """The plugin is told what remains when the call is sent, and the host keeps it."""
    subject.needs("clock")
    host = await subject.host(ping_s=1000.0, grace_s=100.0)
    act = await subject.act(host, limits={"inflight": 1})
    puppet = await act.begin()
    asked, call = await act.asked(puppet, timeout_s=10.0)
    _near(case, call.body.get("deadline_ms"), 10_000, "deadline_ms of a call with 10 s")
    waiting = act.ask("waits", timeout_s=10.0)
    await act.settled()
    await host.advance(4.0)
    await puppet.write(frames.result(call.id, None))
    await asked.value()
    call = await puppet.called()
    _near(
        case, call.body.get("deadline_ms"), 6000, "deadline_ms of a call that waited for 4 of 10 s"
    )
    await host.advance(5.3)
    case.require(not waiting.done, "no end 0.7 s before the deadline", "it ended")
    await host.advance(1.0)
    await waiting.fails("deadline_exceeded")
    await puppet.frame(frames.CANCEL)
    await puppet.write(frames.error(call.id, "cancelled"))
    untimed, call = await act.asked(puppet)
    case.equal(call.body.get("deadline_ms"), None, "deadline_ms of a call without a limit")
    await puppet.write(frames.result(call.id, None))
    await untimed.value()
    began = time.perf_counter()
    await act.ask(timeout_s=0.15).fails("deadline_exceeded")
    took_ms = (time.perf_counter() - began) * 1000
    case.require(
        140 <= took_ms <= 150 + TOLERANCE_MS, "an end 150 ms after the call", f"{took_ms:.0f} ms"
    )


def _near(case: Case, found: Any, due: int, what: str) -> None:
    holds = type(found) is int and due - TOLERANCE_MS <= found <= due
    case.require(holds, f"{what} = {due}, at most {TOLERANCE_MS} less", f"{what} = {found!r}")


@CHECKS.rule("CAN-010")
@hosted
async def the_time_of_day_is_not_looked_at(case: Case, subject: HostSubject) -> None:
    """Somebody sets the clock, by an hour in either direction; no deadline moves."""
    subject.needs("clock")
    host = await subject.host(ping_s=1000.0, grace_s=1000.0)
    act = await subject.act(host)
    puppet = await act.begin()
    long, call = await act.asked(puppet, timeout_s=60.0)
    for jump in (HOUR_S, -HOUR_S, 0.0):
        short, other = await act.asked(puppet, timeout_s=2.0)
        _near(case, other.body.get("deadline_ms"), 2000, f"deadline_ms at {jump:+.0f} s")
        await host.set_wall(jump)
        await host.advance(1.5)
        case.require(not short.done, f"no end before its time, at {jump:+.0f} s", "it ended")
        await host.advance(1.0)
        await short.fails("deadline_exceeded")
        case.require(not long.done, f"no end of a long call, at {jump:+.0f} s", "it ended")
        await puppet.frame(frames.CANCEL)
        await puppet.write(frames.error(other.id, "cancelled"))
    await puppet.write(frames.result(call.id, "in time"))
    case.equal(await long.value(), "in time", "the long call")


@CHECKS.rule("CAN-011")
@hosted
async def cancels_leave_nothing(case: Case, subject: HostSubject) -> None:
    """Ten thousand of them: no place, timer or task is left."""
    subject.needs("inside")
    act = await subject.act(limits={"inflight": 50})
    puppet = await act.begin()
    await _cancelled(act, puppet, 100)
    before = _timers(), len(asyncio.all_tasks())
    for _ in range(CANCELS // 100):
        await _cancelled(act, puppet, 100)
    after = _timers(), len(asyncio.all_tasks())
    case.require(
        after[0] <= before[0] + 2,
        f"{before[0]} timers after {CANCELS} cancels, as before",
        f"{after[0]} timers",
    )
    case.require(
        after[1] <= before[1], f"{before[1]} tasks after {CANCELS} cancels", f"{after[1]} tasks"
    )
    status = await act.status()
    case.equal((status.calls, status.queued), (0, 0), f"calls left after {CANCELS} cancels")
    await act.answers(puppet, f"after {CANCELS} cancels")


async def _cancelled(act: Act, puppet: Puppet, count: int) -> None:
    """Calls that are cancelled: half of them in flight, the others in the queue."""
    sent = [asyncio.ensure_future(act.handle.call(Ask(n, timeout_s=600.0))) for n in range(count)]
    calls = [await puppet.called() for _ in range(count // 2)]
    for task in reversed(sent):
        task.cancel()
    await asyncio.gather(*sent, return_exceptions=True)
    for _ in calls:
        await puppet.frame(frames.CANCEL)
    await puppet.write(*(frames.error(call.id, "cancelled") for call in calls))
    await act.answers(puppet, "after cancels")


def _timers() -> int:
    """Timers of the loop that are still to ring."""
    scheduled: list[Any] = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return sum(not timer.cancelled() for timer in scheduled)
