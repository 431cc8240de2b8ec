"""While a handler runs: PING, CANCEL, credit and new calls do not wait for it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.wire import events as wire

PROMPT_S = 1.0
"""Generous: the standby needs 20 to 30 ms, a loaded machine more. Handlers here run far longer."""


@pytest.mark.parametrize("busy", ["nap", "spin"])
def test_ping_is_answered_while_a_handler_blocks(launch: Any, busy: str) -> None:
    """H43: in a system call or in a loop; PONG says how far behind the worker is."""
    worker = launch()
    call_id = worker.tool(busy, seconds=1.5)
    lags = []
    for token in range(5):
        asked = time.monotonic()
        worker.session.ping(token)
        worker.flush()
        pong = worker.wait(wire.Pong, limit_s=PROMPT_S).body
        assert pong["token"] == token
        assert pong["inflight"] == 1
        assert pong["rss"] > 1024 * 1024
        lags.append(pong["lag_ms"])
        while time.monotonic() < asked + 0.1:
            worker.pump(0.02)
    assert lags == sorted(lags)
    assert lags[-1] >= 300
    assert worker.result(call_id)
    worker.session.ping("idle")
    worker.flush()
    assert worker.wait(wire.Pong).body["lag_ms"] < 300


def test_a_blocked_handler_can_see_that_it_is_cancelled(launch: Any) -> None:
    """CAN-002, K38: `call.cancelled` turns true under a handler that never waits for us."""
    worker = launch()
    call_id = worker.tool("nap", seconds=30, until_cancelled=True)
    worker.wait(wire.Items, call_id)
    worker.session.cancel(call_id)
    worker.flush()
    assert worker.result(call_id, limit_s=5)["value"] == "noticed"


def test_a_cancelled_call_that_has_not_started_never_runs(launch: Any) -> None:
    """TOL-006: executed no."""
    worker = launch()
    first = worker.tool("nap", seconds=0.3)
    waiting = worker.tool("speak", text="must not be said")
    worker.session.cancel(waiting)
    worker.flush()
    error = worker.error(waiting)
    assert (error.code, error.executed) == ("cancelled", "no")
    assert worker.result(first)
    worker.half_close()
    assert "must not be said" not in worker.finish()[1]


def test_cancelling_what_has_ended_is_nothing(launch: Any) -> None:
    """CAN-004: the terminal stands."""
    worker = launch()
    for _ in range(50):
        call_id = worker.tool("add", left=1)
        worker.session.cancel(call_id)
        worker.flush()
        assert worker.terminal(call_id)
    assert worker.run("add", left=2) == 12


def test_an_answer_does_not_wait_behind_a_slow_call(launch: Any) -> None:
    """STR-010: read together, answered apart."""
    worker = launch()
    quick = worker.session.call("add", "call", {"arguments": {"left": 1}})
    slow = worker.session.call("nap", "call", {"arguments": {"seconds": 2}})
    worker.flush()
    assert worker.result(quick, limit_s=PROMPT_S)
    assert worker.result(slow)


def test_calls_that_arrive_meanwhile_run_afterwards(launch: Any) -> None:
    """tables, worker paths: the standby queues them, one thread runs them."""
    worker = launch()
    for _ in range(3):
        slow = worker.tool("nap", seconds=0.1)
        later = [worker.tool("sample.facts", asked="thread") for _ in range(5)]
        assert worker.result(slow)
        threads = [worker.result(call_id)["value"] for call_id in later]
        assert all(mine == main for mine, main in threads), "handlers stay on the main thread"


def test_two_handlers_run_at_once_when_the_manifest_says_so(launch: Any) -> None:
    """tables, worker paths: `threads = N`."""
    worker = launch(limits={"threads": 2}, config={"barrier": True})
    for _ in range(3):
        calls = [worker.tool("meet"), worker.tool("meet")]
        names = {worker.result(call_id)["value"] for call_id in calls}
        assert len(names) == 2


def test_one_handler_at_a_time_is_the_default(launch: Any) -> None:
    """tables, worker paths: the second call waits, although it would free the first."""
    worker = launch(config={"barrier": True})
    first, second = worker.tool("meet"), worker.tool("meet")
    with pytest.raises(AssertionError, match="did not come"):
        worker.terminal(first, limit_s=0.3)
    worker.session.cancel(second)
    worker.flush()
    assert worker.error(second).executed == "no"


def switches(pid: int) -> int:
    """How often the threads of a process have been given a processor."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        count += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_an_idle_worker_does_nothing(launch: Any) -> None:
    """The standby sleeps without a timer between two bursts of calls."""
    worker = launch()
    worker.run("add", left=1)
    time.sleep(0.6)  # two bursts' distance, and then some: this is what is measured
    before = switches(worker.process.pid)
    time.sleep(0.3)
    assert switches(worker.process.pid) - before <= 2
    assert worker.run("add", left=2) == 12


def test_a_large_answer_to_a_host_that_does_not_read(launch: Any) -> None:
    """protocol, messages 4: control frames are handled while the worker's write blocks."""
    worker = launch()
    large = worker.tool("odd", what="long")
    again = worker.tool("odd", what="long")
    worker.session.ping("under way")
    worker.flush()
    time.sleep(0.1)  # the socket is full by then
    assert worker.wait(wire.Pong).body["token"] == "under way"
    assert len(worker.result(large)["value"]) == len(worker.result(again)["value"])
