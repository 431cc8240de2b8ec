"""CAL-001 to 010: one call, one end, and the truth about what happened in between."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.drivers.host import Restarts
from purra_tck.puppets import frames
from purra_tck.puppets.stage import Puppet
from purra_tck.subjects.host import Act, Asked, Ended, HostSubject, hosted
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("CAL")

MANY: Final = 256
INFLIGHT: Final = 64
"""The default of the specification."""
IDS: Final = 300
TRACE: Final = {"run": "01a2-é", "call": "c/1:2", "": "empty key", "trace": "x" * 300}
GRANTS: Final = {"network": ["api.example:443"], "fs": {"read": ["/srv/☃"], "write": []}}
CONFIG: Final = {"n": 2**53 + 1, "deep": [{"a": None}], "text": "a\0b"}
TOLD: Final[tuple[dict[str, Any], ...]] = (
    {"code": "not_found", "origin": "plugin", "executed": "yes", "retry": "other"},
    {"code": "rate_limited", "retry": "same", "after_ms": 1500},
    {"code": "resource_exhausted", "executed": "maybe", "retry": "never"},
    {"code": "upstream", "detail": {"status": 503, "nested": {"a": [1, None]}}},
    {"code": "internal", "detail": {"type": "ValueError"}},
    {"code": "a_code_of_next_year", "executed": "no"},
)
"""Errors of plugins: what they say must arrive as they say it."""
MALFORMED: Final[tuple[tuple[str, Any], ...]] = (
    ("no map", ["internal"]),
    ("no code", {"message": "m"}),
    ("no message", {"code": "internal"}),
    ("a code that is a number", {"code": 5, "message": "m"}),
    ("a detail that is a list", {"code": "internal", "message": "m", "detail": []}),
    ("a wait that is text", {"code": "rate_limited", "message": "m", "after_ms": "soon"}),
)


Way = Callable[[Act, Puppet], Awaitable[Asked]]


async def _by_result(act: Act, puppet: Puppet) -> Asked:
    asked, call = await act.asked(puppet)
    await puppet.write(frames.result(call.id, 1))
    return asked


async def _by_error(act: Act, puppet: Puppet) -> Asked:
    asked, call = await act.asked(puppet)
    await puppet.write(frames.error(call.id, "internal"))
    return asked


async def _by_cancel(act: Act, puppet: Puppet) -> Asked:
    asked, _ = await act.asked(puppet)
    asked.cancel()
    return asked


async def _by_deadline(act: Act, puppet: Puppet) -> Asked:
    asked, _ = await act.asked(puppet, timeout_s=0.05)
    return asked


async def _by_overload(act: Act, puppet: Puppet) -> Asked:
    for _ in range(2):  # one place, one in the queue
        act.ask()
    await puppet.called()
    return act.ask()


async def _by_crash(act: Act, puppet: Puppet) -> Asked:
    asked, _ = await act.asked(puppet)
    await puppet.leave("signal", number=9)
    return asked


async def _by_stop(act: Act, puppet: Puppet) -> Asked:
    await act.stop()
    return act.ask()


WAYS: Final[tuple[tuple[str, Way, str], ...]] = (
    ("a result", _by_result, "value 1"),
    ("an error", _by_error, "internal"),
    ("its caller's cancel", _by_cancel, "cancelled"),
    ("its deadline", _by_deadline, "deadline_exceeded"),
    ("a full queue", _by_overload, "overloaded"),
    ("a crash", _by_crash, "crashed"),
    ("a stop before it", _by_stop, "not_active"),
)


@CHECKS.rule("CAL-001")
@hosted
async def every_call_ends_once(case: Case, subject: HostSubject) -> None:
    """Whatever ends it first, and what comes after that is not an end."""
    host = await subject.host(grace_s=5.0)
    for name, way, due in WAYS:
        limits = {"inflight": 1, "queue": 1} if way is _by_overload else {}
        act = await subject.act(host, id=way.__name__.replace("_", ""), limits=limits)
        puppet = await act.begin()
        asked = await way(act, puppet)
        case.equal(_short(await asked.ended()), due, f"the end of a call by {name}")
        if puppet.ended or way is _by_overload:
            continue
        if way in (_by_cancel, _by_deadline):
            await puppet.frame(frames.CANCEL)
            await puppet.write(frames.result(1, "late"))
        await act.answers(puppet, f"after a call that ended by {name}, and its late answer")
        await _no_calls(case, act, name)


async def _no_calls(case: Case, act: Act, name: str) -> None:
    status = await act.status()
    case.equal((status.calls, status.queued), (0, 0), f"calls left after one ended by {name}")


def _short(ended: Ended) -> str:
    return str(ended) if ended.error is None else ended.error.code


@CHECKS.rule("CAL-002")
@hosted
async def each_gets_its_own_answer(case: Case, subject: HostSubject) -> None:
    """In whatever order the answers come."""
    says = subject.has("hello")
    many = MANY if says else INFLIGHT  # else nobody asks for more than the default
    act = await subject.act(limits={"inflight": MANY})
    puppet = await act.begin(**({"limits": {"inflight": MANY}} if says else {}))
    asked = [act.ask(n) for n in range(many)]
    calls = [await puppet.called() for _ in range(many)]
    random.Random(case.seed).shuffle(calls)
    await puppet.write(*(frames.result(call.id, {"for": call.args}) for call in calls))
    wrong = [n for n, each in enumerate(asked) if await each.value() != {"for": n}]
    case.equal(wrong, [], f"calls of {many} that got another one's answer")


@CHECKS.rule("CAL-003")
@hosted
async def no_more_than_agreed_are_open(case: Case, subject: HostSubject) -> None:
    """The rest waits in a bounded queue, and one more than that is told so."""
    act = await subject.act(limits={"inflight": 4, "queue": 8})
    puppet = await act.begin()
    waiting = [act.ask(n) for n in range(12)]
    ids = [(await puppet.called()).id for _ in range(4)]
    over = await act.ask("one more").fails("overloaded")
    case.equal(over.executed, "no", "executed of a call that found the queue full")
    await act.status()
    case.equal(len(puppet.waiting), 0, "calls sent beyond the 4 that are agreed")
    open_ids = set(ids)
    order: list[Any] = []
    for _ in range(12):
        call = open_ids.pop()
        await puppet.write(frames.result(call, None))
        if len(order) < 8:
            found = await puppet.called()
            order.append(found.args)
            open_ids.add(found.id)
        most = len(open_ids) + len(puppet.waiting)
        case.require(most <= 4, "no more than 4 calls open at the plugin", str(most))
    for each in waiting:
        await each.value()
    case.equal(order, list(range(4, 12)), "the order of those that waited")


@CHECKS.rule("CAL-004")
@hosted
async def what_is_not_there_costs_one_call(case: Case, subject: HostSubject) -> None:
    """A plugin that does not know a method says so, and that is all."""
    act = await subject.act()
    puppet = await act.begin()
    for adapter, method in (("t", "no_such_method"), ("no_such_adapter", "call")):
        asked, call = await act.asked(puppet, adapter=adapter, method=method)
        case.equal((call.body["adapter"], call.body["method"]), (adapter, method), "what was sent")
        await puppet.write(frames.error(call.id, "unimplemented"))
        error = await asked.fails("unimplemented")
        case.equal(error.executed, "no", "executed of what is not there")
        await act.answers(puppet, f"after {adapter}.{method} was not there")


@CHECKS.rule("CAL-005")
@hosted
async def an_error_arrives_as_it_was_told(case: Case, subject: HostSubject) -> None:
    """Code, whose fault, whether it ran, whether to try again; and never as a result."""
    act = await subject.act()
    puppet = await act.begin()
    for told in TOLD:
        asked, call = await act.asked(puppet)
        body = {"message": "as the kit says", **told}
        await puppet.write(frames.frame(frames.ERROR, call.id, frames.pack(body)))
        error = await asked.fails()
        found = {name: getattr(error, name) for name in body}
        case.equal(found, body, f"what is known of {told['code']}")
    for name, shape in MALFORMED:
        asked, call = await act.asked(puppet)
        await puppet.write(frames.frame(frames.ERROR, call.id, frames.pack(shape)))
        error = await asked.fails("contract_violation")
        case.saw(f"ERROR with {name}: {error.message}")
    await act.answers(puppet, "after all these errors")


@CHECKS.rule("CAL-006")
@hosted
async def an_answer_fits_its_contract(case: Case, subject: HostSubject) -> None:
    """A tool answers with a tool's result, a policy with a verdict; nothing else is handed on."""
    act = await subject.act(offers=(("tool", "t"), ("policy", "p")))
    puppet = await act.begin()
    shapes: dict[str, tuple[tuple[Any, bool], ...]] = {
        "tool": (
            ({"value": 7}, True),
            (7, False),
            (None, False),
            ({}, False),
            ({"value": 7, "is_error": "no"}, False),
            ({"value": 7, "effect_state": "perhaps"}, False),
            ({"value": 7, "events": 5}, False),
        ),
        "policy": (
            ({"verdict": "allow", "reason": ""}, True),
            ("allow", False),
            ({"verdict": "sure", "reason": ""}, False),
            ({"verdict": True}, False),
            ({"reason": "none"}, False),
        ),
    }
    for kind, answers in shapes.items():
        for shape, fits in answers:
            asked = Asked(subject, act.handle.use(kind, kind[0], {}), f"a {kind}'s call")
            call = await puppet.called()
            await puppet.write(frames.result(call.id, shape))
            if fits:
                case.saw(f"{kind} {shape}: {await asked.value()}")
            else:
                await asked.fails("contract_violation")
                case.saw(f"{kind} {shape}: contract_violation")


@CHECKS.rule("CAL-007")
@hosted
async def what_goes_with_a_call_arrives(case: Case, subject: HostSubject) -> None:
    """Key and trace with each call, grants and configuration once; and no id twice."""
    act = await subject.act(grants=GRANTS, config=CONFIG)
    starting = act.start()
    puppet = await act.stage.enter()
    welcome = await puppet.handshake()
    await starting.value()
    case.equal(welcome.get("grants"), GRANTS, "the grants of WELCOME")
    case.equal(welcome.get("config"), CONFIG, "the configuration of WELCOME")
    event = act.events()[-1]
    if subject.has("hello"):
        case.equal(welcome.get("instance"), event.instance, "the instance of WELCOME")
    case.equal(welcome.get("generation"), event.generation, "the generation of WELCOME")
    asked, call = await act.asked(puppet, [1], key="k/é", trace=TRACE)
    found = (call.body.get("key"), call.body.get("trace"), call.args)
    case.equal(found, ("k/é", TRACE, [1]), "key, trace and arguments of CALL")
    await puppet.write(frames.result(call.id, None))
    await asked.value()
    ids = [call.id]
    for n in range(IDS):
        asked, call = await act.asked(puppet)
        ids.append(call.id)
        if n % 3 == 0:
            asked.cancel()
            await puppet.frame(frames.CANCEL)
        if n % 3 == 1:
            await puppet.write(frames.error(call.id, "internal"))
        else:
            await puppet.write(frames.result(call.id, None))
        await asked.ended()
    case.equal(len(set(ids)), len(ids), f"different ids of {len(ids)} calls")
    case.require(all(i % 2 for i in ids), "odd ids for calls of the host", str(ids[:5]))


@CHECKS.rule("CAL-008")
@hosted
async def nothing_is_tried_again(case: Case, subject: HostSubject) -> None:
    """One call is one CALL, also where the error says that trying again would help."""
    host = await subject.host(restarts=Restarts(first_s=0.05, jitter=0.0))
    act = await subject.act(host)
    puppet = await act.begin()
    for code in ("rate_limited", "resource_exhausted", "upstream", "overloaded", "internal"):
        asked, call = await act.asked(puppet)
        await puppet.write(frames.error(call.id, code, retry="same", after_ms=1, executed="no"))
        await asked.fails(code)
        await act.answers(puppet, f"after {code}")
    sent = sum(found.kind == frames.CALL for found in puppet.received)
    case.equal(sent, 10, "CALLs for 10 calls, 5 of which failed")
    asked, _ = await act.asked(puppet, "lost")
    await puppet.leave("signal", number=9)
    await asked.fails("crashed")
    await host.advance(1.0)
    puppet = await act.begin()
    await act.answers(puppet, "after a crash and a new start")
    sent = sum(found.kind == frames.CALL for found in puppet.received)
    case.equal(sent, 1, "CALLs to the next instance")


@CHECKS.rule("CAL-010")
@hosted
async def a_crash_tells_what_may_have_run(case: Case, subject: HostSubject) -> None:
    """What was sent may have run. What was not sent has not, and may safely be tried again."""
    act = await subject.act(limits={"inflight": 2, "queue": 4})
    puppet = await act.begin()
    sent = [act.ask(n) for n in range(2)]
    for _ in sent:
        await puppet.called()
    queued = [act.ask(n) for n in range(3)]
    await puppet.leave("signal", number=9)
    found = [(await each.fails("crashed", "closed")).executed for each in (*sent, *queued)]
    case.equal(found, ["maybe"] * 2 + ["no"] * 3, "executed of 2 sent and 3 queued calls")
    await act.down()
    puppet = await act.begin()
    await puppet.do("deaf")
    unread = act.ask("never read")
    await act.becomes("READY")
    await puppet.leave("signal", number=9)
    error = await unread.fails("crashed", "closed")
    case.equal(error.executed, "maybe", "executed of a call that was written and not read")
    other = await subject.act(id="young")
    early = other.ask("before READY")
    puppet = await other.stage.enter()
    await puppet.greet()
    await puppet.leave("exit", status=3)
    error = await early.fails()
    case.equal(error.executed, "no", "executed of a call to an instance that never was ready")
