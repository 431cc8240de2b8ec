"""Laws of fold and decide, over runs of chance with kills, cancels, refusals and bad models."""

from __future__ import annotations

import copy
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from purra.errors import PurraError
from purra.journal.decide import decide
from purra.journal.events import KINDS, TERMINAL, Event
from purra.journal.fold import fold, fold_all
from purra.journal.recovery import RULES
from purra.journal.state import RunState
from tests.journal.world import World

STEPS = 400
runs = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
dice = st.integers(min_value=0, max_value=10**9).map(random.Random)


def finished(world: World) -> World:
    for _ in range(STEPS):
        if not world.step():
            return world
    raise AssertionError(f"still {world.state.status} after {STEPS} steps")


@runs
@given(dice)
def test_every_run_ends_exactly_once(chance: random.Random) -> None:
    """STR-05, RUN-09, RUN-21: whatever happens, one terminal event, and it is the last."""
    journal = finished(World(chance)).journal
    assert [event.kind in TERMINAL for event in journal].count(True) == 1
    assert journal[-1].kind in TERMINAL


@runs
@given(dice)
def test_every_announced_call_gets_exactly_one_result(chance: random.Random) -> None:
    """TOOL-26, K53: also after cancel, refusal, takeover; and in the order of the calls."""
    world = finished(World(chance))
    announced = [
        f"{event.data['attempt']}.{call['ordinal']}"
        for event in world.journal
        if event.kind == "model.round"
        for call in event.data["calls"]
    ]
    answered = [message.call_id for message in world.state.messages if message.role == "tool"]
    assert answered == announced


@runs
@given(dice)
def test_no_write_without_a_key_is_dispatched_twice(chance: random.Random) -> None:
    """K50, REC-06: a lost claim of such a write blocks; it is never claimed again."""
    world = finished(World(chance))
    names = {
        f"{event.data['attempt']}.{call['ordinal']}": call["name"]
        for event in world.journal
        if event.kind == "model.round"
        for call in event.data["calls"]
    }
    claims = Counter(call for call, _ in world.dispatched)
    assert all(n == 1 for call, n in claims.items() if names[call] in ("write", "asked"))


@runs
@given(dice)
def test_recoveries_stay_within_their_budget(chance: random.Random) -> None:
    """REC-01 to REC-03: per cause and run, however often the owner changes."""
    used: Counter[str] = Counter()
    for event in finished(World(chance)).journal:
        if event.kind == "recovery.decided" and event.data["allowed"]:
            used[event.data["cause"]] += 1
    assert all(used[cause] <= RULES[cause].budget for cause in used)


@runs
@given(dice)
def test_after_a_cancel_nothing_is_recovered(chance: random.Random) -> None:
    """REC-10: no second chance, no new attempt and no new claim once somebody ended the run."""
    kinds = [(event.kind, event.data) for event in finished(World(chance)).journal]
    told = [at for at, (kind, data) in enumerate(kinds) if kind == "inbox.taken"]
    cancelled = [at for at in told if kinds[at][1]["body"]["kind"] == "cancel"]
    after = {kind for kind, _ in kinds[cancelled[0] :]} if cancelled else set()
    assert not after & {"recovery.decided", "stream.opened", "tool.call.claimed"}


@runs
@given(dice)
def test_replaying_any_prefix_gives_the_same_state_and_decision(chance: random.Random) -> None:
    """OUT-06, STR-02, invariant 12: resuming is folding the journal and deciding again."""
    world = World(chance)
    for _ in range(30):
        if not world.step():
            break
        replayed = fold_all(RunState(), world.journal)
        assert replayed == world.state
        assert decide(replayed) == decide(world.state)


@runs
@given(dice)
def test_every_event_in_every_state_folds_or_is_illegal(chance: random.Random) -> None:
    """Design §5: illegal means absent from the table: one coded error, and the state as it was."""
    world, donor = World(chance), finished(World(random.Random(chance.random())))
    samples = {event.kind: event for event in donor.journal}
    for _ in range(chance.randint(0, 40)):
        if not world.step():
            break
    for sample in samples.values():
        before = copy.deepcopy(world.state)
        event = Event(before.seq + 1, "r", "root", sample.kind, 5, None, sample.data)
        after = copy.deepcopy(before)
        try:
            fold(after, event)
        except PurraError as error:
            assert error.code == "illegal_event"
            assert after == before
        else:
            assert after.seq == before.seq + 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_ended_run_takes_nothing(kind: str) -> None:
    """RUN-08: after the terminal event every kind is refused."""
    world = finished(World(random.Random(7)))
    data = dict.fromkeys(KINDS[kind].fields, 0)
    event = Event(world.state.seq + 1, "r", "root", kind, 5, None, data)
    with pytest.raises(PurraError, match="not legal"):
        fold(world.state, event)
