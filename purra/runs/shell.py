"""The one async shell: it journals, publishes, starts what `decide` asks for and stops what it
does not.

    facts ──▶ stage (fold) ──▶ decide ──▶ records, claims: stage, decide again
                                  │ stable
                                  ▼
                        commit, publish ──▶ start what is missing, stop what is surplus ──▶ wait

Rules of this file. Nothing starts before the commit that allows it. Each effect runs in a task of
its own that hands in facts and touches nothing else. A task that is asked to stop still hands in
what its effect came to, if the state waits for that (a model attempt, a tool call); otherwise what
it hands in is dropped. Whoever has news takes the turn, one at a time: who comes meanwhile leaves
the news with the one that is at it. Resuming a run is the same turn on a folded state; there is no
other (invariant 12).

Rejected: a coroutine per run that awaits each step in turn (cancel, deadline and takeover then
need a branch at each await), folding only after the commit (a round would cost three commits, not
one), and a task that takes all the turns (each effect would then wake it through the event loop).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from purra.runs.inboxes import Inboxes
from purra.runs.log import RunLog
from purra.runs.performers import Performers
from purra.runs.result import Result, result_of
from purra.runs.tasks import Tasks

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
    """Drives one owned run until it ends or rests. `log` is the run's; `performers` do the work;
    `inboxes` tell of what others have written for it.
    """

    def __init__(self, log: RunLog, performers: Performers, inboxes: Inboxes) -> None:
        self._log = log
        self._inboxes = inboxes
        self._state = log.state
        self._performers = performers
        self._running: dict[str, _Running] = {}
        self._handed_in: list[_HandedIn | _Entry] = []
        self._timers: tuple[WaitUntil, ...] = ()
        self._alarm_ms: int | None = None
        self._call_off: Callable[[], object] = _nothing
        self._turning = False
        self._over = asyncio.Event()
        self._inbox_read = self._state.inbox
        self._fault: PurraError | None = None
        self._tasks = Tasks()

    async def run(self) -> Result:
        """The run's result.

        Raises `PurraError(ownership_lost)` when another owner took it, or the store's error when it
        cannot be journaled; the run then stands as its journal says.
        """
        later = asyncio.get_running_loop().call_later
        watching = later(INBOX_DELAY_S, self._start, self._watch_inbox)
        try:
            async with self._tasks:
                self._log.output.attach(self._start)
                if self._state.term > 1:  # a run that was taken over: what does its inbox say?
                    await self._guarded(self._read_inbox)
                await self._turn()
                await self._over.wait()
                self._log.output.detach()
        finally:
            watching.cancel()
            self._call_off()
            self._log.output.detach()
            self._log.feed.close()
            self._log.output.feed.close()
        if self._fault is not None:
            raise self._fault
        return result_of(self._state)

    def lose(self, fault: PurraError | None = None) -> None:
        """The run cannot be journaled by this owner any more: stops everything, writes nothing."""
        if self._over.is_set():
            return  # given up or ended by its own last commit, which is why a touch was refused
        where = f"run {self._state.run}"
        self._fault = fault or PurraError("ownership_lost", "the lease lapsed", where=where)
        self._log.output.detach()
        self._over.set()
        self._tasks.stop()

    def note(self, fact: Fact) -> None:
        """Something to know that rides on the next commit (`plugin.*`)."""
        self._log.note(fact)

    async def look(self) -> None:
        """Reads the inbox now: somebody in this process has just written to it."""
        await self._read_inbox()
        self._start(self._turn)  # a task of ours: whoever asks may be cancelled at any moment

    # -- one turn -----------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Takes the run as far as it goes without waiting for anything but the store."""
        if self._turning:
            return
        self._turning = True
        try:
            while not self._over.is_set():
                if not await self._advance():
                    self._over.set()
                elif not self._handed_in:
                    break
        except PurraError as fault:
            self.lose(fault)
        finally:
            self._turning = False

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
        now = self._log.clock.wall_ms()
        for timer in self._timers:
            if timer.at_ms <= now:
                self._log.stage(_timer_fact(timer, self._state.seq))
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
            follows = False
            for effect in effects:  # a record, or what a beginning effect comes to at once
                if isinstance(effect, Record):
                    self._log.stage(effect.fact, durable=effect.durable)
                    follows = True
                elif isinstance(effect, Work) and effect.id not in self._running:
                    for fact in self._performers.at_once(effect):
                        self._log.stage(fact, durable=self._durable(fact))
                        follows = True
            if not follows:
                return effects

    def _durable(self, fact: Fact) -> bool:
        """A claim that blocks the run if it is the last thing known must survive loss of power."""
        if fact.kind != "tool.call.claimed" or self._state.batch is None:
            return fact.kind == "approval.decided"
        return not self._state.batch.calls[fact.data["call"]].reads

    async def _commit(self) -> None:
        if self._state.ended:
            await ending.commit_end(self._log)
        elif self._log.staged:
            await self._log.flush()

    def _reconcile(self, effects: Sequence[Effect]) -> None:
        wanted = {effect.id: effect for effect in effects if isinstance(effect, Work)}
        self._timers = tuple([effect for effect in effects if isinstance(effect, WaitUntil)])
        self._set_alarm()
        for effect_id, running in self._running.items():
            if effect_id not in wanted:
                running.stop.request()
        for effect_id, effect in wanted.items():
            if effect_id not in self._running:
                running = self._running[effect_id] = _Running(effect)
                self._tasks.start(self._perform(effect_id, running))

    def _set_alarm(self) -> None:
        """A turn when the next timer is due: nearly always the run's deadline, as the time before,
        and then nothing is to be done."""
        at_ms = min((timer.at_ms for timer in self._timers), default=None)
        if at_ms != self._alarm_ms:
            self._call_off()
            self._alarm_ms = at_ms
            self._call_off = self._log.clock.alarm(at_ms, self._ring) if at_ms else _nothing

    def _ring(self) -> None:
        self._alarm_ms = None
        self._start(self._turn)

    # -- tasks --------------------------------------------------------------------------------

    async def _perform(self, effect_id: str, running: _Running) -> None:
        effect = running.effect
        try:
            if not isinstance(effect, CallTool):  # a tool call is asked first, see dispatch
                running.stop.on_request(_this_task().cancel)
            facts = await self._performers.perform(effect, running.stop, self._claimed)
        except PurraError as fault:
            self.lose(fault)
            return
        except asyncio.CancelledError:
            if self._tasks.stopping or not running.stop.requested:
                raise
            facts = [self._performers.gave_up(effect)] if isinstance(effect, CallModel) else []
        del self._running[effect_id]
        self._handed_in.append(_HandedIn(facts, running.stop))
        await self._turn()

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.start(self._guarded(work))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except PurraError as fault:
            self.lose(fault)

    async def _claimed(self, fact: Fact, stop: Stop) -> None:
        """Journals a claim that had to wait for its turn; returns when it is committed."""
        seq = self._log.feed.head
        self._handed_in.append(_HandedIn([fact], stop))
        await self._turn()
        while not any(event.data == fact.data for event in self._log.feed.after(seq)):
            await self._log.feed.changed()

    async def _watch_inbox(self) -> None:
        while True:
            try:
                async with self._inboxes.watch(self._state.run) as changes:
                    async for _ in changes:
                        await self._take_mail()
            except (AdapterError, StoreError):
                pass  # the store's host starts it anew; what was missed is read then
            await asyncio.sleep(STORE_RETRY_S)

    async def _take_mail(self) -> None:
        await self._read_inbox()
        if self._handed_in:
            await self._turn()

    async def _read_inbox(self) -> None:
        while not self._state.ended:
            after = self._inbox_read
            page = await self._log.store.read(keys.inbox(self._state.run), after, READ_PAGE)
            for number, body in enumerate(page.records, after + 1):
                if number > self._inbox_read:  # else `look` and the watch have read it both
                    self._inbox_read = number
                    self._handed_in.append(_Entry(number, body))
            if self._inbox_read >= page.head:
                return


def _nothing() -> None:
    return None


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _timer_fact(timer: WaitUntil, seq: int) -> Fact:
    kind, _, call = timer.timer.partition(":")
    if kind == "approval":
        return Fact("approval.expired", {"call": call}, seq)
    return Fact("timer.fired", {"timer": timer.timer}, seq)
