"""The one async shell: it journals, publishes, starts what `decide` asks for and stops what it
does not.

    facts ──▶ stage (fold) ──▶ decide ──▶ records, claims: stage, decide again
                                  │ stable
                                  ▼
                        commit, publish ──▶ start what is missing, stop what is surplus ──▶ wait

Rules of this file. Nothing starts before the commit that allows it. Each effect runs in a task of
its own that hands in facts and touches nothing else. A task that is asked to stop still hands in
what its effect came to, if the state waits for that (a model attempt, a tool call); otherwise what
it hands in is dropped. Resuming a run is the same loop on a folded state; there is no other
(invariant 12).

Rejected: a coroutine per run that awaits each step in turn (cancel, deadline and takeover then
need a branch at each await), and folding only after the commit (a round would cost three commits,
not one).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from purra.contracts.call import Stop
from purra.errors import AdapterError, PurraError, StoreError
from purra.journal.decide import decide
from purra.journal.effects import (
    AssembleContext,
    CallModel,
    CallTool,
    Effect,
    Preflight,
    Record,
    WaitUntil,
)
from purra.journal.events import Fact
from purra.limits import INBOX_DELAY_S, READ_PAGE, STORE_RETRY_S
from purra.runs import ending, keys
from purra.runs.inbox import facts_of
from purra.runs.log import RunLog
from purra.runs.performers import Performers
from purra.runs.result import Result, result_of

__all__ = ["Shell"]

Work = AssembleContext | CallModel | Preflight | CallTool
"""Effects that run in a task."""


@dataclass(slots=True)
class _Running:
    effect: Work
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True, slots=True)
class _HandedIn:
    facts: Sequence[Fact]
    stop: Stop | None = None
    """Of the effect that handed them in."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Of the inbox. What it stands for depends on all that was handed in before it."""

    number: int
    body: Any


class Shell:
    """Drives one owned run until it ends or rests. `log` is the run's; `performers` do the work."""

    def __init__(self, log: RunLog, performers: Performers) -> None:
        self._log = log
        self._state = log.state
        self._performers = performers
        self._running: dict[str, _Running] = {}
        self._handed_in: list[_HandedIn | _Entry] = []
        self._timers: tuple[WaitUntil, ...] = ()
        self._wake = anyio.Event()
        self._inbox_read = self._state.inbox
        self._fault: PurraError | None = None
        self._tasks: TaskGroup

    async def run(self) -> Result:
        """The run's result.

        Raises `PurraError(ownership_lost)` when another owner took it, or the store's error when it
        cannot be journaled; the run then stands as its journal says.
        """
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._watch_inbox)
                self._log.output.attach(self._start)
                await self._drive()
                self._log.output.detach()
                self._tasks.cancel_scope.cancel()
        finally:
            self._log.output.detach()
            self._log.feed.close()
            self._log.output.feed.close()
        if self._fault is not None:
            raise self._fault
        return result_of(self._state)

    def lose(self, fault: PurraError | None = None) -> None:
        """The run cannot be journaled by this owner any more: stops everything, writes nothing."""
        where = f"run {self._state.run}"
        self._fault = fault or PurraError("ownership_lost", "the lease lapsed", where=where)
        self._tasks.cancel_scope.cancel()

    def note(self, fact: Fact) -> None:
        """Something to know that rides on the next commit (`plugin.*`)."""
        self._log.note(fact)

    async def look(self) -> None:
        """Reads the inbox now: somebody in this process has just written to it."""
        await self._read_inbox()

    async def _drive(self) -> None:
        try:
            if self._state.term > 1:  # a run that was taken over: what does its inbox say?
                await self._read_inbox()
            while await self._advance():
                await self._rest()
        except PurraError as fault:
            self.lose(fault)

    # -- one turn of the loop -----------------------------------------------------------------

    async def _advance(self) -> bool:
        """Takes in what came, commits, reconciles. False when there is nothing left to do."""
        self._take_in()
        effects = self._settle()
        await self._commit()
        if self._state.ended:
            return False
        self._reconcile(effects)
        resting = self._state.status in ("blocked", "waiting") and not self._running
        return not (resting and await ending.release(self._log))

    def _take_in(self) -> None:
        handed_in, self._handed_in = self._handed_in, []
        for item in handed_in:
            batch = self._judged(item) if isinstance(item, _Entry) else item
            for fact in batch.facts:
                try:
                    self._log.stage(fact, durable=self._durable(fact))
                except PurraError:
                    # What a stopped effect hands in late may have no place any more.
                    if batch.stop is None or not batch.stop.requested:
                        raise

    def _judged(self, entry: _Entry) -> _HandedIn:
        fits = self._performers.fits
        return _HandedIn(facts_of(self._state, entry.number, entry.body, fits))

    def _settle(self) -> Sequence[Effect]:
        """Stages everything that follows without waiting; gives the stable set of effects."""
        while True:
            effects = decide(self._state)
            records = [effect for effect in effects if isinstance(effect, Record)]
            for record in records:
                self._log.stage(record.fact, durable=record.durable)
            at_once = [] if records else self._at_once(effects)
            for fact in at_once:
                self._log.stage(fact, durable=self._durable(fact))
            if not records and not at_once:
                return effects

    def _durable(self, fact: Fact) -> bool:
        """A claim that blocks the run if it is the last thing known must survive loss of power."""
        if fact.kind != "tool.call.claimed" or self._state.batch is None:
            return fact.kind == "approval.decided"
        return not self._state.batch.calls[fact.data["call"]].reads

    def _at_once(self, effects: Sequence[Effect]) -> list[Fact]:
        facts: list[Fact] = []
        for effect in effects:
            if isinstance(effect, Work) and effect.id not in self._running:
                facts += self._performers.at_once(effect)
        return facts

    async def _commit(self) -> None:
        if self._state.ended:
            await ending.commit_end(self._log)
        elif self._log.staged:
            await self._log.flush()

    def _reconcile(self, effects: Sequence[Effect]) -> None:
        wanted = {effect.id: effect for effect in effects if isinstance(effect, Work)}
        self._timers = tuple(e for e in effects if isinstance(e, WaitUntil))
        for effect_id, running in self._running.items():
            if effect_id not in wanted:
                running.stop.request()
        for effect_id, effect in wanted.items():
            if effect_id not in self._running:
                self._running[effect_id] = _Running(effect)
                self._tasks.start_soon(self._perform, self._running[effect_id])

    async def _rest(self) -> None:
        """Waits for a fact, an inbox entry or the next timer."""
        if not self._handed_in:
            clock = self._log.clock
            await clock.wait(self._wake, min((t.at_ms for t in self._timers), default=None))
            now = clock.wall_ms()
            for timer in self._timers:
                if timer.at_ms <= now:
                    self._hand_in(_HandedIn([_timer_fact(timer, self._state.seq)]))
        self._wake = anyio.Event()

    def _hand_in(self, item: _HandedIn | _Entry) -> None:
        self._handed_in.append(item)
        self._wake.set()

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except PurraError as fault:
            self.lose(fault)

    # -- tasks --------------------------------------------------------------------------------

    async def _perform(self, running: _Running) -> None:
        effect = running.effect
        facts: Sequence[Fact] = ()
        with anyio.CancelScope() as scope:
            if not isinstance(effect, CallTool):  # a tool call is asked first, see dispatch
                running.stop.on_request(scope.cancel)
            try:
                facts = await self._performers.perform(effect, running.stop, self._claimed)
            except PurraError as fault:
                self.lose(fault)
                return
        if scope.cancelled_caught and isinstance(effect, CallModel):
            facts = [self._performers.gave_up(effect)]
        del self._running[effect.id]
        self._hand_in(_HandedIn(facts, running.stop))

    async def _claimed(self, fact: Fact, stop: Stop) -> None:
        """Journals a claim that had to wait for its turn; returns when it is committed."""
        seq = self._log.feed.head
        self._hand_in(_HandedIn([fact], stop))
        while not any(event.data == fact.data for event in self._log.feed.after(seq)):
            await self._log.feed.changed()

    async def _watch_inbox(self) -> None:
        await anyio.sleep(INBOX_DELAY_S)
        while True:
            try:
                async for _ in self._log.store.watch(keys.inbox(self._state.run)):
                    await self._read_inbox()
            except (AdapterError, StoreError):
                pass  # the store's host starts it anew; what was missed is read then
            await anyio.sleep(STORE_RETRY_S)

    async def _read_inbox(self) -> None:
        while not self._state.ended:
            after = self._inbox_read
            page = await self._log.store.read(keys.inbox(self._state.run), after, READ_PAGE)
            for number, body in enumerate(page.records, after + 1):
                if number > self._inbox_read:  # else `look` and the watch have read it both
                    self._inbox_read = number
                    self._hand_in(_Entry(number, body))
            if self._inbox_read >= page.head:
                return


def _timer_fact(timer: WaitUntil, seq: int) -> Fact:
    kind, _, call = timer.timer.partition(":")
    if kind == "approval":
        return Fact("approval.expired", {"call": call}, seq)
    return Fact("timer.fired", {"timer": timer.timer}, seq)
