"""REG-001 to 010: what is routable, who holds it, and when it goes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from purra_bridge.wire.errors import WireError
from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.subjects.host import Asked, HostSubject, hosted
from purra_tck.verdict import Case, RuleViolation

__all__ = ["CHECKS"]

CHECKS = Checks("REG")

STEPS: Final = 600
THREADS: Final = 4
EACH: Final = 60
GRAPHS: Final = 40
OWNERS: Final = ("a", "b", "c")


class _Model:
    """What a registry should hold, kept beside it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.held: dict[str, dict[str, Any]] = {}

    def publish(self, owner: str, offers: Mapping[str, Any]) -> bool:
        """False: a name belongs to somebody else, and nothing changes."""
        others = {name for who, names in self.held.items() if who != owner for name in names}
        if others & set(offers):
            return False
        self.held[owner] = dict(offers)
        self.epoch += 1
        return True

    def retire(self, owner: str) -> None:
        self.epoch += bool(self.held.pop(owner, None))

    def names(self) -> dict[str, Any]:
        return {name: value for names in self.held.values() for name, value in names.items()}


def _offers(chance: random.Random, owner: str, number: int) -> dict[str, Any]:
    """Some names, mostly the owner's own; values tell themselves apart."""
    names = [f"{owner}{chance.randrange(3)}" for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.2:
        names.append(f"{chance.choice(OWNERS)}0")
    return {name: f"{owner}:{name}:{number}" for name in names}


@CHECKS.rule("REG-001")
@hosted
async def each_change_is_an_epoch(case: Case, subject: HostSubject) -> None:
    """Six hundred drawn steps against a model; and what was looked at once stays as it was."""
    subject.needs("inside")
    chance, model = random.Random(case.seed), _Model()
    registry = subject.driver.registry(lambda _name, _value: None)
    seen: list[tuple[Any, dict[str, Any]]] = []
    for number in range(STEPS):
        owner = chance.choice(OWNERS)
        if chance.random() < 0.25:
            model.retire(owner)
            epoch = registry.retire(owner)
        else:
            offers = _offers(chance, owner, number)
            fits = model.publish(owner, offers)
            try:
                epoch = registry.publish(owner, offers)
            except WireError:
                epoch = registry.look().epoch
                case.require(not fits, f"{offers} taken from {owner}", "it was refused")
            else:
                case.require(fits, "a conflict with another owner", f"{owner} got {offers}")
        snapshot = registry.look()
        case.equal((epoch, snapshot.epoch), (model.epoch, model.epoch), f"epoch of step {number}")
        seen.append((snapshot, model.names()))
    for snapshot, names in seen:
        found = dict(registry.names(snapshot))
        if found != names:
            raise RuleViolation(
                f"what was routable in epoch {snapshot.epoch}: {names}", f"later: {found}"
            )
    case.saw(f"{len(seen)} snapshots are as they were")


@CHECKS.rule("REG-002")
@hosted
async def a_step_keeps_what_it_began_with(case: Case, subject: HostSubject) -> None:
    """In the registry and on the wire: a swap in the middle changes nothing for what goes on."""
    subject.needs("inside", "reload")
    registry = subject.driver.registry(lambda _name, _value: None)
    registry.publish("a", {"tool": "old"})
    with registry.pin() as step:
        registry.publish("a", {"tool": "new", "more": "x"})
        case.equal((step.get("tool"), step.get("more")), ("old", None), "what the step resolves")
        with registry.pin() as next_step:
            case.equal(next_step.get("tool"), "new", "what the next step resolves")
        registry.retire("a")
        case.equal(step.get("tool"), "old", "what the step resolves after its owner has gone")
    act = await subject.act(await subject.host(retire_s=60.0))
    old = await act.begin()
    stream = act.stream()
    taking = subject.spawn(stream.rest())
    call = await old.called()
    await old.write(frames.data(call.id, "old 1"))
    reloading = Asked(subject, act.handle.reload(), "a reload")
    new = await act.stage.enter()
    await new.handshake()
    await reloading.value()
    await act.answers(new, "after it has taken over")
    await old.write(frames.data(call.id, "old 2"), frames.result(call.id, "old"))
    items, error = await subject.within(taking, "a stream that began before the swap")
    case.equal((items, error), (["old 1", "old 2"], None), "the stream that began before the swap")


@CHECKS.rule("REG-003")
@hosted
async def retired_then_drained_then_released(case: Case, subject: HostSubject) -> None:
    """What is retired is out of reach for new steps at once, and released with the last old one."""
    subject.needs("inside")
    log: list[str] = []
    registry = subject.driver.registry(lambda name, value: log.append(f"released {name} {value}"))
    registry.publish("a", {"x": 1, "y": 2})
    first = registry.pin()
    first.__enter__()
    second = registry.pin()
    second.__enter__()
    registry.publish("a", {"x": 10})
    case.equal(registry.look().get("y"), None, "what a new step finds of what was retired")
    log.append("retired")
    first.__exit__(None, None, None)
    log.append("one pin back")
    second.__exit__(None, None, None)
    log.append("both pins back")
    due = ["retired", "one pin back", "released x 1", "released y 2", "both pins back"]
    case.equal(log, due, "the order of retiring and releasing")
    registry.retire("a")
    case.equal(log[5:], ["released x 10"], "what is released where nobody holds it")
    registry.retire("a")
    case.equal(log[6:], [], "what is released by retiring again")


@CHECKS.rule("REG-004")
@hosted
async def what_was_begun_is_finished(case: Case, subject: HostSubject) -> None:
    """While the old instance drains: its calls end well, new ones go to the next or are told."""
    subject.needs("reload")
    host = await subject.host(retire_s=60.0, drain_s=60.0, exit_s=60.0)
    act = await subject.act(host)
    old = await act.begin()
    begun = [await act.asked(old, n) for n in range(5)]
    reloading = Asked(subject, act.handle.reload(), "a reload")
    new = await act.stage.enter()
    await new.handshake()
    await reloading.value()
    await old.frame(frames.DRAIN, what="DRAIN of what was succeeded")
    for n in range(5):
        asked, call = await act.asked(new, f"new {n}")
        await new.write(frames.result(call.id, call.args))
        case.equal(await asked.value(), f"new {n}", "a call while the old one drains")
    await old.write(*(frames.result(call.id, call.args) for _, call in begun))
    values = [str(await asked.ended()) for asked, _ in begun]
    case.equal(values, [f"value {n}" for n in range(5)], "the calls that were begun before")
    last, call = await act.asked(new, "last")
    stopping = subject.spawn(act.stop())
    await new.frame(frames.DRAIN, what="DRAIN at a stop")
    await act.ask("none is left").fails("retired", "not_active", "draining")
    await new.write(frames.result(call.id, "done"))
    case.equal(await last.value(), "done", "the call that was begun before the stop")
    await subject.within(stopping, "a stop")


@CHECKS.rule("REG-005")
@hosted
async def draining_has_an_end(case: Case, subject: HostSubject) -> None:
    """What is still open then fails with `retired`; and the instance goes once."""
    subject.needs("clock")
    host = await subject.host(drain_s=20.0, exit_s=5.0)
    act = await subject.act(host)
    puppet = await act.begin()
    asked = [await act.asked(puppet, n) for n in range(3)]
    stopping = Asked(subject, act.handle.stop(), "a stop with calls that never end")
    await act.settled()
    await puppet.write(frames.result(asked[0][1].id, "in time"))
    case.equal(await asked[0][0].value(), "in time", "a call that ends while it drains")
    await host.advance(18.0)
    case.require(not asked[1][0].done, "calls have the drain time", "one has ended")
    await host.advance(3.0)
    for each, _ in asked[1:]:
        error = await each.fails("retired")
        case.equal(error.executed, "maybe", "executed of a call that was broken off")
    await stopping.value()
    await puppet.gone()
    ends = [event.state for event in act.events() if event.state in ("REAPED", "ABANDONED")]
    case.equal(ends, ["REAPED"], "how often the instance is released")


@CHECKS.rule("REG-006")
@hosted
async def one_id_has_one_owner(case: Case, subject: HostSubject) -> None:
    """A second one is refused by the names of both, and nobody removes what is another's."""
    subject.needs("inside")
    registry = subject.driver.registry(lambda _name, _value: None)
    registry.publish("first", {"tool.x": 1, "tool.y": 2})
    before = registry.look()
    try:
        registry.publish("second", {"tool.z": 3, "tool.x": 4})
    except WireError as error:
        told = str(error)
        case.require("first" in told and "second" in told, "an error with both owners", told)
    else:
        raise RuleViolation("a conflict of first and second", "second took tool.x")
    after = registry.look()
    case.equal(
        (after.epoch, dict(registry.names(after))),
        (before.epoch, {"tool.x": 1, "tool.y": 2}),
        "epoch and names after a conflict",
    )
    registry.publish("second", {"tool.z": 3})
    registry.retire("second")
    case.equal(registry.names(registry.look()), {"tool.x": 1, "tool.y": 2}, "what first still has")
    registry.publish("first", {"tool.y": 2})
    registry.publish("second", {"tool.x": 4})
    case.equal(registry.look().get("tool.x"), 4, "a name that its owner has given up")
    act = await subject.act(id="twin")
    stage = await subject.stage(id="twin")
    try:
        await act.host.open(stage.spec)
    except WireError as error:
        case.require("twin" in str(error), "an error that names the plugin", str(error))
    else:
        raise RuleViolation("a conflict of two plugins of one id", "both are there")


@CHECKS.rule("REG-007")
@hosted
async def what_is_required_comes_first(case: Case, subject: HostSubject) -> None:
    """Drawn graphs: started in order, stopped in reverse; and what cannot be is refused before."""
    chance = random.Random(case.seed)
    for graph in range(GRAPHS):
        requires = _graph(chance)
        folders = [
            (await subject.stage(id=name, requires=dict.fromkeys(needs, ">=0.1"))).spec.folder
            for name, needs in requires.items()
        ]
        order = list(subject.driver.start_order(folders))
        case.equal(sorted(order), sorted(requires), f"plugins of graph {graph}")
        late = [
            (name, need)
            for name, needs in requires.items()
            for need in needs
            if order.index(need) > order.index(name)
        ]
        case.equal(late, [], f"requirements after those that need them, in graph {graph}")
    bad: tuple[tuple[str, dict[str, dict[str, str]], tuple[str, ...]], ...] = (
        ("a circle", {"x": {"y": ""}, "y": {"z": ""}, "z": {"x": ""}}, ("x", "y", "z")),
        ("itself", {"x": {"x": ""}}, ("x",)),
        ("a missing one", {"x": {"gone": ""}}, ("x", "gone")),
        ("another version", {"x": {"y": ">=2"}, "y": {}}, ("x", "y", ">=2", "0.1.0")),
    )
    for what, wanted, words in bad:
        stages = [await subject.stage(id=name, requires=needs) for name, needs in wanted.items()]
        try:
            order = list(subject.driver.start_order([stage.spec.folder for stage in stages]))
        except WireError as error:
            told = str(error)
            case.require(all(w in told for w in words), f"an error that names {words}", told)
        else:
            raise RuleViolation(f"a refusal of {what}", f"the order {order}")
    await _stopped_in_reverse(case, subject)


def _graph(chance: random.Random) -> dict[str, list[str]]:
    """Plugins in a drawn order, each of which needs some of those before it in another order."""
    names = [f"p{n}" for n in range(chance.randrange(1, 7))]
    ranked = names[:]
    chance.shuffle(ranked)
    graph = {
        name: chance.sample(ranked[:at], chance.randrange(min(at, 3) + 1))
        for at, name in enumerate(ranked)
    }
    chance.shuffle(names)
    return {name: graph[name] for name in names}


async def _stopped_in_reverse(case: Case, subject: HostSubject) -> None:
    host = await subject.host(exit_s=20.0)
    specs: tuple[tuple[str, dict[str, str]], ...] = (("ground", {}), ("wall", {"ground": ""}))
    acts = [await subject.act(host, id=name, requires=needs) for name, needs in specs]
    for act in acts:
        await act.begin()
    await subject.within(host.close(), "closing")
    ends = [event.plugin for event in host.events if event.state == "REAPED"]
    begins = [event.plugin for event in host.events if event.state == "STOPPING"]
    case.equal((ends, begins), (["wall", "ground"], ["wall", "ground"]), "the order of the stop")


@CHECKS.rule("REG-008")
@hosted
async def a_pin_comes_back_on_every_way_out(case: Case, subject: HostSubject) -> None:
    """By its end, by an error, by a cancel, by leaving in the middle."""
    subject.needs("inside")
    released: list[Any] = []
    registry = subject.driver.registry(lambda _name, value: released.append(value))

    async def cancelled() -> None:
        with registry.pin():
            await asyncio.Event().wait()

    async def out(way: str) -> None:
        if way == "a cancel":
            task = subject.spawn(cancelled())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            return
        with registry.pin():
            if way == "an error":
                raise ArithmeticError
            if way == "a return":
                return

    for way in ("its end", "an error", "a return", "a cancel"):
        registry.publish("a", {"x": way})
        try:
            await out(way)
        except ArithmeticError:
            pass
        registry.retire("a")
        case.equal(released[-1:], [way], f"what is released after {way}")


@CHECKS.rule("REG-009")
@hosted
async def together_as_if_one_by_one(case: Case, subject: HostSubject) -> None:
    """Threads publish, retire and look; in the order of the epochs it is one history."""
    subject.needs("inside")
    registry = subject.driver.registry(lambda _name, _value: None)
    done: list[tuple[int, str, dict[str, Any]]] = []
    looks: list[tuple[int, dict[str, Any]]] = []
    faults: list[str] = []

    def work(number: int) -> None:
        chance = random.Random(case.seed * 100 + number)
        owner = f"o{number}"
        try:
            for step in range(EACH):
                offers = {f"{owner}.{chance.randrange(3)}": (number, step)}
                if chance.random() < 0.3 and step:
                    offers = {}
                done.append((registry.publish(owner, offers), owner, offers))
                with registry.pin() as snapshot:
                    looks.append((snapshot.epoch, dict(registry.names(snapshot))))
        except Exception as error:  # whatever a race brings out is the registry's fault
            faults.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + subject.patience_s
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    case.equal(faults, [], "errors in a race")
    epochs = [epoch for epoch, _, _ in done]
    twice = len(epochs) - len(set(epochs))
    case.equal(
        (twice, max(epochs)), (0, THREADS * EACH), "epochs given out twice, and the last one"
    )
    state: dict[int, dict[str, Any]] = {0: {}}
    held: dict[str, dict[str, Any]] = {}
    for epoch, owner, offers in sorted(done, key=lambda row: row[0]):
        held[owner] = offers
        state[epoch] = {name: value for names in held.values() for name, value in names.items()}
    wrong = [(epoch, found) for epoch, found in looks if found != state[epoch]]
    case.equal(wrong[:1], [], "snapshots that no order of the steps explains")


@CHECKS.rule("REG-010")
@hosted
async def hosts_do_not_see_each_other(case: Case, subject: HostSubject) -> None:
    """Two in one process, with plugins of one id."""
    one, two = await subject.host(), await subject.host()
    mine, yours = await subject.act(one), await subject.act(two)
    puppet, other = await mine.begin(), await yours.begin()
    await mine.answers(puppet, "beside another host")
    await yours.answers(other, "beside another host")
    instances = [{event.instance for event in host.events} for host in (one, two)]
    case.equal(len(instances[0] & instances[1]), 0, "instances that both hosts tell of")
    await subject.within(one.close(), "closing one of two hosts")
    await puppet.gone()
    await yours.answers(other, "after the other host has closed")
    case.equal((await yours.status()).state, "READY", "the state in the host that is left")
