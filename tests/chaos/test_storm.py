"""Chaos: kills, stops, garbage and reloads under constant calls. `make soak` is the long form."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tests.chaos.storm import storm

CALLS = 20_000
EVERY = 300


def children() -> set[str]:
    task = Path(f"/proc/{os.getpid()}/task")
    return {pid for thread in task.iterdir() for pid in (thread / "children").read_text().split()}


def test_a_storm_is_weathered(capsys: pytest.CaptureFixture[str]) -> None:
    """PLG-28, issue B: at least 20,000 calls, 30 kills, 5 reloads; each call ends once; reload
    loses none.

    H44, H50, H61, H70, SHD-006, SUP-005, SUP-014: and nothing is left, no process, descriptor or
    thread.
    """
    before = children(), len(os.listdir("/proc/self/fd")), threading.active_count()
    tally = asyncio.run(storm(2026, CALLS, EVERY))
    with capsys.disabled():
        print(f"\n{tally.line()}")
    assert tally.wrong == []
    assert tally.calls >= CALLS and sum(tally.outcomes.values()) == tally.calls
    assert tally.harm["kill"] >= 30 and tally.harm["reload"] >= 5
    assert tally.harm["stop"] and tally.harm["garble"]
    assert tally.outcomes["ok"] > tally.calls * 0.9
    assert (children(), len(os.listdir("/proc/self/fd")), threading.active_count()) == before
