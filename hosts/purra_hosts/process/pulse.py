"""Whether an instance that is ready still lives: silence, and frames that never become whole.

A process that was stopped, or holds its interpreter in C code, is alive to the kernel and of no use
to anybody; only its silence tells. So after `ping_s` without a byte it is asked, and after
`unresponsive_s` without one, the PING unanswered, it is given up. A busy plugin answers: its I/O
thread does, and says how far behind its handlers are (H43).

Bytes are a sign of life only while they become frames. A worker that drips a frame byte by byte
holds up everything behind it, so a frame has `frame_s` to become whole (FRM-014).

Our own stall is nobody else's fault: if the host's loop was late by more than `lag_s`, all counting
begins anew (H68). Every instance has a pulse of its own, with times of its own (H67).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from purra_bridge.wire.session import Session
from purra_hosts.process.alarm import NEVER
from purra_hosts.process.pump import Pump
from purra_hosts.process.timings import Timings

__all__ = ["Pulse"]


class Pulse:
    """`lag_ms`, `rss_bytes`: what the last PONG said of the plugin's own loop and memory; None
    before the first. `due_s`: when to `look` again.
    """

    def __init__(self, timings: Timings, session: Session, pump: Pump) -> None:
        self._timings = timings
        self._session = session
        self._pump = pump
        self._pinged = False
        self._forgiven_s = 0.0
        self.lag_ms: float | None = None
        self.rss_bytes: int | None = None
        self.due_s = NEVER

    def begin(self) -> float:
        """The instance is ready; when to look first."""
        self.due_s = self._pump.heard_s + self._timings.ping_s
        return self.due_s

    def answered(self, pong: Mapping[str, Any]) -> float:
        """PONG has come; when to look next."""
        self._pinged = False
        self.lag_ms = pong.get("lag_ms")
        self.rss_bytes = pong.get("rss") or None
        return self.begin()

    def look(self, now_s: float, late_s: float) -> str:
        """What is wrong with it, "" if nothing is; sends a PING if it is time."""
        timings, pump = self._timings, self._pump
        if late_s > timings.lag_s:
            self._forgiven_s = now_s
        partial_s = max(pump.partial_s, self._forgiven_s) + timings.frame_s
        if partial_s <= now_s:
            return f"a frame did not become whole within {timings.frame_s:g} s"
        heard_s = max(pump.heard_s, self._forgiven_s)
        if self._pinged and heard_s + timings.unresponsive_s <= now_s:
            return f"no sign of life for {timings.unresponsive_s:g} s"
        if not self._pinged and heard_s + timings.ping_s <= now_s:
            self._pinged = True
            self._session.ping(None)
            pump.kick()
        patience_s = timings.unresponsive_s if self._pinged else timings.ping_s
        self.due_s = min(heard_s + patience_s, partial_s)
        return ""
