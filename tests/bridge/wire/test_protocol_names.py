"""What strangers' plugins rely on: numbers, fields, codes and tables, held by a file.

`PURRA_SNAPSHOTS=write` writes it anew; the diff is the review. Messages and codes may be added, but
none may change its meaning or go.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from purra_bridge.wire import errors, header, messages, tables
from purra_bridge.wire.credits import FRAME_COST_BYTES
from purra_bridge.wire.session import HELLO_BYTES

STORED = Path(__file__).parent / "snapshots" / "wire.json"


def kinds(allowed: tuple[type, ...] | None) -> str:
    return "any" if allowed is None else "|".join(sorted(kind.__name__ for kind in allowed))


def steps(table: dict[tuple[str, str, int], str], special: dict[int, str]) -> dict[str, Any]:
    """state -> sender -> message -> state, with names for numbers."""
    found: dict[str, Any] = {}
    for (state, sender, number), to in table.items():
        name = special.get(number) or messages.NAMES[number]
        found.setdefault(state, {}).setdefault(sender, {})[name] = to
    return found


def current() -> dict[str, Any]:
    return {
        "header": {
            "bytes": header.HEADER_BYTES,
            "sample": header.pack_header(0x123456, 0x789ABC01, 17, 9).hex(),
            "last_call_id": header.LAST_CALL_ID,
            "flags": {"END": 1, "RAW": 2, "MORE": 4, "BATCH": 8},
            "must_understand": header.MUST_UNDERSTAND,
        },
        "versions": list(messages.PROTOCOL_VERSIONS),
        "frame_cost_bytes": FRAME_COST_BYTES,
        "hello_bytes": HELLO_BYTES,
        "limits": {name: list(row) for name, row in messages.LIMITS.items()},
        "messages": {messages.NAMES[number]: number for number in messages.NAMES},
        "fields": {
            messages.NAMES[number]: {
                name: f"{kinds(allowed)}{'' if required else '?'}"
                for name, (allowed, required) in fields.items()
            }
            for number, fields in messages.FIELDS.items()
        },
        "codes": {code: list(row) for code, row in errors.CODES.items()},
        "reasons": list(errors.REASONS),
        "connection": steps(tables.CONNECTION, {tables.REFUSE_INPUT: "ERROR on id 0"}),
        "call": steps(tables.CALLS, {tables.END_INPUT: "DATA with END"}),
    }


def test_names_of_the_protocol() -> None:
    now = json.loads(json.dumps(current()))
    if os.environ.get("PURRA_SNAPSHOTS") == "write":
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    assert now == json.loads(STORED.read_text())
    assert (header.END, header.RAW, header.MORE, header.BATCH) == (1, 2, 4, 8)


def test_every_code_says_who_whether_and_how() -> None:
    """One row each, with words that a body may carry."""
    for code, (origin, executed, retry) in errors.CODES.items():
        assert origin in ("host", "instance", "caller", "plugin"), code
        assert executed in ("no", "maybe", "yes"), code
        assert retry in ("never", "same", "other"), code
        assert code == code.lower()
    assert len(set(errors.REASONS)) == len(errors.REASONS)


def test_connection_and_call_messages_do_not_mix() -> None:
    """Ids tell them apart: below 16 on id 0 only."""
    calls = {n for n in messages.NAMES if n >= messages.CALL}
    assert {key[2] & 0xFF for key in tables.CALLS} == calls
    assert max(messages.NAMES) < header.MUST_UNDERSTAND
