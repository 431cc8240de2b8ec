"""The table of an instance's life: every pair, every way to the end."""

from __future__ import annotations

import itertools

import pytest

from purra_hosts.process.states import (
    ANNOUNCED,
    ENDED,
    LIVE,
    TABLE,
    IllegalStepError,
    State,
    Step,
    after,
)


@pytest.mark.parametrize(("state", "step"), [*itertools.product(State, Step)])
def test_legal_is_what_the_table_lists(state: State, step: Step) -> None:
    """LIF-001: every other pair is a fault of the host."""
    if (state, step) in TABLE:
        assert after(state, step) is TABLE[state, step]
    else:
        with pytest.raises(IllegalStepError, match=f"{step.name} in {state.name}"):
            after(state, step)


def test_every_state_is_reached_announced_and_left() -> None:
    """LIF-001: no dead state, no way back to READY, and an end from everywhere."""
    assert set(TABLE.values()) | {State.STARTING} == set(State) == set(ANNOUNCED)
    assert {state for state, _ in TABLE} == set(State) - ENDED
    assert len(set(ANNOUNCED.values())) == len(State)
    for start in set(State) - ENDED:
        reached, todo = {start}, [start]
        while todo:
            state = todo.pop()
            fresh = {to for (at, _), to in TABLE.items() if at is state} - reached
            reached |= fresh
            todo += fresh
        assert State.REAPED in reached
        if start not in LIVE:
            assert not reached & LIVE
