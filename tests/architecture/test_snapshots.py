"""Names that are protocol, and the public surface, held by files in `snapshots/`.

A change here is a change that others see: stored journals, programs that read codes, plugins of
strangers, code that imports us. `make snapshots` writes the files anew; the diff is the review.
In the tables of names only additions are compatible, so an entry that goes or changes fails even
then, unless its file is removed first.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.public import PUBLIC
from tests.architecture.sources import ROOT, sources

FOLDER = Path(__file__).with_name("snapshots")
WRITES = os.environ.get("PURRA_SNAPSHOTS") == "write"


def _stored(name: str) -> Any:
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _compare(name: str, value: Any) -> None:
    if WRITES:
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n")
    assert value == _stored(name), f"snapshots/{name}.json differs; see this file's docstring"


def _only_grows(old: Any, new: Any, place: str) -> list[str]:
    """What of `old` is gone or different in `new`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [f"{place}: {old!r} became {new!r}"]
    gone = [f"{place}.{key}: gone" for key in old if key not in new]
    kept = (key for key in old if key in new)
    return gone + [
        line for key in kept for line in _only_grows(old[key], new[key], f"{place}.{key}")
    ]


def _protocol() -> dict[str, Any]:
    from purra.contracts import context, model, policy, store, tool
    from purra.errors import CODES
    from purra.journal.events import KINDS
    from purra.runs import keys
    from purra_bridge.wire import errors, header, messages

    contracts = (context, model, policy, store, tool)
    names = {name: getattr(keys, name) for name in keys.__all__}
    return {
        "codes": {code: f"{row.blame}, {row.retry}" for code, row in CODES.items()},
        "wire_codes": {code: ", ".join(row) for code, row in errors.CODES.items()},
        "wire_reasons": dict.fromkeys(errors.REASONS, ""),
        "wire_messages": {
            label: f"{number}: {', '.join(sorted(messages.FIELDS.get(number, ())))}"
            for number, label in messages.NAMES.items()
        },
        "wire_header": {"bytes": header.HEADER_BYTES},
        "events": {
            kind: {
                "always": sorted(row.fields),
                "terminal": row.terminal,
                "optional": dict.fromkeys(sorted(row.optional), ""),
            }
            for kind, row in KINDS.items()
        },
        "store_keys": {name: make("ID") for name, make in names.items()},
        "contracts": {module.CONTRACT: "" for module in contracts},
    }


def test_names_of_the_protocol_are_as_stored() -> None:
    """Tables: event kinds, codes, keys, messages."""
    value = _protocol()
    shrunk = _only_grows(_stored("protocol"), value, "protocol")
    assert not shrunk, "\n".join(shrunk)
    _compare("protocol", value)


def test_the_public_surface_is_as_stored() -> None:
    """API-03, habit 11: what can be imported, per public module."""
    _compare("exports", {name: sorted(importlib.import_module(name).__all__) for name in PUBLIC})


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    """Lazy ones too; star import and `dir` agree with `__all__`."""
    module = importlib.import_module(name)
    for public in module.__all__:
        assert getattr(module, public) is not None
        assert public in dir(module)


def test_codes_are_raised_by_their_own_names() -> None:
    """Every code that the kernel raises as text is in the one table (or the wire's)."""
    from purra.errors import CODES
    from purra_bridge.wire.errors import CODES as WIRE_CODES

    raisers = {"PurraError", "AdapterError", "StoreError", "WireError"}
    unknown = []
    for file in sources():
        if file.path.startswith("plugins/"):
            continue
        for node in ast.walk(file.tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            code = node.args[0]
            if node.func.id not in raisers or not isinstance(code, ast.Constant):
                continue
            if code.value not in CODES and code.value not in WIRE_CODES:
                unknown.append(f"{file.path}:{node.lineno}: {code.value!r}")
    assert not unknown, "\n".join(unknown)


def test_the_files_are_all_in_use() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {"exports", "protocol"}
    assert (ROOT / "Makefile").exists()
