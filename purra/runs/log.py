"""Append, then publish: the only writer of a run's journal.

Facts are staged (placed, folded) as they come and committed together: one commit takes everything
that followed from one another without waiting, e.g. a round, its promotion, the admission of its
calls and their claims. A staged event is known to this owner only; nothing that it allows has
begun yet, because the shell starts effects after the flush. If the commit is refused, the owner
has lost the run and throws its state away, so folding early can mislead nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from purra.contracts.clock import Clock
from purra.contracts.store import Append, Commit, Op, Seal, Store
from purra.errors import StoreError
from purra.journal.events import TERMINAL, Event, Fact, event_value
from purra.journal.fold import fold
from purra.journal.state import RunState
from purra.runs import keys
from purra.runs.commits import ownership
from purra.runs.feed import Feed
from purra.runs.output import Output
from purra.values import seal

__all__ = ["RunLog", "place"]


def place(fact: Fact, run: str, seq: int, at_ms: int) -> Event:
    """The event that `fact` becomes at `seq`: detached and frozen, as it will be read back."""
    return Event(seq, run, fact.thread, fact.kind, at_ms, fact.parent, seal(fact.data))


class RunLog:
    """The journal of one owned run: state, tail and head in one place.

    `state` has every committed event folded in, and the staged ones.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        state: RunState,
        output_head: int = 0,
        recent: Sequence[Event] = (),
    ) -> None:
        """`recent`: the last committed events, kept for readers so that they need not ask."""
        self.store = store
        self.clock = clock
        self.state = state
        self.feed = Feed(state.seq - len(recent))
        self.feed.publish(recent)
        self.output = Output(state.run, output_head, Feed(output_head), self._append_output)
        self._staged: list[Event] = []
        self._durable = False
        self._notes: list[Fact] = []

    @property
    def staged(self) -> bool:
        """Whether events wait for `flush`."""
        return bool(self._staged)

    def stage(self, fact: Fact, *, durable: bool = False) -> Event:
        """Places and folds `fact`. Raises `PurraError(illegal_event)`, changing nothing."""
        if self._notes:
            notes, self._notes = self._notes, []
            for note in notes:
                self._place(note)
        event = self._place(fact)
        self._durable = self._durable or durable
        return event

    def note(self, fact: Fact) -> None:
        """Keeps a fact that follows nothing and causes nothing for the next commit."""
        self._notes.append(fact)

    def _place(self, fact: Fact) -> Event:
        event = place(fact, self.state.run, self.state.seq + 1, self.clock.wall_ms())
        fold(self.state, event)
        self._staged.append(event)
        return event

    async def flush(self, extra: Sequence[Op] = (), *, key: str = "") -> None:
        """Commits what is staged, with `extra` ops and the drafts that wait.

        `key` names a commit that stages nothing; others are named by the head that they expect.

        Raises `StoreError` where an op of `extra` was refused: nothing was committed, everything is
        still staged. Raises `PurraError(ownership_lost)` or `AdapterError`: this log must not be
        used any more.
        """
        if not self._staged and not extra:
            return
        events = list(self._staged)
        async with self.output.idle():
            drafts = self.output.take()
            ops = self._ops(events, extra, drafts)
            try:
                await self._commit(ops, key or f"seq:{self.feed.head}", durable=self._durable)
            except StoreError:
                self.output.put_back(drafts)  # the caller may try again with other ops
                raise
            if drafts is not None:
                self.output.published(drafts)
        self._staged, self._durable = [], False
        self.feed.publish(events)

    def _ops(self, events: list[Event], extra: Sequence[Op], drafts: Append | None) -> list[Op]:
        run = self.state.run
        ops: list[Op] = []
        if events:
            records = tuple([event_value(event) for event in events])
            ops.append(Append(keys.journal(run), self.feed.head, records))
        if drafts is not None:
            ops.append(drafts)
        if events and events[-1].kind in TERMINAL:
            streams = (keys.journal(run), keys.inbox(run), keys.output(run))
            ops += [Seal(stream) for stream in streams]
        return [*ops, *extra]

    async def _commit(self, ops: list[Op], key: str, *, durable: bool) -> None:
        run = self.state.run
        fence = {keys.lease(run): self.state.term}
        try:
            await self.store.commit(Commit(tuple(ops), (keys.journal(run), key), fence, durable))
        except StoreError as error:
            raise ownership(error, run) from error

    async def _append_output(self, batch: Append) -> None:
        run = self.state.run
        fence = {keys.lease(run): self.state.term}
        key = (batch.stream, f"seq:{batch.expect}")
        try:
            await self.store.commit(Commit((batch,), key, fence))
        except StoreError as error:
            raise ownership(error, run) from error
