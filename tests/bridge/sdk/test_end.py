"""How a worker ends: by EOF, by DRAIN, and whatever its handlers are doing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from purra_bridge.wire import events as wire
from purra_sdk.worker import EXIT_FORCED, EXIT_GRACE_S, EXIT_VIOLATION


def test_an_idle_worker_ends_with_its_channel(launch: Any) -> None:
    """H47: at once, and its parts are closed."""
    worker = launch()
    worker.run("add", left=1)
    worker.half_close()
    status, out, err = worker.finish()
    assert status == 0
    assert out.splitlines()[-1] == "closed sample@1.2.3"
    assert err == ""


@pytest.mark.parametrize("busy", ["nap", "spin"])
def test_a_handler_that_notices_nothing_does_not_keep_the_worker(launch: Any, busy: str) -> None:
    """SUP-015: bounded, whatever the handler does."""
    worker = launch()
    worker.tool(busy, seconds=600)
    worker.tool("nap", seconds=600)
    began = time.monotonic()
    worker.half_close()
    assert worker.finish()[0] == EXIT_FORCED
    assert time.monotonic() - began < EXIT_GRACE_S + 5


def test_a_handler_that_notices_may_finish(launch: Any) -> None:
    """protocol, stop: `cancelled` turns true, and what it returns is the end of it."""
    worker = launch()
    call_id = worker.tool("nap", seconds=600, until_cancelled=True)
    worker.wait(wire.Items, call_id)
    worker.half_close()
    status, out, _ = worker.finish()
    assert status == 0
    assert "closed" in out


def test_a_host_that_vanishes_with_something_unread(launch: Any) -> None:
    """SUP-015: a reset of the channel is its end too, for the standby as for the reading thread."""
    for busy in ("add", "nap"):
        worker = launch()
        arguments = {"left": 1} if busy == "add" else {"seconds": 600}
        call_id = worker.tool(busy, **arguments)
        worker.take(lambda event, call_id=call_id: getattr(event, "id", None) == call_id)
        worker.session.ping("its answer is never read")
        worker.flush()
        time.sleep(0.2)
        worker.near.close()
        assert worker.finish()[0] == (0 if busy == "add" else EXIT_FORCED)


def test_exit_functions_run(launch: Any) -> None:
    """PLG-06: a library's `atexit` works as in any program: what was registered last goes first."""
    worker = launch()
    for text in ("at the very end", "before it"):
        worker.run("at_exit", text=text)
    worker.half_close()
    assert worker.finish()[1].splitlines()[-2:] == ["before it", "at the very end"]


def test_a_loop_that_the_plugin_ends_is_a_crash(launch: Any) -> None:
    """Design, invariant 4: an error, not calls that hang."""
    worker = launch("awaiting:plugin")
    call_id = worker.tool("stop_the_loop")
    assert worker.error(call_id).code in ("internal", "closed")
    status, _, log = worker.finish()
    assert status != 0
    assert "SystemExit" in log


def test_a_thread_of_the_plugin_does_not_keep_the_worker(launch: Any) -> None:
    """H47: no orphan through a thread that is not a daemon."""
    worker = launch()
    assert worker.run("leave_thread") == "left"
    worker.half_close()
    assert worker.finish()[0] == 0


def test_drain_lets_calls_finish(launch: Any) -> None:
    """SHD-001: what runs and what waits is answered, then exit 0."""
    worker = launch()
    slow = worker.tool("nap", seconds=0.3)
    waiting = worker.tool("add", left=1)
    worker.session.drain("reload", 5000)
    worker.flush()
    assert worker.result(slow)["value"] == "slept"
    assert worker.result(waiting)["value"] == 11
    status, out, _ = worker.finish()
    assert status == 0
    assert "closed" in out


def test_drain_of_an_idle_worker(launch: Any) -> None:
    """SHD-001: nothing to wait for."""
    worker = launch()
    worker.session.drain("stop", 5000)
    worker.flush()
    assert worker.finish()[0] == 0


def test_drain_ends_endless_streams(launch: Any) -> None:
    """protocol, stop: a watch would keep the worker for ever."""
    worker = launch()
    watch = worker.call("journal", "watch", {"prefix": "count"}, window=1024)
    worker.wait(wire.Items, watch)
    worker.session.drain("stop", 5000)
    worker.flush()
    assert worker.error(watch).code == "draining"
    assert worker.finish()[0] == 0


def test_drain_waits_for_coroutines(launch: Any) -> None:
    """SHD-001: also for a call that ends on another thread than the one that reads."""
    worker = launch("awaiting:plugin")
    slow = worker.tool("nap", seconds=0.3)
    worker.wait(wire.Items, slow)
    worker.session.drain("stop", 5000)
    worker.flush()
    assert worker.result(slow)["value"] == "slept"
    assert worker.finish()[0] == 0


def test_a_stream_goes_on_while_draining(launch: Any) -> None:
    """SHD-001: credit still flows."""
    worker = launch()
    args = {"messages": [], "params": {"count": 5000}}
    call_id = worker.call("voice", "generate", args, window=1024)
    worker.session.drain("stop", 5000)
    worker.flush()
    count = 0
    while True:
        event = worker.take(lambda event: getattr(event, "id", None) == call_id)
        if type(event) is not wire.Items:
            break
        count += len(event.values)
        worker.consume(event)
    assert count == 5002
    assert worker.finish()[0] == 0


def test_coroutines_are_cancelled_at_the_end(launch: Any) -> None:
    """protocol, stop: their clean-up runs."""
    worker = launch("awaiting:plugin")
    call_id = worker.tool("nap", seconds=600)
    worker.wait(wire.Items, call_id)
    worker.half_close()
    status, out, _ = worker.finish()
    assert status == 0
    assert "cancelled True" in out


def test_a_generator_at_a_standstill_is_closed_at_the_end(launch: Any) -> None:
    """protocol, stop: its `finally` runs."""
    worker = launch()
    args = {"messages": [], "params": {"count": 1 << 40}}
    call_id = worker.call("voice", "generate", args, window=1024)
    worker.wait(wire.Items, call_id)
    worker.half_close()
    status, out, _ = worker.finish()
    assert status == 0
    assert "cleaned 1" in out


def test_a_host_that_breaks_the_protocol_is_told(launch: Any) -> None:
    """protocol, errors: ERROR on id 0, then the end; the plugin's log says why."""
    worker = launch()
    worker.near.sendall(b"GET / HTTP/1.1\r\n")
    assert worker.wait(wire.Refused).error.code == "protocol_violation"
    status, _, log = worker.finish()
    assert status == EXIT_VIOLATION
    assert "the host broke the protocol" in log
