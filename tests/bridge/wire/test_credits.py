"""Windows: both ends count the same bytes (STR-003, STR-005, H31, H32)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_bridge.wire.credits import ReceiveWindow, SendWindow
from purra_bridge.wire.errors import ProtocolViolation


@pytest.mark.parametrize("count", [0, -1, -(2**63), True, 1.0, None, "8", [8], 101])
def test_credit_is_a_positive_count_of_bytes_that_were_sent(count: Any) -> None:
    """STR-005: zero, negative, overflowing, or not a count at all."""
    window = SendWindow(1000)
    window.credit -= 100
    with pytest.raises(ProtocolViolation, match="flow"):
        window.add(count)
    assert window.credit == 900
    window.add(100)
    assert window.credit == 1000


def test_a_sender_may_overshoot_by_one_frame() -> None:
    """STR-003: the receiver checks before it subtracts."""
    window = ReceiveWindow(100)
    window.charge(99)
    window.charge(5000)
    with pytest.raises(ProtocolViolation, match="flow"):
        window.charge(1)


def test_credit_returns_at_half_a_window() -> None:
    window = ReceiveWindow(100)
    window.charge(80)
    assert window.consume(49) == 0
    assert window.consume(1) == 50
    assert window.consume(30) == 0


@pytest.mark.parametrize("cost", [-1, 81])
def test_consuming_what_did_not_come_is_our_own_fault(cost: int) -> None:
    window = ReceiveWindow(100)
    window.charge(80)
    with pytest.raises(ValueError, match="consumed"):
        window.consume(cost)


@given(st.integers(1, 1000), st.lists(st.tuples(st.booleans(), st.integers(32, 3000))))
def test_the_two_views_never_disagree(size: int, steps: list[tuple[bool, int]]) -> None:
    """A correct sender is never judged a cheat, never stalls for ever, and ends with all its
    credit but less than half a window."""
    sender, receiver = SendWindow(size), ReceiveWindow(size)
    waiting: list[int] = []
    on_the_way: list[int] = []
    for sends, cost in steps:
        if sends and sender.credit > 0:
            sender.credit -= cost
            receiver.charge(cost)
            waiting.append(cost)
        elif waiting and (due := receiver.consume(waiting.pop(0))):
            on_the_way.append(due)
        elif on_the_way:
            sender.add(on_the_way.pop(0))
        assert sender.credit <= receiver.left
    for cost in waiting:
        if due := receiver.consume(cost):
            on_the_way.append(due)
    for due in on_the_way:
        sender.add(due)
    assert sender.credit == receiver.left > size // 2
