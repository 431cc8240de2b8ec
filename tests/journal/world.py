"""A world of chance for fold and decide: does whatever is asked, well or badly, in any order."""

from __future__ import annotations

import random
from typing import Any

from purra.journal.decide import decide
from purra.journal.effects import (
    AssembleContext,
    CallModel,
    CallTool,
    Effect,
    Preflight,
    Record,
    WaitUntil,
)
from purra.journal.events import Event, Fact
from purra.journal.fold import fold
from purra.journal.state import Call, RunState

USAGE = {"input_tokens": 5, "output_tokens": 5}
TOOLS = {  # name -> effect, idempotency, approval
    "read": ("world_read", "none", "never"),
    "write": ("external_write", "none", "never"),
    "keyed": ("external_write", "required", "never"),
    "asked": ("irreversible", "none", "required"),
}


class World:
    """One run, its journal, and the dice."""

    def __init__(self, dice: random.Random, *, max_tokens: int | None = None) -> None:
        self.dice = dice
        self.state = RunState()
        self.journal: list[Event] = []
        self.dispatched: list[tuple[str, int]] = []
        self.clock = 1000
        limits = {
            "max_rounds": dice.randint(1, 6),
            "max_tool_calls": 20,
            "max_tokens": max_tokens,
            "write_batch": "serial",
        }
        self.append(
            Fact(
                "run.started",
                {
                    "snapshot": 1,
                    "agent": {"id": "a", "revision": "1"},
                    "fingerprint": "f",
                    "components": {},
                    "session": "",
                    "prompt": "go",
                    "limits": limits,
                    "deadline_ms": 10**9,
                },
            )
        )
        self.take_over()

    def append(self, fact: Fact) -> None:
        self.clock += self.dice.randint(0, 50)
        event = Event(
            self.state.seq + 1, "r", fact.thread, fact.kind, self.clock, fact.parent, fact.data
        )
        fold(self.state, event)
        self.journal.append(event)

    def take_over(self) -> None:
        self.append(Fact("run.owned", {"term": self.state.term + 1, "kernel": "k"}))

    def settle(self) -> list[Effect]:
        for _ in range(200):
            effects = decide(self.state)
            records = [effect for effect in effects if isinstance(effect, Record)]
            if not records:
                return list(effects)
            for record in records:
                self.append(record.fact)
        raise AssertionError("decide never settles")

    def step(self) -> bool:
        """Performs one effect, or lets the owner die. False once nothing is asked for."""
        effects = self.settle()
        if self.state.ended:
            return False
        roll = self.dice.random()
        if roll < 0.08:
            self.take_over()
            return True
        if roll < 0.10:
            body = {"kind": "cancel", "by": "x"}
            self.append(Fact("inbox.taken", {"entry": self.state.inbox + 1, "body": body}))
            self.stop_all()
            return True
        work = [effect for effect in effects if not isinstance(effect, WaitUntil)]
        retry = [e for e in effects if isinstance(e, WaitUntil) and e.timer == "retry"]
        if not work and retry:
            self.append(Fact("timer.fired", {"timer": "retry"}))
            return True
        if not work:
            return self.resolve()
        self.perform(self.dice.choice(work))
        return True

    def stop_all(self) -> None:
        """What the shell hands in for effects that are not asked for any more."""
        state = self.state
        if state.attempt:
            data = {"attempt": state.attempt.number, "code": "run_canceled"}
            self.append(Fact("attempt.superseded", data))
        for call in list(state.batch.calls.values()) if state.batch else []:
            if call.phase == "claimed":
                self.complete(call, "not_started" if call.reads else "unknown", failed=True)

    def resolve(self) -> bool:
        """A person decides or reconciles."""
        if self.state.blocked:
            data = {
                "call": self.state.blocked[0],
                "effect_state": self.dice.choice(["committed", "not_started"]),
                "evidence": "seen",
                "by": "p",
            }
            self.append(Fact("run.reconciled", data))
            return True
        batch = self.state.batch
        for call in batch.calls.values() if batch else ():
            if call.phase == "asked":
                decision = self.dice.choice(["approve", "reject", "respond"])
                data = {"call": call.id, "decision": decision, "by": "p"}
                self.append(Fact("approval.decided", data))
                return True
        raise AssertionError(f"nothing is asked for while {self.state.status}")

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, AssembleContext):
            self.assemble()
        elif isinstance(effect, CallModel):
            self.answer(effect.attempt)
        elif isinstance(effect, Preflight):
            self.admit()
        elif isinstance(effect, CallTool):
            self.call(effect)

    def assemble(self) -> None:
        if self.dice.random() < 0.05:
            self.append(Fact("context.failed", {"code": "context_failed", "message": "no"}))
            return
        data: dict[str, Any] = {"blocks": [], "bundle": None, "history": 0, "estimate": 10}
        self.append(Fact("context.assembled", {**data, "window": 50_000, "output_limit": 100}))

    def answer(self, attempt: int) -> None:
        roll = self.dice.random()
        if roll < 0.25:
            code = self.dice.choice(
                ["upstream_stream_interrupted", "model_output_truncated", "rate_limited"]
            )
            data = {"attempt": attempt, "code": code, "message": "m", "origin": "plugin"}
            visible = self.dice.random() < 0.3
            self.append(Fact("attempt.failed", {**data, "visible": visible, "usage": USAGE}))
            return
        calls = []
        if roll < 0.75:
            names = [self.dice.choice(list(TOOLS)) for _ in range(self.dice.randint(1, 4))]
            calls = [
                {"ordinal": i, "id": f"c{i}", "name": name, "arguments": "{}"}
                for i, name in enumerate(names)
            ]
        data = {"attempt": attempt, "round": self.state.rounds + 1, "text": "t", "calls": calls}
        finish = {"reason": "tool_calls" if calls else "stop", "native": ""}
        self.append(Fact("model.round", {**data, "finish": finish, "usage": USAGE}))

    def admit(self) -> None:
        batch = self.state.batch
        assert batch is not None
        if self.dice.random() < 0.15:
            self.append(Fact("output.promoted", {"round": batch.round, "as": "none"}))
            self.append(Fact("tool.batch.refused", {"round": batch.round, "code": "unknown_tool"}))
            for call in list(batch.calls.values()):
                self.complete(call, "not_started", failed=True)
            return
        plans = [plan(call) for call in batch.calls.values()]
        serial = any(p["effect"] != "world_read" for p in plans)
        self.append(Fact("output.promoted", {"round": batch.round, "as": "commentary"}))
        admitted = {"round": batch.round, "calls": plans, "serial": serial}
        self.append(Fact("tool.batch.admitted", admitted))

    def call(self, effect: CallTool) -> None:
        batch = self.state.batch
        assert batch is not None
        call = batch.calls[effect.call]
        if call.phase != "claimed":
            key = f"r:{call.id}"
            data = {"call": call.id, "key": key, "term": self.state.term}
            self.append(Fact("tool.call.claimed", data))
            self.dispatched.append((call.id, effect.claim))
            return
        roll = self.dice.random()
        if call.reads:
            self.complete(call, "not_started", failed=roll < 0.2)
        else:
            known = "committed" if roll < 0.7 else "not_started" if roll < 0.85 else "unknown"
            self.complete(call, known, failed=known != "committed")

    def complete(self, call: Call, known: str, *, failed: bool) -> None:
        code = "tool_failed" if failed else ""
        data = {"call": call.id, "name": call.name, "value": "v", "is_error": failed}
        completed = {**data, "code": code, "effect_state": known}
        self.append(Fact("tool.call.completed", completed))


def plan(call: Call) -> dict[str, Any]:
    effect, idempotency, approval = TOOLS[call.name]
    return {
        "call": call.id,
        "name": call.name,
        "arguments": {},
        "digest": "d",
        "effect": effect,
        "permission": call.name,
        "idempotency": idempotency,
        "concurrency": "parallel" if effect == "world_read" else "actor_serial",
        "approval": approval,
        "timeout_ms": 1000,
    }
