"""One run with one tool call, written by hand: the journal that everything else is built around.

`record: true` marks the facts that follow from the state alone; there `decide` must ask for exactly
that. `then` is what must be running after each commit. Old journals fold for ever (EVT-07).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from purra.journal.decide import decide
from purra.journal.effects import Record
from purra.journal.events import Event
from purra.journal.fold import fold
from purra.journal.state import RunState

GOLDEN = Path(__file__).parent / "golden" / "one_tool_run.json"


def brackets() -> list[dict[str, Any]]:
    return list(json.loads(GOLDEN.read_text()))


def event_of(row: dict[str, Any], data: dict[str, Any]) -> Event:
    return Event(row["seq"], "r1", "root", row["kind"], 1000 + row["seq"], row["parent"], data)


def test_every_prefix_folds_and_asks_for_what_comes_next() -> None:
    """Design §5: a crash at any point is fold, then decide; so each prefix must know what to do."""
    state = RunState()
    for bracket in brackets():
        for row in bracket["events"]:
            effects = decide(state)
            records = [effect for effect in effects if isinstance(effect, Record)]
            if row.get("record"):
                (record,) = records
                assert (record.fact.kind, record.fact.parent) == (row["kind"], row["parent"])
                data = dict(record.fact.data)
            else:
                assert not records, f"before event {row['seq']}"
                data = row["data"]
            fold(state, event_of(row, data))
        wanted = [effect.id for effect in decide(state) if not isinstance(effect, Record)]
        assert wanted == bracket["then"], bracket["commit"]
    assert state.status == "completed"
    assert state.terminal is not None and state.terminal["text"] == "a.md:3 says cancel."


def test_the_receipt_binds_what_the_model_sees() -> None:
    """MOD-15, MOD-16: digests of the messages and tools, and the resolved allowance, no bodies."""
    state = RunState()
    receipts = []
    for bracket in brackets():
        for row in bracket["events"]:
            data = row.get("data")
            if data is None:
                (record,) = [e for e in decide(state) if isinstance(e, Record)]
                data = dict(record.fact.data)
            if row["kind"] == "stream.opened":
                receipts.append(data)
            fold(state, event_of(row, data))
    first, second = receipts
    assert first["messages"] != second["messages"]
    assert first["tools"] == "sha256:t"
    assert first["max_tokens"] == 1024 and first["source"] == "profile"
    assert "cancel" not in json.dumps(receipts)


def test_folding_again_gives_an_equal_state() -> None:
    """Design §5: fold owns its state; purity means that folding again gives an equal one."""
    one, two = RunState(), RunState()
    for state in (one, two):
        for bracket in brackets():
            for row in bracket["events"]:
                data = row.get("data")
                if data is None:
                    data = next(e.fact.data for e in decide(state) if isinstance(e, Record))
                fold(state, event_of(row, dict(data)))
    assert one == two
