"""The model over the wire, as a worker serves it."""

from __future__ import annotations

from typing import Any

import pytest

from purra_bridge.wire.errors import WireError
from purra_plugin_scripted.plugin import plugin
from purra_sdk.testing import connect

REQUEST: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [],
    "max_tokens": 9,
    "params": {},
}


def test_steps_play_and_the_unexpected_fails() -> None:
    steps = [{"content": "hi", "expect": {"last_contains": "hello"}}, {"expect": {"messages": 9}}]
    with connect(plugin, config={"steps": steps}) as link:
        items = list(link.stream("script", "generate", REQUEST))
        assert [item["t"] for item in items] == ["content", "finish"]
        with pytest.raises(WireError, match="messages: expected 9, got 1") as caught:
            list(link.stream("script", "generate", REQUEST))
        assert caught.value.code == "failed_precondition"
        assert caught.value.detail["step"] == 2
    messages = [log["msg"] for log in link.logs if log["level"] == "error"]
    assert "steps of the script were not played: 2" in messages


def test_a_hanging_step_ends_with_a_cancel() -> None:
    """The call gets its terminal, and the plugin serves on (CAN rows)."""
    steps = [{"emit": [{"content": "a"}, {"hang": "until_cancelled"}]}, {"content": "b"}]
    with connect(plugin, config={"steps": steps}) as link:
        items = link.stream("script", "generate", REQUEST)
        assert next(items)["text"] == "a"
        items.cancel()
        with pytest.raises(WireError) as caught:
            list(items)
        assert caught.value.code == "cancelled"
        again = list(link.stream("script", "generate", REQUEST))
        assert again[0]["text"] == "b"


def test_scripted_errors_cross_the_wire() -> None:
    steps = [
        {"emit": [{"content": "a"}, {"raise": {"code": "rate_limited", "after_ms": 7}}]},
        {"emit": [{"raise": {"exception": "ValueError", "message": "private"}}]},
    ]
    with connect(plugin, config={"steps": steps}) as link:
        with pytest.raises(WireError) as caught:
            list(link.stream("script", "generate", REQUEST))
        assert (caught.value.code, caught.value.after_ms) == ("rate_limited", 7)
        with pytest.raises(WireError) as caught:
            list(link.stream("script", "generate", REQUEST))
        assert caught.value.code == "internal"
        assert "private" not in caught.value.message
