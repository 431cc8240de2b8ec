"""Handlers that are coroutines: the same promises, kept by an event loop."""

from __future__ import annotations

import time
from typing import Any

import pytest

from purra_bridge.wire import events as wire


@pytest.fixture
def worker(launch: Any) -> Any:
    return launch("awaiting:plugin")


def generate(worker: Any, adapter: str = "voice", window: int = 0, **how: Any) -> int:
    call_id: int = worker.call(adapter, "generate", {"messages": [], "params": how}, window=window)
    return call_id


def taken(worker: Any, call_id: int) -> tuple[list[str], Any]:
    """The texts of a stream, and its terminal."""
    texts: list[str] = []
    while True:
        event = worker.take(lambda event: getattr(event, "id", None) == call_id)
        if type(event) is not wire.Items:
            return texts, event
        texts += [value["text"] for value in event.values if value["t"] == "content"]
        worker.consume(event)


def test_coroutines_and_plain_functions_side_by_side(worker: Any) -> None:
    """protocol, transport: the loop is for coroutines only; plain ones stay on the main thread."""
    assert worker.run("add", left=1, right=2) == 3
    assert worker.run("plain", left=1) == [1, True]


def test_coroutines_run_at_once(worker: Any) -> None:
    """CAL-003: as many as the host sends."""
    began = time.monotonic()
    calls = [worker.tool("nap", seconds=0.5) for _ in range(40)]
    assert {worker.result(call_id)["value"] for call_id in calls} == {"slept"}
    assert time.monotonic() - began < 10


def test_a_cancelled_coroutine_is_cancelled(worker: Any) -> None:
    """CAN-002: by task cancellation; its `except` and `finally` run, then one ERROR."""
    call_id = worker.tool("nap", seconds=60)
    worker.wait(wire.Items, call_id)
    worker.session.cancel(call_id)
    worker.flush()
    error = worker.error(call_id)
    assert (error.code, error.executed) == ("cancelled", "yes")
    assert worker.run("add", left=1, right=2) == 3
    worker.half_close()
    assert "cancelled True" in worker.finish()[1]


def test_a_coroutine_may_answer_although_it_was_cancelled(worker: Any) -> None:
    """protocol, messages 1: exactly one terminal, cancelled or not."""
    call_id = worker.tool("stubborn")
    worker.wait(wire.Items, call_id)
    worker.session.cancel(call_id)
    worker.flush()
    assert worker.result(call_id)["value"] == "all the same"


def test_many_cancels_right_after_their_calls(worker: Any) -> None:
    """CAN-003, CAN-011: started or not, each has one terminal, and nothing is left."""
    for _ in range(20):
        calls = [worker.tool("nap", seconds=60) for _ in range(10)]
        for call_id in calls:
            worker.session.cancel(call_id)
        worker.flush()
        assert {worker.error(call_id).code for call_id in calls} == {"cancelled"}
    worker.session.ping(1)
    worker.flush()
    assert worker.wait(wire.Pong).body["inflight"] == 0


def test_ping_is_answered_while_the_loop_is_blocked(worker: Any) -> None:
    """H43: the loop does not own the channel, and PONG tells how long it has not come round."""
    call_id = worker.tool("block", seconds=1.5)
    lags = []
    for token in range(4):
        began = time.monotonic()
        worker.session.ping(token)
        worker.flush()
        lags.append(worker.wait(wire.Pong, limit_s=1).body["lag_ms"])
        while time.monotonic() < began + 0.2:
            worker.pump(0.05)
    assert lags[-1] >= 300
    assert worker.run("plain", left=1) == [1, True], "plain handlers go on"
    assert worker.result(call_id)


@pytest.mark.parametrize(
    ("how", "name"),
    [("any", "RuntimeError"), ("exit", "SystemExit"), ("cancelled", "CancelledError")],
)
def test_an_exception_costs_one_call(worker: Any, how: str, name: str) -> None:
    """CAL-005: SystemExit would end the loop, and with it every other call."""
    other = worker.tool("nap", seconds=0.3)
    error = worker.error(worker.tool("fail", how=how))
    assert (error.code, error.detail) == ("internal", {"type": name})
    assert worker.result(other)["value"] == "slept"


def test_a_tool_error_of_a_coroutine(worker: Any) -> None:
    """tables, effect states."""
    result = worker.result(worker.tool("fail", how="tool"))
    assert (result["is_error"], result["code"]) == (True, "nope")


def test_a_result_outside_the_value_model(worker: Any) -> None:
    """K26."""
    assert worker.error(worker.tool("odd")).code == "contract_violation"


@pytest.mark.parametrize("adapter", ["voice", "hidden_voice"])
def test_an_async_generator_is_a_stream(worker: Any, adapter: str) -> None:
    """STR-001: also when only its result shows that it is one."""
    texts, end = taken(worker, generate(worker, adapter, window=4096, count=10_000))
    assert texts == [*map(str, range(10_000)), ""]
    assert end.value is None


@pytest.mark.parametrize("adapter", ["voice", "hidden_voice"])
def test_an_async_generator_without_credit_stands_still(worker: Any, adapter: str) -> None:
    """STR-004: and is closed when it is cancelled."""
    call_id = generate(worker, adapter, window=1024, count=1_000_000)
    worker.wait(wire.Items, call_id)
    counts = [worker.result(worker.call(adapter, "profile"))["made"] for _ in range(200)]
    assert counts[-1] == counts[-50] < 1000
    worker.session.cancel(call_id)
    worker.flush()
    assert worker.error(call_id).code == "cancelled"
    worker.half_close()
    assert "cleaned" in worker.finish()[1]


def test_an_item_of_an_async_generator_is_sent_at_once(worker: Any) -> None:
    """STR-010: a lone item, and the tail of a burst."""
    call_id = generate(worker, count=31, pauses=[29], pause_s=3)
    came: list[Any] = []
    while len(came) < 30:
        came += worker.wait(wire.Items, call_id, limit_s=1).values


def test_an_async_generator_that_fails(worker: Any) -> None:
    """STR-007, K26: items before it are delivered."""
    texts, end = taken(worker, generate(worker, count=50, raises=True))
    assert (len(texts), end.error.code) == (50, "internal")
    texts, end = taken(worker, generate(worker, count=50, odd=True))
    assert (len(texts), end.error.code) == (50, "contract_violation")


def test_progress_of_a_coroutine_waits_for_credit_not_for_time(worker: Any) -> None:
    """STR-001: it is kept, complete and in order, and the result stands after it."""
    call_id = worker.call("steps", args={"arguments": {"count": 800}}, window=1024)
    values: list[int] = []
    while True:
        event = worker.take(lambda event: getattr(event, "id", None) == call_id)
        if type(event) is not wire.Items:
            break
        values += event.values
        worker.consume(event)
    assert values == list(range(800))
    assert event.value == {"value": 800}


def test_progress_that_nobody_takes_is_bounded(worker: Any) -> None:
    """LIM-004: a coroutine cannot be made to wait, so it is told."""
    call_id = worker.call("steps", args={"arguments": {"count": 50_000}}, window=1024)
    assert worker.error(call_id).code == "resource_exhausted"


def test_waiting_commits_are_taken_together(worker: Any) -> None:
    """design, store: one batch at a time, the next one holds what came meanwhile."""
    calls = [worker.call("journal", "commit", {"ops": number}) for number in range(20)]
    answers = [worker.result(call_id) for call_id in calls]
    assert [answer["n"] for answer in answers] == list(range(20))
    assert max(answer["batch"] for answer in answers) >= 10
    assert worker.error(worker.call("journal", "commit", {"ops": "raise"})).code == "internal"
    assert worker.result(worker.call("journal", "commit", {"ops": 7}))["n"] == 7


def test_an_upload_to_a_coroutine(worker: Any) -> None:
    """protocol, credits: `async for chunk in call.chunks()`."""
    call_id = worker.call("journal", "blob_put")
    for _ in range(40):
        while not worker.session.sendable(call_id):
            assert worker.pump(5)
        worker.session.chunk(call_id, b"x" * 100_000)
        worker.flush()
    worker.session.end_upload(call_id)
    worker.flush()
    assert worker.result(call_id) == {"digest": "4000000"}


def test_a_coroutine_asks_the_host(worker: Any) -> None:
    """CAL-009: two at once."""
    call_id = worker.tool("relay", value=5)
    for _ in range(2):
        asked = worker.wait(wire.Called)
        worker.session.result(asked.id, asked.method)
        worker.flush()
    assert worker.result(call_id)["value"] == ["get", "put"]


def test_a_detached_stream_of_a_coroutine(worker: Any) -> None:
    """tables, worker paths."""
    watch = worker.call("journal", "watch", {"prefix": "run/"})
    assert worker.wait(wire.Items, watch).values == ["run/"]
    worker.session.cancel(watch)
    worker.flush()
    assert worker.error(watch).code == "cancelled"


def test_a_plain_wrapper_around_a_coroutine(worker: Any) -> None:
    """A decorator that is no coroutine function must not turn the result into an object."""
    assert worker.run("hidden", value=[1]) == [1]
