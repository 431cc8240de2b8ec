"""What a step does: well-formed streams, broken ones, and processes that end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from purra_plugin_scripted.acting import act
from purra_plugin_scripted.plugin import Scripted
from purra_plugin_scripted.script import Step, parse_script
from purra_sdk import CallCancelled, PluginError

USER = {"role": "user", "content": "hello"}
REQUEST: dict[str, Any] = {"messages": [USER], "tools": [], "max_tokens": 100, "params": {}}


def _step(step: dict[str, Any]) -> Step:
    return parse_script({"steps": [step]}).steps[0]


def _items(step: dict[str, Any]) -> list[Any]:
    return list(act(1, _step(step), lambda: False))


def test_a_short_answer_has_text_calls_usage_and_one_finish() -> None:
    """Two calls: own indices and ids, whole arguments (MOD-003, MOD-005)."""
    items = _items(
        {
            "content": "hello",
            "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": "{bad"}],
            "usage": {"output_tokens": 3},
            "split": 3,
        }
    )
    assert items == [
        {"t": "content", "text": "hel"},
        {"t": "content", "text": "lo"},
        {"t": "call", "index": 0, "id": "call-1-0", "name": "a", "arguments": '{"x'},
        {"t": "call", "index": 0, "arguments": '": '},
        {"t": "call", "index": 0, "arguments": "1}"},
        {"t": "call", "index": 1, "id": "call-1-1", "name": "b", "arguments": "{ba"},
        {"t": "call", "index": 1, "arguments": "d"},
        {"t": "usage", "input_tokens": None, "output_tokens": 3},
        {"t": "finish", "reason": "tool_calls", "native": ""},
    ]


def test_emit_adds_nothing() -> None:
    items = _items(
        {
            "emit": [
                {"reasoning": "hm"},
                {"fragment": {"index": 2, "name": "x"}},
                {"item": {"t": "nonsense"}},
                {"finish": {"reason": "other", "native": "odd"}},
                {"finish": "stop"},
            ]
        }
    )
    assert items == [
        {"t": "reasoning", "text": "hm"},
        {"t": "call", "index": 2, "name": "x"},
        {"t": "nonsense"},
        {"t": "finish", "reason": "other", "native": "odd"},
        {"t": "finish", "reason": "stop", "native": ""},
    ]


def test_raised_errors_keep_their_code() -> None:
    with pytest.raises(PluginError) as caught:
        _items({"emit": [{"raise": {"code": "rate_limited", "message": "slow", "after_ms": 5}}]})
    assert (caught.value.code, caught.value.message, caught.value.after_ms) == (
        "rate_limited",
        "slow",
        5,
    )
    with pytest.raises(ZeroDivisionError, match="as the script says"):
        _items({"emit": [{"raise": {"exception": "ZeroDivisionError"}}]})


@pytest.mark.parametrize("action", [{"hang": "until_cancelled"}, {"delay_ms": 3_600_000}])
def test_pauses_end_with_the_call(action: dict[str, Any]) -> None:
    """After a cancel nothing more is sent, and the end is no normal one (MOD-011, MOD-013)."""
    cancelled = threading.Event()
    items = act(
        1, _step({"emit": [{"content": "a"}, action, {"finish": "stop"}]}), cancelled.is_set
    )
    assert next(items)["text"] == "a"
    threading.Timer(0.05, cancelled.set).start()
    with pytest.raises(CallCancelled):
        next(items)


def _run_action(action: str) -> subprocess.CompletedProcess[bytes]:
    code = (
        "from purra_plugin_scripted.acting import act\n"
        "from purra_plugin_scripted.script import parse_script\n"
        f"list(act(1, parse_script({{'steps': [{{'emit': [{action}]}}]}}).steps[0], bool))\n"
    )
    near, far = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with near, far:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            pass_fds=[far.fileno()],
            capture_output=True,
            timeout=30,
            check=False,
        )
        near.setblocking(False)
        try:
            done.stderr = near.recv(100)
        except BlockingIOError:
            done.stderr = b""
    return done


def test_a_step_can_end_its_process_and_foul_its_channel() -> None:
    """For MOD-28: a model's crash, hang and garbage cost the run one typed error."""
    assert _run_action("{'exit': 7}").returncode == 7
    assert _run_action("{'signal': 9}").returncode == -signal.SIGKILL
    noisy = _run_action("{'print': 'noise'}, {'garbage': 5}")
    assert (noisy.stdout, noisy.stderr) == (b"noise\n", b"\xff" * 5)


def _model(**config: Any) -> tuple[Scripted, list[str]]:
    logged: list[str] = []
    setup: Any = SimpleNamespace(config=config, log=lambda *args, **_: logged.append(args[1]))
    return Scripted(setup), logged


def test_the_model_plays_its_script_and_reports_what_is_left() -> None:
    model, logged = _model(steps=[{"content": "hi"}, {"expect": {"last_role": "tool"}}])
    call: Any = SimpleNamespace(cancelled=False)
    assert model.profile(call) == {
        "window": 32_768,
        "output_limit": 4_096,
        "features": ["tools", "parallel_tools"],
    }
    items = list(model.generate(call, REQUEST))
    assert [item["t"] for item in items] == ["content", "finish"]
    with pytest.raises(PluginError, match="last_role: expected 'tool', got 'user'") as caught:
        list(model.generate(call, REQUEST))
    assert caught.value.code == "failed_precondition"
    assert caught.value.detail["problems"] == ["last_role: expected 'tool', got 'user'"]
    model.close()
    assert logged == ["steps of the script were not played: 2"]


@pytest.mark.parametrize("config", [{}, {"script": "/x", "steps": []}, {"steps": [{"x": 1}]}])
def test_a_script_that_cannot_be_played_stops_the_start(config: dict[str, Any]) -> None:
    with pytest.raises(PluginError) as caught:
        _model(**config)
    assert caught.value.code == "failed_precondition"


def test_the_profile_can_be_scripted() -> None:
    model, _ = _model(steps=[], profile={"output_limit": 0, "features": []})
    call: Any = None
    assert model.profile(call) == {"window": 32_768, "output_limit": 0, "features": []}
