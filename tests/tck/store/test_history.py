"""The judge of histories (STO-021) on histories that are right, and wrong in one way each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_tck.suites.store_history import Event, faults


def _wrote(place: int, sent_s: float, got_s: float, client: str = "a") -> Event:
    return Event("wrote", client, sent_s, got_s, place, f"v{place}")


GOOD = [
    _wrote(1, 0.0, 1.0),
    _wrote(2, 0.5, 1.5, "b"),
    Event("read", "c", 0.2, 1.2, 1, "v1"),
    Event("refused", "c", 0.9, 1.6, 2),
    _wrote(3, 2.0, 3.0),
    Event("read", "b", 3.5, 4.0, 3, "v3"),
]


def test_a_right_history_is_right() -> None:
    assert faults(GOOD, ["v1", "v2", "v3"]) == []
    assert faults([]) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([*GOOD, _wrote(2, 5.0, 6.0, "z")], "place 2 was given twice"),
        ([e for e in GOOD if e.place != 2], "place 2 was given to nobody"),
        ([*GOOD[:4], _wrote(4, 0.0, 0.1), _wrote(3, 2.0, 3.0)], "had place 4 before a asked"),
        ([*GOOD, Event("read", "c", 5.0, 6.0, 2, "v2")], "as the last after place 3"),
        ([*GOOD, Event("refused", "c", 5.0, 6.0, 1)], "as the last after place 3"),
        ([*GOOD, Event("read", "c", 0.1, 0.3, 2, "v2")], "before it was written"),
        ([*GOOD, Event("read", "c", 5.0, 6.0, 3, "other")], "'other' at place 3"),
        ([*GOOD, Event("read", "c", 5.0, 6.0, 9, "v9")], "place 9 of 3"),
    ],
)
def test_a_wrong_one_is_told(wrong: list[Event], words: str) -> None:
    assert words in "; ".join(faults(wrong))


def test_what_is_left_at_the_end_is_compared() -> None:
    """A record that was replaced, one that is missing, one that nobody was told of."""
    for last, place in ((["v1", "x", "v3"], 2), (["v1", "v2"], 3), (["v1", "v2", "v3", "v4"], 4)):
        assert f"at the end place {place} holds" in faults(GOOD, last)[0]


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 5)), min_size=1, max_size=20))
def test_whatever_really_happened_one_after_the_other_fits(
    spans: list[tuple[float, float]],
) -> None:
    """Operations that take effect at one moment of their span, each at its own, never conflict."""
    moments = sorted((start + length / 2, start, start + length) for start, length in spans)
    events = [_wrote(n, start, end) for n, (_, start, end) in enumerate(moments, 1)]
    reads = [replace(event, kind="read", client="r", sent_s=event.got_s) for event in events[-1:]]
    late_s = max(event.got_s for event in events) + 1
    reads = [replace(event, sent_s=late_s, got_s=late_s + 1) for event in reads]
    assert faults([*events, *reads]) == []
