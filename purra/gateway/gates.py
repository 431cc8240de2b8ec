"""Who may run at the same time as whom, across all runs of a kernel (CAP-04).

| declared | waits for |
|---|---|
| `parallel` | exclusive calls |
| `actor_serial` | these, and calls of the same actor that are `actor_serial` too |
| `target_serial` | these, and calls of the same target that are `target_serial` too |
| `global_exclusive` | every other call |

Two kinds of locks are enough. Each actor and target has one of its own, for as long as somebody
holds it or waits for it, and one lock is for the whole: exclusive calls take it alone, all others
share it. The own lock is taken first and the whole second, everywhere, so no circle of waiters can
form. Both are fair: who came first enters first, and nobody enters past a waiter that does not
fit yet, so a stream of parallel calls cannot starve an exclusive one.

Not re-entrant: a call that waits, inside its own turn, for another serial call of the same actor
waits for itself. Nothing here knows time; deadlines and cancellation come from the caller.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import final

import anyio

from purra.contracts.tool import Concurrency

__all__ = ["Gate", "Gates", "Ticket"]


@final
@dataclass(frozen=True, slots=True)
class Gate:
    """What one call must pass. `actor`: the session, or a run without one. `target`: what the
    call acts on, at least the tool's address. Only the one that `concurrency` names is looked at.
    """

    concurrency: Concurrency
    actor: str = ""
    target: str = ""

    @property
    def own(self) -> tuple[str, str] | None:
        """The lock that the call takes besides the whole."""
        if self.concurrency == "actor_serial":
            return "actor", self.actor
        if self.concurrency == "target_serial":
            return "target", self.target
        return None


class _Waiter:
    __slots__ = ("alone", "entered", "turn")

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.entered = False
        self.turn = anyio.Event()


class _Lock:
    """Held by one alone, or shared by any number; first come, first served."""

    __slots__ = ("_alone", "_holders", "_queue")

    def __init__(self) -> None:
        self._holders = 0
        self._alone = False
        self._queue: OrderedDict[_Waiter, None] = OrderedDict()

    @property
    def idle(self) -> bool:
        return not self._holders and not self._queue

    def try_take(self, alone: bool) -> bool:
        if self._queue or not self._fits(alone):
            return False
        self._enter(alone)
        return True

    async def take(self, alone: bool) -> None:
        if self.try_take(alone):
            return
        waiter = _Waiter(alone)
        self._queue[waiter] = None
        try:
            await waiter.turn.wait()
        except BaseException:  # cancelled: what was given meanwhile is handed on, not lost
            if waiter.entered:
                self.give()
            else:
                del self._queue[waiter]
                self._admit()
            raise

    def give(self) -> None:
        self._holders -= 1
        self._alone = False
        self._admit()

    def _fits(self, alone: bool) -> bool:
        return not self._alone and not (alone and self._holders)

    def _enter(self, alone: bool) -> None:
        self._holders += 1
        self._alone = alone

    def _admit(self) -> None:
        while self._queue:
            waiter = next(iter(self._queue))
            if not self._fits(waiter.alone):
                return
            del self._queue[waiter]
            self._enter(waiter.alone)
            waiter.entered = True
            waiter.turn.set()


@final
class Ticket:
    """The right to be inside. Give it back with `release`, once; again does nothing."""

    __slots__ = ("_gates", "_key", "_released")

    def __init__(self, gates: Gates, key: tuple[str, str] | None) -> None:
        self._gates = gates
        self._key = key
        self._released = False

    def release(self) -> None:
        """Leaves, and lets in whoever is next. Never waits."""
        if not self._released:
            self._released = True
            self._gates._leave(self._key)


@final
class Gates:
    """The gates of one kernel. Used from one event loop."""

    __slots__ = ("_own", "_whole")

    def __init__(self) -> None:
        self._whole = _Lock()
        self._own: dict[tuple[str, str], _Lock] = {}

    @property
    def keys(self) -> int:
        """Actors and targets that somebody holds or waits for."""
        return len(self._own)

    @property
    def idle(self) -> bool:
        """Whether nobody is inside and nobody waits."""
        return self._whole.idle and not self._own

    def try_enter(self, gate: Gate) -> Ticket | None:
        """A ticket if the call may go on at once, else None. Never passes somebody who waits."""
        key = gate.own
        if key is not None and not self._lock(key).try_take(True):
            return None
        if self._whole.try_take(gate.concurrency == "global_exclusive"):
            return Ticket(self, key)
        if key is not None:
            self._give_own(key)
        return None

    async def enter(self, gate: Gate) -> Ticket:
        """Waits for the call's turn. Cancelling the wait leaves nothing behind."""
        key = gate.own
        if key is not None:
            try:
                await self._lock(key).take(True)
            except BaseException:  # cancelled: the lock may be nobody's now
                self._forget(key)
                raise
        try:
            await self._whole.take(gate.concurrency == "global_exclusive")
        except BaseException:  # cancelled: the own lock is handed on
            if key is not None:
                self._give_own(key)
            raise
        return Ticket(self, key)

    def _leave(self, key: tuple[str, str] | None) -> None:
        self._whole.give()
        if key is not None:
            self._give_own(key)

    def _lock(self, key: tuple[str, str]) -> _Lock:
        lock = self._own.get(key)
        if lock is None:
            lock = self._own[key] = _Lock()
        return lock

    def _give_own(self, key: tuple[str, str]) -> None:
        self._own[key].give()
        self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        if self._own[key].idle:
            del self._own[key]
