"""From the spawn to READY: what the bootstrap says, and what a start that fails says."""

from __future__ import annotations

from typing import Any


def test_a_tool_answers_a_call(launch: Any) -> None:
    """protocol, messages: CALL, RESULT; a plain value becomes `{"value": ...}`."""
    worker = launch()
    assert worker.result(worker.tool("add", left=2, right=3)) == {"value": 5}
