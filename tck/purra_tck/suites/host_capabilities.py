"""CAP-001 to 007, CAL-009, CAN-009: what a plugin may ask of its host, and when it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.drivers.host import Ask, Asked, Held, Restarts
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.subjects.host import Asked as Waiting
from purra_tck.verdict import Case, SubjectFailed

__all__ = ["CHECKS", "nested"]

CHECKS = Checks("CAP", "CAL-009", "CAN-009")

DEPTH: Final = 8
SPOOFS: Final = {"plugin": "other", "instance": "other-1-ff", "call": 4711, "run": "r-1", "id": 99}
"""What a plugin may say of itself in a callback; nothing of it may be believed."""


class _Service:
    """A host service that counts."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def __call__(self, asked: Asked) -> Any:
        self.asked.append(asked)
        return {"turned": asked.args}


async def _answer(puppet: Puppet, callback: int) -> tuple[str, Any]:
    """What the host says to a callback: `value` and it, or `error` and its body."""
    found = await puppet.frame(frames.RESULT, frames.ERROR, what="the host's answer to a callback")
    if found.call != callback:
        raise SubjectFailed(f"an answer on id {callback}", f"{found.name} on id {found.call}")
    return ("value" if found.kind == frames.RESULT else "error"), found.value


@CHECKS.rule("CAP-001")
@hosted
async def what_is_not_declared_is_denied(case: Case, subject: HostSubject) -> None:
    """The host has the service, and the plugin never said that it wants it."""
    subject.needs("callbacks")
    host = await subject.host()
    service = _Service()
    host.offer("lights", service)
    act = await subject.act(host)
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    wanted: tuple[tuple[str, str, Any], ...] = (
        ("lights", "on", {}),
        ("secret", "get", {"name": "token"}),
        ("nothing", "x", None),
    )
    for number, (name, method, args) in enumerate(wanted):
        callback = 2 + 2 * number
        await puppet.write(frames.call(callback, name, method, args, parent=call.id))
        how, body = await _answer(puppet, callback)
        code = body.get("code") if how == "error" else body
        case.equal(code, "capability_denied", f"the answer to {name}, which is not declared")
    case.equal(len(service.asked), 0, "times that the service ran")
    audited = [audit.get("grant") for audit in host.audits if audit.get("plugin") == "puppet"]
    case.equal(audited, ["lights", "secret:token", "nothing"], "denials in the audit")
    await puppet.write(frames.result(call.id, "all the same"))
    case.equal(await asked.value(), "all the same", "the call that asked")
    await act.answers(puppet, "after denials")


@CHECKS.rule("CAP-002")
@hosted
async def what_is_not_granted_is_denied_first(case: Case, subject: HostSubject) -> None:
    """Wanted by the manifest and not granted by the operator: nothing of it runs."""
    subject.needs("callbacks")
    host = await subject.host()
    service, other = _Service(), _Service()
    host.offer("lights", service)
    host.offer("doors", other)
    act = await subject.act(
        host,
        services=("lights", "doors", "secret:token"),
        grants={"host": ["doors"]},
        secrets={"token": "0123456789"},
    )
    puppet = await act.begin()
    asked, call = await act.asked(puppet)
    for number, (name, args) in enumerate((("lights", {}), ("secret", {"name": "token"}))):
        callback = 2 + 2 * number
        await puppet.write(frames.call(callback, name, "get", args, parent=call.id))
        how, body = await _answer(puppet, callback)
        code = body.get("code") if how == "error" else body
        case.equal(code, "capability_denied", f"the answer to {name}, which is not granted")
    case.equal(len(service.asked), 0, "times that the service ran")
    await puppet.write(frames.call(6, "doors", "open", {"n": 1}, parent=call.id))
    case.equal(
        await _answer(puppet, 6), ("value", {"turned": {"n": 1}}), "the answer to what is granted"
    )
    case.equal(len(other.asked), 1, "times that the granted service ran")
    await puppet.write(frames.result(call.id, None))
    await asked.value()


@CHECKS.rule("CAP-003")
@hosted
async def only_ready_instances_are_called(case: Case, subject: HostSubject) -> None:
    """In every other state the plugin sees nothing, and the caller waits or is told."""
    subject.needs("clock")
    policy = Restarts(most=1, first_s=10.0, jitter=0.0, quarantine_s=100.0)
    host = await subject.host(restarts=policy, drain_s=60.0)
    act = await subject.act(host)
    starting = act.start()
    puppet = await act.stage.enter()
    asked = [act.ask("handshake")]
    await act.settled()
    await puppet.greet()
    asked.append(act.ask("init"))
    await act.settled()
    case.equal(_calls(puppet), 0, "CALLs before READY")
    waiting = not any(each.done for each in asked)
    case.require(waiting, "callers that wait for READY", "they ended")
    await puppet.write(puppet.ready())
    await starting.value()
    for due in ("handshake", "init"):
        call = await puppet.called()
        case.equal(call.args, due, "the first calls after READY")
        await puppet.write(frames.result(call.id, None))
    for each in asked:
        await each.value()
    held, call = await act.asked(puppet, "held")
    stopping = subject.spawn(act.stop())
    await puppet.frame(frames.DRAIN)
    error = await act.ask("draining").fails("not_active", "draining")
    case.equal(error.executed, "no", "executed of a call while it drains")
    await puppet.write(frames.result(call.id, None))
    await held.value()
    await subject.within(stopping, "the stop")
    error = await act.ask("stopped").fails("not_active")
    case.equal(error.executed, "no", "executed of a call while it is stopped")
    case.equal(_calls(puppet), 3, "CALLs in all")
    await _quarantined(case, subject, await subject.act(host, id="broken"))


async def _quarantined(case: Case, subject: HostSubject, act: Act) -> None:
    waiting = act.ask("waits")
    puppet = await act.stage.enter()
    await puppet.leave("exit", status=1)
    await act.becomes("BACKOFF")
    also = act.ask("waits too")
    await act.settled()
    case.require(not also.done, "a caller that waits while it is to be started again", "it ended")
    await act.host.advance(11.0)
    puppet = await act.stage.enter()
    await puppet.leave("exit", status=1)
    for asked in (waiting, also):
        await asked.fails("quarantined")
    error = await act.ask("quarantined").fails("quarantined")
    case.equal(error.executed, "no", "executed of a call while it is quarantined")


def _calls(puppet: Puppet) -> int:
    return sum(found.kind == frames.CALL for found in puppet.received)


@CHECKS.rule("CAP-004")
@hosted
async def a_call_keeps_the_grants_it_began_with(case: Case, subject: HostSubject) -> None:
    """Taken back while it runs, a grant holds for that call and no longer for the next one."""
    subject.needs("callbacks", "reload")
    host = await subject.host(retire_s=60.0, exit_s=60.0)
    service = _Service()
    host.offer("lights", service)
    act = await subject.act(host, services=("lights",), grants={"host": ["lights"]})
    old = await act.begin()
    asked, call = await act.asked(old, "old")
    revoked = replace(act.stage.spec, grants={"host": []})
    reloading = Waiting(subject, act.handle.reload(revoked), "a reload without the grant")
    new = await act.stage.enter()
    await new.handshake()
    await reloading.value()
    await old.frame(frames.DRAIN)
    await old.write(frames.call(2, "lights", "on", 1, parent=call.id))
    found = await _answer(old, 2)
    case.equal(found, ("value", {"turned": 1}), "the answer to a call that began with the grant")
    later, second = await act.asked(new, "new")
    await new.write(frames.call(2, "lights", "on", 2, parent=second.id))
    how, body = await _answer(new, 2)
    code = body.get("code") if how == "error" else body
    case.equal(code, "capability_denied", "the answer to a call that began without it")
    case.equal(len(service.asked), 1, "times that the service ran")
    await old.write(frames.result(call.id, None))
    await new.write(frames.result(second.id, None))
    await asked.value()
    await later.value()


@CHECKS.rule("CAP-005")
@hosted
async def a_callback_speaks_for_its_own_call(case: Case, subject: HostSubject) -> None:
    """Whatever a plugin says about who it is, the host knows it itself."""
    subject.needs("callbacks")
    host = await subject.host()
    service = _Service()
    host.offer("lights", service)
    grants = {"services": ("lights",), "grants": {"host": ["lights"]}}
    act, other = await subject.act(host, **grants), await subject.act(host, id="other", **grants)
    puppet, beside = await act.begin(), await other.begin()
    asked, call = await act.asked(puppet)
    done, over = await act.asked(puppet)
    await puppet.write(frames.result(over.id, None))
    await done.value()
    for _ in range(4):  # so that its sibling has ids that this one has not
        await other.answers(beside)
    theirs, foreign = await other.asked(beside)
    await puppet.write(
        frames.call(2, "lights", "on", {**SPOOFS}, parent=call.id, trace={"run": "r"}, **SPOOFS)
    )
    await _answer(puppet, 2)
    (told,) = service.asked
    status = await act.status()
    case.equal(
        (told.plugin, told.instance, told.call),
        ("puppet", status.instance, call.id),
        "who the service is told that asks",
    )
    for number, (what, parent) in enumerate(
        (("a call that is over", over.id), ("a call of its sibling", foreign.id))
    ):
        callback = 4 + 2 * number
        await puppet.write(frames.call(callback, "lights", "on", {}, parent=parent))
        how, body = await _answer(puppet, callback)
        code = body.get("code") if how == "error" else body
        case.require(code in ("parent_gone", "invalid_argument"), f"a refusal of {what}", f"{code}")
    await puppet.write(frames.call(8, "lights", "on", {}))
    how, body = await _answer(puppet, 8)
    case.equal(how, "error", "a callback without a parent")
    case.equal(len(service.asked), 1, "times that the service ran")
    await puppet.write(frames.result(call.id, None))
    await beside.write(frames.result(foreign.id, None))
    await asked.value()
    await theirs.value()


@CHECKS.rule("CAP-006")
@hosted
async def a_policy_that_fails_denies(case: Case, subject: HostSubject) -> None:
    """It answers nonsense, an error, nothing at all, or dies: the tool does not run."""
    host = await subject.host(grace_s=60.0, ping_s=1000.0)
    act = await subject.act(host, offers=(("policy", "p"),))
    answers: tuple[tuple[str, bytes | None, int], ...] = (
        ("allows", frames.pack({"verdict": "allow", "reason": ""}), 1),
        ("denies", frames.pack({"verdict": "deny", "reason": "no"}), 0),
        ("answers nonsense", frames.pack({"verdict": "perhaps"}), 0),
        ("answers nothing", frames.pack(None), 0),
        ("answers what is no value", b"\xc1", 0),
        ("fails", None, 0),
    )
    puppet = await act.begin()
    for name, body, due in answers:
        running = Waiting(subject, act.handle.effects_under("p"), f"a step whose policy {name}")
        call = await puppet.called()
        reply = frames.error(call.id, "internal")
        if body is not None:
            reply = frames.frame(frames.RESULT, call.id, body)
        await puppet.write(reply)
        case.equal(await running.value(), due, f"times that a tool ran whose policy {name}")
    if "clock" in subject.driver.declares:
        running = Waiting(subject, act.handle.effects_under("p"), "a step whose policy is late")
        call = await puppet.called()
        await host.advance(11.0)
        await puppet.frame(frames.CANCEL, what="CANCEL of a policy that is late")
        await puppet.write(frames.frame(frames.RESULT, call.id, answers[0][1] or b""))
        case.equal(await running.value(), 0, "times that a tool ran whose policy was late")
    running = Waiting(subject, act.handle.effects_under("p"), "a step whose policy dies")
    await puppet.called()
    await puppet.leave("signal", number=9)
    case.equal(await running.value(), 0, "times that a tool ran whose policy died")


def _some_waiting(puppets: tuple[Puppet, ...]) -> bool:
    return any(puppet.waiting for puppet in puppets)


@CHECKS.rule("CAP-007")
@hosted
async def an_approval_counts_once(case: Case, subject: HostSubject) -> None:
    """Each call waits for its own decision, also the same call again; and runs with the arguments
    that were decided on.
    """
    subject.needs("approvals")
    act = await subject.act()
    puppet = await act.begin()
    wanted = [{"n": 1}, {"n": 1}, {"n": 2}]
    async with act.handle.held("t", wanted) as run:
        await _waits_for_a_person(case, act, puppet, run, {"n": 1})
        await run.decide("1.0", "approve")
        await _runs(case, act, puppet, run, {"n": 1})
        first, _ = await _waits_for_a_person(case, act, puppet, run, {"n": 1})
        with suppress(Exception):  # whatever it says: what counts is that nothing runs
            await run.decide("1.0", "approve")
        await _waits_for_a_person(case, act, puppet, run, {"n": 1})
        await run.decide(first, "edit", arguments={"n": 5})
        await _runs(case, act, puppet, run, {"n": 5})
        last, _ = await _waits_for_a_person(case, act, puppet, run, {"n": 2})
        await run.decide(last, "reject")
        await subject.within(run.go_on(), "going on")
        await subject.within(run.settled(), "a run without more calls")
        case.equal(_calls(puppet), 2, "CALLs of 3 calls, one of which was rejected")


async def _waits_for_a_person(
    case: Case, act: Act, puppet: Puppet, run: Held, due: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Has it go on, and demands that it comes no further: the call that waits."""

    async def settled() -> str:
        await run.go_on()
        return await run.settled()

    waiting = Waiting(act.subject, settled(), "a run that waits for a person")
    await act.subject.until(lambda: waiting.done or puppet.waiting, "a run that waits for a person")
    case.equal(len(puppet.waiting), 0, "CALLs that nobody has approved")
    case.equal(await waiting.value(), "waiting", "the status of the run")
    asked = await act.subject.within(run.asked(), "what is asked")
    case.equal([arguments for _, arguments in asked], [due], "the arguments to be approved")
    call: tuple[str, Mapping[str, Any]] = asked[0]
    return call


async def _runs(case: Case, act: Act, puppet: Puppet, run: Held, due: Mapping[str, Any]) -> None:
    """Has it go on, and demands that the plugin gets just what was approved."""
    going = Waiting(act.subject, run.go_on(), "going on")
    call = await puppet.called()
    case.equal(call.args, {"arguments": due}, "the arguments that run")
    await puppet.write(frames.result(call.id, {"value": "done"}))
    await going.value()


async def nested(subject: HostSubject, depth: int) -> tuple[list[str], str]:
    """Plugins that call each other through a host service, as deep as the host lets them.

    Gives what each callback came to, the innermost first, and the value of the outermost call.
    """
    host = await subject.host()
    acts: list[Act] = []

    async def pass_on(asked: Asked) -> Any:
        return await acts[asked.args].handle.call(Ask(asked.args))

    host.offer("next", pass_on)
    how = {"services": ("next",), "grants": {"host": ["next"]}, "limits": {"inflight": 1}}
    for n in range(depth + 1):
        acts.append(await subject.act(host, id=f"p{n}", **how))
    puppets = [await act.begin() for act in acts]
    outer = acts[0].ask(0)
    calls: list[int] = []
    told: list[str] = []
    for n, puppet in enumerate(puppets):
        calls.append((await puppet.called()).id)
        if n == depth:
            break
        await puppet.write(frames.call(2, "next", "go", n + 1, parent=calls[n]))
        both = (puppet, puppets[n + 1])
        await subject.until(
            partial(_some_waiting, both), "the next CALL, or an answer to the callback"
        )
        if puppet.waiting:
            break
    for n in reversed(range(len(calls))):
        if n < depth:
            kind, body = await _answer(puppets[n], 2)
            told.append(kind if kind == "value" else str(body.get("code")))
        await puppets[n].write(frames.result(calls[n], f"from {n}"))
    return told, str(await outer.value())


@CHECKS.rule("CAL-009")
@hosted
async def a_callback_never_waits_for_itself(case: Case, subject: HostSubject) -> None:
    """One place per instance, eight callbacks inside each other; and the ninth is refused."""
    subject.needs("callbacks")
    told, value = await nested(subject, DEPTH)
    case.equal(told, ["value"] * DEPTH, f"the answers of {DEPTH} callbacks inside each other")
    case.equal(value, "from 0", "the value of the outermost call")
    case.equal(len(subject.hosts), 1, "hosts")


@CHECKS.rule("CAN-009")
@hosted
async def a_callback_has_no_more_time_than_its_call(case: Case, subject: HostSubject) -> None:
    """The smaller of its own time and what is left of its call's."""
    subject.needs("callbacks", "clock")
    host = await subject.host(grace_s=100.0, ping_s=1000.0)
    ended: list[str] = []

    async def sleeps(asked: Asked) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(str(asked.args))

    host.offer("sleep", sleeps)
    act = await subject.act(host, services=("sleep",), grants={"host": ["sleep"]})
    puppet = await act.begin()
    for name, call_s, own_ms, due_s in (
        ("its own", 30.0, 3000, 3.0),
        ("its call's", 5.0, 60_000, 5.0),
        ("its call's, without one of its own", 5.0, None, 5.0),
    ):
        asked, call = await act.asked(puppet, timeout_s=call_s)
        more = {} if own_ms is None else {"deadline_ms": own_ms}
        callback = 2 + 2 * len(ended)
        await puppet.write(frames.call(callback, "sleep", "x", name, parent=call.id, **more))
        await act.settled()
        await host.advance(due_s - 1.0)
        case.require(not ended or ended[-1] != name, f"a callback has {name} time", "it has ended")
        await host.advance(2.0)
        found = await puppet.frame(
            frames.ERROR, frames.CANCEL, what=f"the end of a callback by {name} time"
        )
        if found.kind == frames.CANCEL:
            found = await puppet.frame(frames.ERROR, what=f"the end of a callback by {name} time")
        code = found.value["code"]
        case.require(
            code in ("deadline_exceeded", "parent_gone", "cancelled"),
            f"an end by {name} time",
            code,
        )
        case.equal(ended[-1:], [name], "the service has been stopped")
        await puppet.write(frames.result(call.id, None))
        await asked.ended()
        await _drop_cancel(puppet)
    asked, call = await act.asked(puppet)
    await puppet.write(frames.call(8, "sleep", "x", "its call", parent=call.id))
    await act.settled()
    await puppet.write(frames.result(call.id, None))
    await asked.value()
    await subject.until(lambda: ended[-1:] == ["its call"], "a callback ends with its call")
    case.equal(len(ended), 4, "callbacks that ended")


async def _drop_cancel(puppet: Puppet) -> None:
    """A CANCEL of the outer call may have come, before or after the end of its callback."""
    while puppet.waiting and puppet.waiting[0].kind == frames.CANCEL:
        await puppet.frame(frames.CANCEL)
