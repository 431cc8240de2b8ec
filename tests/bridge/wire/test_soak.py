"""Random work on two ends, bytes delivered in random pieces: what always holds, holds.

CAL-001, CAL-002, CAL-009, STR-001, STR-003, CAN-003, CAN-004, CAN-011, wire rules 1 and 5: every
call has exactly one terminal, items arrive complete and in order, neither end ever calls the other
a cheat, and when all is over nothing is kept and all credit is back.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from purra_bridge.wire import events as ev
from purra_bridge.wire.codec import decode
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.session import Session
from tests.bridge.wire.links import linked

TINY = {
    "max_frame": 4096,
    "window": 2048,
    "raw_window": 8192,
    "link_window": 16 * 1024,
    "inflight": 8,
}


class End:
    """The owner of one session: makes calls, serves them, and remembers what it saw."""

    def __init__(self, session: Session, dice: random.Random, name: str) -> None:
        self.session = session
        self.dice = dice
        self.name = name
        self.log: list[Any] = []
        self.terminals: Counter[int] = Counter()
        self.cancelled: set[int] = set()
        self.parents: dict[int, int] = {}
        self.withdrawn: set[int] = set()
        self.open: set[int] = set()
        self.uploading: dict[int, int] = {}
        self.uploads_in: dict[int, int] = {}
        self.serving: dict[int, int] = {}  # id: next item
        self.received: dict[int, int] = {}
        self.untaken: list[tuple[int, int]] = []

    def handle(self, events: list[Any]) -> None:
        for event in events:
            kind = type(event)
            if kind is ev.Called:
                self.serving[event.id] = 0
                assert event.args == {"n": event.trace["n"], "pad": "p" * event.trace["pad"]}
            elif kind is ev.Cancelled:
                assert event.id in self.serving
                self._orphan(event.id)
            elif kind in (ev.Items, ev.Chunk):
                self.untaken.append((event.id, event.cost))
                self._check_order(event)
            elif kind in (ev.Returned, ev.Failed):
                self.terminals[event.id] += 1
                self.open.discard(event.id)
                self.uploading.pop(event.id, None)
                if kind is ev.Returned and event.id not in self.cancelled:
                    # nothing was lost on the way: the result says how many were sent
                    assert event.value["items"] == self.received.get(event.id, 0)

    def _orphan(self, parent: int) -> None:
        """Calls made on behalf of `parent` die with it (wire rule 5)."""
        self.cancelled |= {call_id for call_id, its in self.parents.items() if its == parent}

    def _check_order(self, event: Any) -> None:
        if event.id in self.open:
            values = event.values if type(event) is ev.Items else [decode(bytes(event.data))]
            for value in values:
                assert value["i"] == self.received.get(event.id, 0)
                self.received[event.id] = value["i"] + 1
        elif event.id in self.serving and len(event.data):
            for number in bytes(event.data[:1]):
                assert number == self.uploads_in.get(event.id, 0) % 256
            self.uploads_in[event.id] = self.uploads_in.get(event.id, 0) + 1

    def act(self) -> None:
        dice, session = self.dice, self.session
        choice = dice.randrange(9)
        if choice == 0 and len(self.open) < 6:
            self._call()
        elif choice == 1 and self.open:
            call_id = dice.choice(sorted(self.open))
            if session.cancel(call_id, "test"):
                self.withdrawn.add(call_id)
                self.open.discard(call_id)
            self.cancelled.add(call_id)
            self.uploading.pop(call_id, None)
        elif choice == 2 and self.uploading:
            call_id = dice.choice(sorted(self.uploading))
            self._upload(call_id)
        elif choice in (3, 4, 5) and self.serving:
            self._produce(dice.choice(sorted(self.serving)))
        elif choice == 6 and self.serving and dice.random() < 0.5:
            call_id = dice.choice(sorted(self.serving))
            sent = self.serving.pop(call_id)
            self._orphan(call_id)
            if dice.random() < 0.2:
                session.error(call_id, WireError("not_found", "x"))
            else:
                pad = dice.choice([0, 0, 20_000])
                session.result(call_id, {"items": sent, "pad": "r" * pad})
        else:
            for _ in range(dice.randrange(4)):
                if self.untaken:
                    session.consumed(*self.untaken.pop(dice.randrange(len(self.untaken))))

    def _call(self) -> None:
        n, pad = self.dice.randrange(1000), self.dice.choice([0, 10, 10, 9000])
        args = {"n": n, "pad": "p" * pad}
        options: dict[str, Any] = {"trace": {"n": n, "pad": pad}}
        if self.name == "plugin":
            if not self.serving:
                return
            options["parent"] = self.dice.choice(sorted(self.serving))
        try:
            call_id = self.session.call("a", "m", args, options)
        except WireError as error:
            assert error.code == "parent_gone"
            assert self.name == "plugin"
            return
        self.open.add(call_id)
        if "parent" in options:
            self.parents[call_id] = options["parent"]
        if self.dice.random() < 0.4:
            self.uploading[call_id] = 0

    def _upload(self, call_id: int) -> None:
        if not self.session.sendable(call_id):
            return
        number = self.uploading[call_id]
        if number > 20 or self.dice.random() < 0.1:
            self.session.end_upload(call_id)
            del self.uploading[call_id]
            return
        self.session.chunk(call_id, bytes([number % 256]) * self.dice.choice([1, 100, 4000]))
        self.uploading[call_id] = number + 1

    def _produce(self, call_id: int) -> None:
        first = self.serving[call_id]
        count = self.dice.choice([1, 1, 2, 30])
        pad = self.dice.choice([0, 0, 50, 10_000 if count == 1 else 300])
        self.session.items(call_id, [{"i": first + k, "pad": "x" * pad} for k in range(count)])
        self.serving[call_id] = first + count

    def finish(self) -> None:
        """Answers, ends and takes everything that is left."""
        for call_id, sent in self.serving.items():
            self._orphan(call_id)
            self.session.result(call_id, {"items": sent})
        self.serving.clear()
        for call_id in self.uploading:
            self.session.end_upload(call_id)
        self.uploading.clear()
        while self.untaken:
            self.session.consumed(*self.untaken.pop())


class Wire:
    """One direction: bytes that are under way."""

    def __init__(self, source: End, target: End, dice: random.Random) -> None:
        self.source, self.target, self.dice = source, target, dice
        self.bytes = bytearray()

    def move(self, everything: bool = False) -> None:
        if everything or self.dice.random() < 0.5:
            self.bytes += b"".join(self.source.session.take())
        count = len(self.bytes) if everything else self.dice.randrange(len(self.bytes) + 1)
        if count:
            self.target.handle(self.target.session.receive(bytes(self.bytes[:count])))
            del self.bytes[:count]


def run(seed: int, steps: int) -> tuple[End, End]:
    dice = random.Random(seed)
    link = linked(TINY, TINY)
    host, plugin = End(link.host, dice, "host"), End(link.plugin, dice, "plugin")
    there, back = Wire(host, plugin, dice), Wire(plugin, host, dice)
    for _ in range(steps):
        for end in (host, plugin):
            end.act()
        there.move()
        back.move()
        for end in (host, plugin):
            # STR-003: what is not taken never exceeds the link's window and one frame
            assert sum(cost for _, cost in end.untaken) <= TINY["link_window"] + 5000 + 15_000
    for _ in range(200):
        host.finish()
        plugin.finish()
        there.move(everything=True)
        back.move(everything=True)
    return host, plugin


@pytest.mark.parametrize("seed", range(12))
def test_what_always_holds(seed: int) -> None:
    for round_seed in range(seed * 20, seed * 20 + 20):
        host, plugin = run(round_seed, 60)
        for end in (host, plugin):
            session = end.session
            assert not end.open, f"seed {round_seed}: calls without a terminal"
            assert set(end.terminals.values()) <= {1}
            assert not set(end.terminals) & end.withdrawn
            assert session.calls == session.serving == 0
            assert not session._calls.joining
            assert not session._writer._lanes
            assert not session._calls._prepaid
            link = session._writer.link
            assert link.window // 2 < link.credit <= link.window


def test_ten_thousand_cancels_leave_nothing() -> None:
    """CAN-011."""
    link = linked()
    for number in range(10_000):
        call_id = link.host.call("a", "m", None)
        (called,) = link.to_plugin()
        if number % 2:
            link.plugin.items(called.id, ["x"])
        assert not link.host.cancel(call_id, "test")
        link.to_plugin()
        link.plugin.error(called.id, WireError("cancelled"))
        link.to_host()
    assert link.host.calls == link.plugin.serving == 0
    assert link.host.counters == {"late_frames": 5000}
    link.host._writer.pump()
    assert link.plugin._writer.link.credit > 0
