"""How long a host waits for what. One value, so that tests and the kit can shorten all of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timings"]


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, unless the name says otherwise. The defaults are the protocol's.

    `hello_s`: spawn to HELLO. `ready_s`: WELCOME to READY; STATUS may extend it up to
    `ready_longest_s`. `settle_s`: how long after the end of the channel the exit status is waited
    for, so that the error can name it. `grace_s`: from a cancel or deadline to the call's terminal,
    then the instance is tainted. `drain_s`: for calls in flight when an instance is to end.
    `exit_s`, `term_s`, `kill_s`: after half-closing the channel, after TERM, after KILL. `ping_s`:
    silence before a PING. `unresponsive_s`: silence, with a PING unanswered, before the instance is
    given up. `lag_s`: if the host's own loop was late by this much, its silence is not the plugin's
    fault. `frame_s`: from a frame's beginning to its end. `retire_s`: for calls in flight when a
    newer generation has taken over; longer than `drain_s`, because nobody waits for it.
    """

    hello_s: float = 10.0
    ready_s: float = 60.0
    ready_longest_s: float = 600.0
    settle_s: float = 0.05
    grace_s: float = 2.0
    drain_s: float = 5.0
    exit_s: float = 2.0
    term_s: float = 2.0
    kill_s: float = 2.0
    ping_s: float = 5.0
    unresponsive_s: float = 20.0
    lag_s: float = 1.0
    frame_s: float = 20.0
    retire_s: float = 60.0
