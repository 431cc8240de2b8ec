"""Who may run beside whom: order, fairness, cancellation, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purra.gateway.gates import Gate, Gates, Ticket

PARALLEL = Gate("parallel", "s1", "t1")
EXCLUSIVE = Gate("global_exclusive", "s1", "t1")


def actor(name: str) -> Gate:
    return Gate("actor_serial", name, "t1")


def target(name: str) -> Gate:
    return Gate("target_serial", "s1", name)


async def settle() -> None:
    """Lets every task that can go on go on: a wake-up passes two locks, one task step each."""
    for _ in range(8):
        await anyio.lowlevel.checkpoint()


class Caller:
    """A task that enters a gate and stays inside until it is told to leave."""

    def __init__(self, gates: Gates, gate: Gate) -> None:
        self.gate = gate
        self.inside = False
        self._leave = anyio.Event()
        self._gates = gates
        self.task: asyncio.Task[None] = asyncio.create_task(self._run())

    async def _run(self) -> None:
        ticket = await self._gates.enter(self.gate)
        try:
            self.inside = True
            await self._leave.wait()
        finally:
            self.inside = False
            ticket.release()

    def leave(self) -> None:
        self._leave.set()

    def cancel(self) -> None:
        self.task.cancel()


def run(main: Callable[[], Awaitable[Any]]) -> None:
    anyio.run(main)


async def insiders(gates: Gates, *wanted: Gate) -> list[bool]:
    """Enters callers in this order and says which of them are inside; all leave again."""
    callers = [Caller(gates, gate) for gate in wanted]
    await settle()
    seen = [caller.inside for caller in callers]
    for caller in callers:
        caller.leave()
    await asyncio.gather(*(caller.task for caller in callers))
    assert gates.idle
    return seen


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (PARALLEL, PARALLEL, True),
        (PARALLEL, actor("a"), True),
        (PARALLEL, target("a"), True),
        (actor("a"), actor("b"), True),
        (actor("a"), actor("a"), False),
        (actor("a"), target("a"), True),
        (target("a"), target("b"), True),
        (target("a"), target("a"), False),
        (EXCLUSIVE, PARALLEL, False),
        (EXCLUSIVE, actor("a"), False),
        (EXCLUSIVE, target("a"), False),
        (EXCLUSIVE, EXCLUSIVE, False),
    ],
)
def test_who_runs_beside_whom(first: Gate, second: Gate, together: bool) -> None:
    """CAP-04: the table, in both orders, waiting or asking at once."""

    async def main() -> None:
        gates = Gates()
        assert await insiders(gates, first, second) == [True, together]
        assert await insiders(gates, second, first) == [True, together]
        for one, other in ((first, second), (second, first)):
            ticket = gates.try_enter(one)
            assert ticket is not None
            also = gates.try_enter(other)
            assert (also is not None) == together
            if also is not None:
                also.release()
            ticket.release()
            assert gates.idle

    run(main)


def test_a_released_ticket_is_spent() -> None:
    """A second release must not let a stranger's lock go."""

    async def main() -> None:
        gates = Gates()
        first = await gates.enter(actor("a"))
        first.release()
        second = await gates.enter(actor("a"))
        first.release()
        assert gates.try_enter(actor("a")) is None
        second.release()
        assert gates.idle

    run(main)


def test_who_came_first_enters_first() -> None:
    """CAP-04: writes of one session happen in the order in which they were asked for."""

    async def main() -> None:
        gates = Gates()
        callers = [Caller(gates, actor("a")) for _ in range(5)]
        for turn in range(5):
            await settle()
            assert [caller.inside for caller in callers] == [n == turn for n in range(5)]
            callers[turn].leave()
        await asyncio.gather(*(caller.task for caller in callers))
        assert gates.idle

    run(main)


def test_an_exclusive_call_is_not_starved() -> None:
    """Later parallel calls wait behind it, though they would fit; nobody asks past it."""

    async def main() -> None:
        gates = Gates()
        first = Caller(gates, PARALLEL)
        await settle()
        exclusive = Caller(gates, EXCLUSIVE)
        await settle()
        later = [Caller(gates, PARALLEL), Caller(gates, actor("a"))]
        await settle()
        assert not exclusive.inside and not any(caller.inside for caller in later)
        assert gates.try_enter(PARALLEL) is None
        assert gates.try_enter(actor("b")) is None
        first.leave()
        await settle()
        assert exclusive.inside and not any(caller.inside for caller in later)
        exclusive.leave()
        await settle()
        assert all(caller.inside for caller in later)
        for caller in later:
            caller.leave()
        await asyncio.gather(*(caller.task for caller in (first, exclusive, *later)))
        assert gates.idle

    run(main)


def test_a_cancelled_waiter_lets_those_behind_it_in() -> None:
    """An exclusive call that gives up must not hold back the parallel ones it held back."""

    async def main() -> None:
        gates = Gates()
        first = Caller(gates, PARALLEL)
        await settle()
        exclusive = Caller(gates, EXCLUSIVE)
        await settle()
        later = Caller(gates, PARALLEL)
        await settle()
        exclusive.cancel()
        await settle()
        assert later.inside
        first.leave()
        later.leave()
        await asyncio.gather(first.task, later.task)
        assert gates.idle

    run(main)


def test_cancelled_while_the_turn_is_on_its_way() -> None:
    """The turn was given and the task has not run yet: it is handed on, not lost."""

    async def main() -> None:
        gates = Gates()
        first = await gates.enter(actor("a"))
        second = Caller(gates, actor("a"))
        third = Caller(gates, actor("a"))
        await settle()
        first.release()  # gives the turn to the second, whose task sleeps still
        second.cancel()
        await settle()
        assert second.task.cancelled() and third.inside
        third.leave()
        await third.task
        assert gates.idle

    run(main)


def test_cancelled_between_the_two_locks() -> None:
    """A call that has its actor's lock and waits for the whole gives the first one back."""

    async def main() -> None:
        gates = Gates()
        exclusive = await gates.enter(EXCLUSIVE)
        waiting = Caller(gates, actor("a"))
        behind = Caller(gates, actor("a"))
        await settle()
        waiting.cancel()
        await settle()
        exclusive.release()
        await settle()
        assert behind.inside
        behind.leave()
        await behind.task
        assert gates.idle

    run(main)


def test_cancel_scopes_of_anyio_work_too() -> None:
    """Deadlines come from the caller."""

    async def main() -> None:
        gates = Gates()
        ticket = await gates.enter(EXCLUSIVE)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await gates.enter(actor("a"))
        assert scope.cancelled_caught
        ticket.release()
        assert gates.idle

    run(main)


def test_nothing_grows() -> None:
    """Actors and targets that nobody uses any more are forgotten, also after cancels."""

    async def main() -> None:
        gates = Gates()
        for number in range(1000):
            (await gates.enter(actor(str(number)))).release()
            (await gates.enter(target(str(number)))).release()
        assert gates.keys == 0
        held = await gates.enter(EXCLUSIVE)
        for number in range(100):
            assert gates.try_enter(actor(f"t{number}")) is None
        callers = [Caller(gates, actor(str(number % 10))) for number in range(100)]
        await settle()
        assert gates.keys == 10
        for caller in callers:
            caller.cancel()
        await settle()
        assert gates.keys == 0
        held.release()
        assert gates.idle

    run(main)


def test_entering_free_gates_does_not_wait() -> None:
    """A call that nobody is in the way of costs no turn of the loop."""

    async def main() -> None:
        gates = Gates()
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1

        asyncio.get_running_loop().call_soon(count)
        tickets: list[Ticket] = [await gates.enter(gate) for gate in (PARALLEL, actor("a"))]
        assert turns == 0
        for ticket in tickets:
            ticket.release()

    run(main)


some_gates = st.sampled_from(
    [PARALLEL, EXCLUSIVE, actor("a"), actor("b"), target("a"), target("b")]
)
steps = st.lists(
    st.tuples(st.just("enter"), some_gates)
    | st.tuples(st.sampled_from(["leave", "cancel"]), st.integers(0, 30))
    | st.tuples(st.just("settle"), st.none()),
    max_size=40,
)


def conflict(one: Gate, other: Gate) -> bool:
    """The table of CAP-04, said once more and otherwise."""
    if "global_exclusive" in (one.concurrency, other.concurrency):
        return True
    if one.concurrency != other.concurrency or one.concurrency == "parallel":
        return False
    if one.concurrency == "actor_serial":
        return one.actor == other.actor
    return one.target == other.target


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_schedule_is_safe_live_and_clean(schedule: list[tuple[str, Any]]) -> None:
    """CAP-04: no two conflicting calls inside, nobody waits for no reason, nothing is left.

    Cancels hit waiters and insiders at every point, also in the moment of their turn.
    """

    async def main() -> None:
        gates = Gates()
        callers: list[Caller] = []
        for action, what in schedule:
            if action == "enter":
                callers.append(Caller(gates, what))
            elif action == "settle":
                await settle()
                check_live(callers)
            elif callers:
                getattr(callers[what % len(callers)], action)()
            check_safe(callers)
        await settle()
        check_live(callers)
        for caller in callers:  # in order, so each of them has had its turn before it is told
            await settle()
            caller.leave()
        await asyncio.gather(*(caller.task for caller in callers), return_exceptions=True)
        assert gates.idle and gates.keys == 0

    def check_safe(callers: list[Caller]) -> None:
        inside = [caller.gate for caller in callers if caller.inside]
        for number, one in enumerate(inside):
            assert not any(conflict(one, other) for other in inside[:number])

    def check_live(callers: list[Caller]) -> None:
        """Whoever waits conflicts with an insider or with somebody who waits longer.

        A serial call queues for the whole only when it has its actor or target, so an exclusive
        call that came meanwhile stands before it; no call without a lock of its own waits so.
        """
        for number, caller in enumerate(callers):
            if caller.inside or caller.task.done():
                continue
            before = [c for c in callers[:number] if not c.task.done()]
            others = [c for c in callers if c.inside]
            if caller.gate.own is not None:
                waits = [c for c in callers[number:] if not c.task.done()]
                others += [c for c in waits if c.gate.concurrency == "global_exclusive"]
            assert any(conflict(caller.gate, c.gate) for c in before + others)

    run(main)
