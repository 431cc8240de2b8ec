"""Everything at once, at random: each call has one terminal, each stream is whole."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from purra_bridge.wire import events as wire

OPERATIONS = 400
OPEN_MAX = 40


class Hammer:
    """Random calls, taken, cancelled and checked as they end."""

    def __init__(self, worker: Any, seed: int, kinds: list[str]) -> None:
        self.worker = worker
        self.random = random.Random(seed)
        self.kinds = kinds
        self.open: dict[int, Any] = {}
        self.got: dict[int, list[Any]] = {}
        self.cancelled: set[int] = set()
        self.held: list[Any] = []
        self.pings = 0

    def start(self) -> None:
        kind = self.random.choice(self.kinds)
        number = self.random.randrange(1000)
        if kind == "ping":
            self.worker.session.ping(number)
            self.worker.flush()
            self.pings += 1
            return
        window = self.random.choice([1024, 4096, 65536])
        adapter, method, args, due = {
            "add": ("add", "call", {"arguments": {"left": number, "right": 1}}, number + 1),
            "nap": ("nap", "call", {"arguments": {"seconds": number / 25_000}}, "slept"),
            "voice": (
                "voice",
                "generate",
                {"messages": [], "params": {"count": number}},
                [*map(str, range(number))],
            ),
            "commit": ("journal", "commit", {"ops": number}, number),
        }[kind]
        call_id = self.worker.call(adapter, method, args, window=window)
        self.open[call_id] = (kind, due)
        self.got[call_id] = []

    def cancel(self) -> None:
        call_id = self.random.choice(list(self.open))
        self.cancelled.add(call_id)
        self.worker.session.cancel(call_id)
        self.worker.flush()

    def handle(self) -> None:
        """Takes what has come; some of it later than other."""
        for event in self.worker.events:
            kind = type(event)
            if kind is wire.Items:
                self.got[event.id] += event.values
                self.held.append(event)
            elif kind is wire.Pong:
                self.pings -= 1
            elif kind in (wire.Returned, wire.Failed):
                self.check(event)
        self.worker.events.clear()
        self.random.shuffle(self.held)
        while self.held and self.random.random() < 0.9:
            self.worker.consume(self.held.pop())

    def check(self, event: Any) -> None:
        kind, due = self.open.pop(event.id)  # a second terminal would not find it
        if type(event) is wire.Failed:
            assert event.id in self.cancelled, event
            assert event.error.code == "cancelled"
            return
        if kind == "voice":
            texts = [item["text"] for item in self.got[event.id] if item["t"] == "content"]
            assert event.id in self.cancelled or texts[: len(due)] == due
        elif kind == "commit":
            assert event.value["n"] == due
        else:
            assert event.value["value"] == due

    def run(self) -> None:
        for _ in range(OPERATIONS):
            if len(self.open) < OPEN_MAX:
                self.start()
            if self.open and self.random.random() < 0.2:
                self.cancel()
            self.worker.pump(self.random.choice([0, 0, 0.001, 0.005]))
            self.handle()
        until = time.monotonic() + 20
        while self.open or self.pings or self.held:
            assert time.monotonic() < until, (self.open, self.pings)
            self.worker.pump(0.05)
            self.handle()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("entry", "threads"), [("sample", 1), ("sample", 3), ("awaiting", 1)])
def test_every_call_has_one_terminal(launch: Any, entry: str, threads: int, seed: int) -> None:
    """CAL-001, CAN-003, STR-001: under load, late credit and cancels at any moment."""
    worker = launch(f"{entry}:plugin", limits={"threads": threads})
    kinds = ["add", "nap", "voice", "voice", "commit", "ping"]
    Hammer(worker, seed, kinds).run()
    worker.session.ping("last")
    worker.flush()
    assert worker.wait(wire.Pong).body["inflight"] == 0
    worker.session.drain("done")
    worker.flush()
    assert worker.finish()[0] == 0
