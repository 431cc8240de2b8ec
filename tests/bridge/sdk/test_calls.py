"""One call, one answer: what handlers get, what becomes of what they return or raise."""

from __future__ import annotations

import os
from typing import Any

import pytest

from purra_bridge.wire import events as wire
from purra_bridge.wire.errors import WireError


def test_a_plain_value_becomes_a_tool_result(launch: Any) -> None:
    """protocol, messages: CALL, RESULT; absent fields take the tool contract's defaults."""
    worker = launch()
    assert worker.result(worker.tool("add", left=2, right=3)) == {"value": 5}
    assert worker.run("add", left=2) == 12


def test_an_outcome_says_more_than_its_value(launch: Any) -> None:
    """design, contracts: ToolResult fields."""
    worker = launch()
    assert worker.result(worker.tool("rich")) == {
        "value": {"n": 1},
        "effect_state": "committed",
        "step": "complete",
        "planning": "replan",
    }


def test_the_call_tells_what_came_with_it(launch: Any) -> None:
    """CAL-007, CAN-008: key, trace and the remaining time reach the handler."""
    worker = launch()
    call_id = worker.call(
        "sample.facts",
        args={"arguments": {"asked": "call"}},
        key="k1",
        trace={"run": "r1"},
        deadline_ms=60_000,
    )
    value = worker.result(call_id)["value"]
    assert 59.0 < value.pop("remaining") <= 60.0
    assert value == {
        "adapter": "sample.facts",
        "method": "call",
        "key": "k1",
        "trace": {"run": "r1"},
        "deadline_ms": 60_000,
        "cancelled": False,
    }


def test_the_other_contracts_are_called_as_they_are_declared(launch: Any) -> None:
    """design, contracts: context, policy, model and store, each in its own form."""
    worker = launch()
    request = {"run": "r", "session": "s", "prompt": "four"}
    assert worker.result(worker.call("memory", "demand", request))["desired"] == 4
    provided = worker.result(worker.call("memory", "provide", {**request, "budget": 9}))
    assert provided["diagnostics"] == [["prompt", "run", "session"], 9]
    assert worker.result(worker.call("guard", "decide", {"tool": "rm"}))["reason"] == "rm"
    assert worker.result(worker.call("voice", "profile"))["window"] == 1000
    read = {"stream": "run/1", "after": 3, "later_field": "is not for this handler"}
    assert worker.result(worker.call("journal", "read", read))["records"] == ["run/1", 3, 7]


def test_what_is_not_offered_is_unimplemented(launch: Any) -> None:
    """CAL-004: the instance stays; nothing has run."""
    worker = launch()
    for adapter, method in (("nobody", "call"), ("add", "profile"), ("journal", "scan")):
        error = worker.error(worker.call(adapter, method))
        assert (error.code, error.executed) == ("unimplemented", "no")
    assert worker.run("add", left=1) == 11


@pytest.mark.parametrize(
    "args",
    [{"arguments": {}}, {"arguments": {"left": 1, "more": 2}}, {"arguments": [1]}, [1, 2], {}],
)
def test_arguments_that_do_not_fit_run_nothing(launch: Any, args: Any) -> None:
    """TOL-003: `invalid_argument`, and the handler was not entered."""
    worker = launch()
    error = worker.error(worker.call("add", args=args))
    assert (error.code, error.executed) == ("invalid_argument", "no")
    assert error.detail["effect_state"] == "not_started"


def test_a_tool_error_is_a_result_the_model_may_read(launch: Any) -> None:
    """tables, effect states: code and effect state, no wire error."""
    worker = launch()
    assert worker.result(worker.tool("fail", how="tool")) == {
        "value": {"error": "no such file"},
        "is_error": True,
        "code": "not_found",
        "effect_state": "not_started",
    }


def test_a_plugin_error_keeps_its_code_and_details(launch: Any) -> None:
    """protocol, errors: rate_limited (after_ms); an effect state travels in the detail."""
    worker = launch()
    error = worker.error(worker.tool("fail", how="plugin"))
    assert (error.code, error.origin, error.after_ms) == ("rate_limited", "plugin", 250)
    assert error.detail == {"status": 429}
    error = worker.error(worker.tool("fail", how="committed"))
    assert (error.executed, error.detail) == ("yes", {"effect_state": "committed"})


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("any", "RuntimeError"),
        ("type", "TypeError"),
        ("exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
    ],
)
def test_any_other_exception_is_internal_and_costs_one_call(
    launch: Any, how: str, name: str
) -> None:
    """CAL-005, design invariant 4: the class to the caller, text and traceback to the log only;
    sys.exit() in a handler ends its call, not the worker.
    """
    worker = launch()
    error = worker.error(worker.tool("fail", how=how))
    assert (error.code, error.executed, error.detail) == ("internal", "yes", {"type": name})
    assert "12345" not in error.message
    assert worker.run("add", left=1) == 11
    worker.half_close()
    status, _, log = worker.finish()
    assert status == 0
    assert name in log
    assert how != "any" or "the secret is 12345" in log


@pytest.mark.parametrize(
    "what", ["object", "nan", "huge", "surrogate", "key", "set", "deep", "cycle"]
)
def test_a_result_outside_the_value_model_costs_its_call(launch: Any, what: str) -> None:
    """H20, K26: never a dead worker, never invalid bytes."""
    worker = launch()
    error = worker.error(worker.tool("odd", what=what))
    assert (error.code, error.origin, error.executed) == ("contract_violation", "plugin", "yes")
    assert "cannot be sent" in error.message
    assert worker.run("add", left=1) == 11


def test_the_place_of_a_bad_value_is_named(launch: Any) -> None:
    """design, invariant 4: the error says what and where."""
    worker = launch()
    error = worker.error(worker.tool("odd", what="nan"))
    assert "finite" in error.message
    assert "['nested'][1]" in error.message


def test_a_result_over_one_frame_arrives_whole(launch: Any) -> None:
    """protocol, frame: fragments up to max_message."""
    worker = launch()
    assert worker.run("odd", what="long") == "x" * 3_000_000


def test_a_result_over_the_agreed_message_is_too_large(launch: Any) -> None:
    """LIM-004: typed, and that call only."""
    worker = launch(limits={"max_message": 65536})
    error = worker.error(worker.tool("odd", what="long"))
    assert (error.code, error.executed) == ("too_large", "yes")
    assert worker.run("add", left=1) == 11


def test_calls_written_together_are_all_answered(launch: Any) -> None:
    """FRM-002, CAL-002: each its own answer."""
    worker = launch()
    calls = {}
    for number in range(64):
        arguments = {"arguments": {"left": number, "right": 0}}
        calls[worker.session.call("add", "call", arguments)] = number
    worker.flush()
    assert {call_id: worker.result(call_id)["value"] for call_id in calls} == calls


def test_what_a_handler_prints_never_meets_the_frames(launch: Any) -> None:
    """H01, H11, IOC-003: print, raw writes and children end up in the log pipes, in order."""
    worker = launch()
    for number in range(3):
        assert worker.run("speak", text=f"t{number}") == "said"
    worker.half_close()
    _, out, err = worker.finish()
    lines = out.splitlines()
    assert lines[0] == "hi from the import"
    for number in range(3):
        at = lines.index(f"t{number}")
        said = [f"t{number}", "no newline", f"raw t{number}", f"child t{number}"]
        assert lines[at : at + 4] == said
        assert f"err t{number}" in err


def test_a_line_is_in_the_pipe_before_its_call_has_ended(launch: Any) -> None:
    """H01: output does not wait for the end of the worker."""
    worker = launch()
    worker.run("speak", text="now")
    assert b"now" in os.read(worker.process.stdout.fileno(), 65536)


def test_standard_input_is_empty(launch: Any) -> None:
    """protocol, transport: stdin is null."""
    assert launch().run("sample.facts", asked="stdin") == ""


@pytest.mark.parametrize("how", ["pool", "fork"])
def test_a_forked_child_does_not_have_the_channel(launch: Any, how: str) -> None:
    """H58: nor does a child that comes back from the handler answer in the worker's name."""
    worker = launch()
    assert str(worker.run("descend", how=how)) in ("[[]]", "[]")
    assert worker.run("add", left=1) == 11


def test_an_executed_child_inherits_only_the_log_pipes(launch: Any) -> None:
    """H58: null stdin, no protocol descriptor."""
    lines = launch().run("descend", how="exec").splitlines()
    opened = dict(line.split(" ", 1) for line in lines)
    assert opened.pop("0") == "/dev/null"
    assert set(opened) - {"1", "2"} <= {name for name, to in opened.items() if "/proc" in to}


def test_log_lines_carry_fields_and_their_call(launch: Any) -> None:
    """protocol, LOG: a line never fails for what it holds."""
    worker = launch()
    call_id = worker.tool("tell", level="debug")
    worker.result(call_id)
    bodies = [event.body for event in worker.events if type(event) is wire.Log]
    told = [body for body in bodies if body["msg"] != "setting up"]
    assert told[0] == {"level": "debug", "msg": "one", "fields": {"n": 1}, "call": call_id}
    assert told[1]["msg"] == "two"
    assert told[1]["fields"]["nan"] == "nan"
    assert told[1]["fields"]["thing"].startswith("<object object")
    assert told[2].get("call") is None


@pytest.mark.parametrize("name", ["steps", "generated"])
def test_progress_comes_before_the_result(launch: Any, name: str) -> None:
    """STR-001: in order, and all of it before the terminal."""
    worker = launch()
    call_id = worker.tool(name, count=20)
    assert worker.result(call_id) == {"value": 20}
    items = [e for e in worker.events if type(e) is wire.Items and e.id == call_id]
    values = [value for event in items for value in event.values]
    assert values == [{"step": number} for number in range(20)]


def test_a_handler_asks_the_host_on_behalf_of_its_call(launch: Any) -> None:
    """CAL-009: a callback carries its parent and works with one handler thread."""
    worker = launch()
    call_id = worker.tool("relay", adapter="memory", value={"a": 1})
    asked = worker.wait(wire.Called)
    assert (asked.adapter, asked.method, asked.parent) == ("memory", "get", call_id)
    worker.session.result(asked.id, {"got": asked.args})
    worker.flush()
    assert worker.result(call_id)["value"] == {"got": {"value": {"a": 1}}}


def test_a_refused_callback_is_the_handler_s_exception(launch: Any) -> None:
    """CAP-002: the host's code reaches the handler; here it becomes the answer."""
    worker = launch()
    call_id = worker.tool("relay", adapter="secret", value=1)
    asked = worker.wait(wire.Called)
    worker.session.error(asked.id, WireError("capability_denied", "not granted"))
    worker.flush()
    assert worker.error(call_id).code == "capability_denied"


def test_a_callback_dies_with_its_call(launch: Any) -> None:
    """protocol, messages 5: cancelling the call cancels what it asked for."""
    worker = launch()
    call_id = worker.tool("relay", adapter="memory", value=1)
    asked = worker.wait(wire.Called)
    worker.session.cancel(call_id)
    worker.flush()
    assert worker.wait(wire.Cancelled, asked.id)
    assert worker.error(call_id).code == "cancelled"
    worker.session.error(asked.id, WireError("cancelled", "late"))
    worker.flush()
    assert worker.run("add", left=1) == 11
