"""What a worker pays for the wire, by number of modules: that number does not flake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

import purra_bridge

WIRE_MODULES = 62
"""A bare interpreter 23, msgpack and its needs 26, ours 13; a worker in all may have 70."""


def loaded(statement: str) -> set[str]:
    paths = [str(Path(module.__file__ or "").parents[1]) for module in (purra_bridge, msgpack)]
    code = f"import sys; sys.path[:0] = {paths!r}\n{statement}\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


def test_the_wire_is_light() -> None:
    """Design, start-up budget; the rare parts are not loaded before they are needed."""
    modules = loaded("from purra_bridge.wire.session import Session; Session('plugin')")
    assert len(modules) <= WIRE_MODULES, sorted(modules)
    heavy = {"typing", "dataclasses", "enum", "re", "functools", "threading", "asyncio", "logging"}
    assert not modules & heavy
    assert "purra_bridge.wire.fragments" not in modules
    assert "purra_bridge.wire.refusals" not in modules


def test_rare_parts_come_when_needed() -> None:
    modules = loaded(
        "from purra_bridge.wire import codec\n"
        "try: codec.encode(object())\n"
        "except codec.ValueRefused: pass"
    )
    assert "purra_bridge.wire.refusals" in modules
