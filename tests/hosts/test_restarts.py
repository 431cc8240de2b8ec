"""Restart policy as a pure function: backoff, window, quarantine."""

from __future__ import annotations

import pytest

from purra_hosts.restarts import (
    PERMANENT,
    Again,
    Down,
    Failure,
    History,
    Quarantine,
    RestartPolicy,
    after_failure,
)

POLICY = RestartPolicy()
CRASH = Failure("crashed", 5.0)
NO_START = Failure("crashed", None)


def test_waits_double_up_to_a_bound_and_jitter_only_shortens_them() -> None:
    """PLG-14, SUP-009: first, factor, ceiling and jitter as configured."""
    policy = RestartPolicy(most=20)
    history, waits = History(), []
    for number in range(12):
        history, verdict = after_failure(policy, history, CRASH, float(number), 0.0)
        assert isinstance(verdict, Again)
        waits.append(verdict.after_s)
    assert waits == [0.2 * 2**n for n in range(8)] + [30.0] * 4
    _, verdict = after_failure(policy, History(), CRASH, 0.0, 0.999999)
    assert isinstance(verdict, Again) and 0.15 <= verdict.after_s < 0.2


@pytest.mark.parametrize(("failure", "what"), [(CRASH, "ended"), (NO_START, "failed to start")])
def test_too_many_in_the_window_open_the_circuit(failure: Failure, what: str) -> None:
    """PLG-14, SUP-010, H64: three in 60 s are answered, the fourth is not."""
    history = History()
    for number in range(3):
        history, verdict = after_failure(POLICY, history, failure, number * 15.0, 0.5)
        assert isinstance(verdict, Again)
    history, verdict = after_failure(POLICY, history, failure, 50.0, 0.5)
    assert isinstance(verdict, Quarantine)
    assert what in verdict.reason and "4 times" in verdict.reason
    assert verdict.for_s == POLICY.quarantine_s


def test_old_failures_fall_out_of_the_window() -> None:
    """SUP-010: one crash every 25 s never opens it."""
    history = History()
    for number in range(50):
        history, verdict = after_failure(POLICY, history, CRASH, number * 25.0, 0.5)
        assert isinstance(verdict, Again)


def test_a_failed_probe_opens_it_for_longer_and_a_good_one_closes_it() -> None:
    """PLG-14, SUP-011: half-open is one start; healthy running forgets everything (SUP-012)."""
    history, waits = History(quarantines=1), []
    for number in range(6):
        history, verdict = after_failure(POLICY, history, NO_START, 100.0 * number, 0.5)
        assert isinstance(verdict, Quarantine)
        waits.append(verdict.for_s)
    assert waits == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    history, verdict = after_failure(POLICY, history, Failure("crashed", 61.0), 900.0, 0.0)
    assert verdict == Again(0.2) and history.quarantines == 0


def test_starts_and_crashes_are_counted_apart() -> None:
    """Protocol, instance states: three of each within the window are still answered."""
    history = History()
    for number in range(6):
        failure = CRASH if number % 2 else NO_START
        history, verdict = after_failure(POLICY, history, failure, float(number), 0.5)
        assert isinstance(verdict, Again)


@pytest.mark.parametrize("code", sorted(PERMANENT))
def test_what_cannot_get_better_is_not_tried_again(code: str) -> None:
    """HSK-003, SUP-012."""
    history, verdict = after_failure(POLICY, History(), Failure(code, None), 0.0, 0.0)
    assert (history, verdict) == (History(), Down())


def test_a_stranger_is_not_tried_again_and_without_a_policy_nothing_is() -> None:
    """HSK-001; and a host without a policy leaves what has failed down."""
    stranger = Failure("protocol_violation", None)
    assert after_failure(POLICY, History(), stranger, 0.0, 0.0)[1] == Down()
    later = Failure("protocol_violation", 3.0)
    assert isinstance(after_failure(POLICY, History(), later, 0.0, 0.0)[1], Again)
    assert after_failure(None, History(), CRASH, 0.0, 0.0)[1] == Down()
