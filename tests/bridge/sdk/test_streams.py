"""Items, chunks, uploads and detached streams, with credit."""

from __future__ import annotations

import time
from typing import Any

import pytest

from purra_bridge.wire import events as wire


def generate(worker: Any, window: int = 0, **how: Any) -> int:
    call_id: int = worker.call("voice", "generate", {"messages": [], "params": how}, window=window)
    return call_id


def taken(worker: Any, call_id: int) -> tuple[list[Any], Any, int]:
    """All items of a call as they come, its terminal, and how many frames there were."""
    values: list[Any] = []
    frames = 0
    while True:
        event = worker.take(lambda event: getattr(event, "id", None) == call_id)
        if type(event) not in (wire.Items, wire.Chunk):
            return values, event, frames
        frames += 1
        values += event.values if type(event) is wire.Items else [event.data]
        worker.consume(event)


def text_of(values: list[Any]) -> list[str]:
    return [value["text"] for value in values if value["t"] == "content"]


def test_items_arrive_in_order_and_complete(launch: Any) -> None:
    """STR-001: 20,000 numbered items through a window of 4 KiB."""
    worker = launch()
    values, end, frames = taken(worker, generate(worker, window=4096, count=20_000))
    assert text_of(values) == [str(number) for number in range(20_000)]
    assert values[-2:] == [
        {"t": "usage", "input_tokens": 1, "output_tokens": None},
        {"t": "finish", "reason": "stop", "native": ""},
    ]
    assert end.value is None
    assert frames < 10_000, "items that come fast are joined"


def test_a_stream_without_items(launch: Any) -> None:
    """STR-006: legal, and needs no credit."""
    worker = launch()
    assert taken(worker, generate(worker))[:2] == ([], wire.Returned(1, None))


def test_a_generator_stops_when_the_caller_takes_nothing(launch: Any) -> None:
    """STR-004, STR-009: it is not run further, and other calls are answered meanwhile."""
    worker = launch()
    call_id = generate(worker, window=2048, count=1_000_000, padding=100)
    made = -1
    for _ in range(50):
        now = worker.result(worker.call("voice", "profile"))["made"]
        if now == made and now > 0:
            break
        made = now
    assert 0 < made < 200
    other = generate(worker, count=10)
    assert len(text_of(taken(worker, other)[0])) == 10
    worker.session.cancel(call_id)
    worker.flush()
    assert worker.error(call_id).code == "cancelled"


def test_a_cancelled_generator_is_closed(launch: Any) -> None:
    """MOD-011: its `finally` runs, at a standstill or while it produces."""
    worker = launch()
    for window in (1024, 1 << 30):
        call_id = generate(worker, window=window, count=1 << 40)
        worker.consume(worker.wait(wire.Items, call_id))
        worker.session.cancel(call_id)
        worker.flush()
        error = worker.error(call_id)
        assert (error.code, error.origin) == ("cancelled", "caller")
    worker.half_close()
    assert "cleaned 2" in worker.finish()[1]


def test_items_before_an_error_are_delivered(launch: Any) -> None:
    """STR-007: then the error, never a normal end."""
    worker = launch()
    values, end, _ = taken(worker, generate(worker, count=100, raises=True))
    assert len(text_of(values)) == 100
    assert (end.error.code, end.error.detail) == ("internal", {"type": "RuntimeError"})


def test_an_item_that_cannot_be_sent_ends_its_stream(launch: Any) -> None:
    """K26: what stood before it arrives, the rest of the worker goes on."""
    worker = launch()
    values, end, _ = taken(worker, generate(worker, count=100, odd=True))
    assert len(text_of(values)) == 100
    assert end.error.code == "contract_violation"
    assert worker.run("add", left=1) == 11


def test_a_lone_item_is_sent_at_once(launch: Any) -> None:
    """STR-010: it does not wait for the next one."""
    worker = launch()
    call_id = generate(worker, count=2, pauses=[0], pause_s=3)
    first = worker.wait(wire.Items, call_id, limit_s=1)
    assert text_of(first.values) == ["0"]
    assert len(text_of(taken(worker, call_id)[0])) == 1


def test_the_tail_of_a_burst_does_not_wait_for_the_next_item(launch: Any) -> None:
    """STR-010: what was kept for joining leaves when the generator goes quiet."""
    worker = launch()
    call_id = generate(worker, count=60, pauses=[58], pause_s=3)
    came: list[str] = []
    until = time.monotonic() + 1
    while len(came) < 59 and time.monotonic() < until:
        came += text_of(worker.wait(wire.Items, call_id, limit_s=1).values)
    assert len(came) == 59


def test_two_streams_share_one_thread(launch: Any) -> None:
    """STR-009: neither waits for the end of the other."""
    worker = launch()
    long = generate(worker, count=200_000)
    short = generate(worker, count=10)
    ended = []
    while len(ended) < 2:
        event = worker.take(lambda event: getattr(event, "id", None) in (long, short))
        if type(event) is wire.Items:
            worker.consume(event)
        elif type(event) is wire.Returned:
            ended.append(event.id)
    assert ended == [short, long]


def test_raw_chunks(launch: Any) -> None:
    """protocol, frame: RAW; more than a window of them."""
    worker = launch()
    args = {"digest": "ab", "offset": 40, "length": 50_000}
    values, end, _ = taken(worker, worker.call("journal", "blob_get", args, window=1 << 20))
    assert b"".join(values) == b"ab" * 50_000 * 40
    assert type(end) is wire.Returned


def upload(worker: Any, chunks: list[bytes], **args: Any) -> int:
    call_id: int = worker.call("journal", "blob_put", args)
    for chunk in chunks:
        while not worker.session.sendable(call_id):
            assert worker.pump(5)
        worker.session.chunk(call_id, chunk)
        worker.flush()
    return call_id


def test_an_upload_larger_than_its_window(launch: Any) -> None:
    """protocol, credits: the handler waits for chunks, credit goes back as it takes them."""
    worker = launch()
    call_id = upload(worker, [b"x" * 100_000] * 50)
    worker.session.end_upload(call_id)
    worker.flush()
    assert worker.result(call_id) == {"digest": "5000000"}


def test_an_upload_may_be_answered_before_its_end(launch: Any) -> None:
    """protocol, messages: DATA after the terminal is late, not wrong; no credit is lost by it."""
    worker = launch()
    for _ in range(10):
        call_id = upload(worker, [b"enough", b"y" * 900_000])
        assert worker.result(call_id) == {"digest": "partial"}
    assert worker.run("add", left=1) == 11


def test_a_cancelled_upload_ends_the_wait_for_chunks(launch: Any) -> None:
    """CAN-002: the handler is told where it waits."""
    worker = launch()
    call_id = upload(worker, [b"x" * 10])
    worker.wait(wire.Items, call_id)
    worker.session.cancel(call_id)
    worker.flush()
    assert worker.error(call_id).code == "cancelled"
    assert worker.run("add", left=1) == 11
    worker.half_close()
    assert "cancelled after 10" in worker.finish()[1]


def test_an_upload_taken_on_a_thread_of_the_plugin(launch: Any) -> None:
    """tables, worker paths: other calls run meanwhile; a cancel reaches the thread."""
    worker = launch()
    call_id = upload(worker, [b"x" * 100_000] * 30, elsewhere=True)
    assert worker.run("add", left=1) == 11
    worker.session.end_upload(call_id)
    worker.flush()
    assert worker.result(call_id) == {"digest": "3000000"}
    given_up = upload(worker, [b"x"], elsewhere=True)
    assert worker.run("add", left=1) == 11
    worker.session.cancel(given_up)
    worker.flush()
    assert worker.error(given_up).code == "cancelled"
    worker.half_close()
    assert "cancelled elsewhere" in worker.finish()[1]


def test_a_detached_stream_is_fed_from_elsewhere(launch: Any) -> None:
    """tables, worker paths: no handler is kept for it, and a handler may feed it too."""
    worker = launch()
    watch = worker.call("journal", "watch", {"prefix": "run/"})
    assert worker.wait(wire.Items, watch).values == ["run/"]
    assert worker.result(worker.call("journal", "now"))["taken"] == [True]
    assert worker.wait(wire.Items, watch).values == ["look again"]
    worker.session.cancel(watch)
    worker.flush()
    assert worker.error(watch).code == "cancelled"
    told = worker.result(worker.call("journal", "now"))
    assert (told["taken"], told["closed"]) == ([False], [True])


def test_a_detached_stream_has_credit_too(launch: Any) -> None:
    """STR-003: `offer` says no, `send` waits, and other calls go on."""
    worker = launch()
    watch = worker.call("journal", "watch", {"prefix": "x"}, window=1024)
    offered = []
    for _ in range(40):
        offered += worker.result(worker.call("journal", "now"))["taken"]
    assert offered.count(True) < 40
    assert offered[-1] is False
    for event in [event for event in worker.events if type(event) is wire.Items]:
        worker.events.remove(event)
        worker.consume(event)
    assert worker.result(worker.call("journal", "now"))["taken"] == [True]
    assert watch


def test_a_thread_that_feeds_a_stream_waits_and_learns_of_the_end(launch: Any) -> None:
    """STR-004: `send` blocks without credit, and gives False when nobody wants more."""
    worker = launch()
    watch = worker.call("journal", "watch", {"prefix": "count"}, window=1024)
    got: list[str] = []
    while len(got) < 2000:
        event = worker.wait(wire.Items, watch)
        got += event.values
        worker.consume(event)
    assert got == [str(number) for number in range(len(got))]
    worker.session.cancel(watch)
    worker.flush()
    assert worker.error(watch).code == "cancelled"
    worker.half_close()
    assert " True" in worker.finish()[1]


@pytest.mark.parametrize("prefix", ["now", "fail"])
def test_a_detached_stream_ends_as_its_feeder_says(launch: Any, prefix: str) -> None:
    """protocol, messages 1: one terminal, also when it came before the handler returned."""
    worker = launch()
    watch = worker.call("journal", "watch", {"prefix": prefix})
    if prefix == "now":
        assert worker.result(watch) == {"ended": "early"}
    else:
        error = worker.error(watch)
        assert (error.code, error.detail) == (
            "failed_precondition",
            {"store": {"code": "storage", "errno": 5}},
        )


def commits(worker: Any, *what: Any) -> list[int]:
    """Several commits in one write."""
    calls = [worker.session.call("journal", "commit", {"ops": ops}) for ops in what]
    worker.flush()
    return calls


def test_waiting_commits_are_taken_together(launch: Any) -> None:
    """design, store: one flush for all of them; each has its own answer."""
    worker = launch()
    calls = commits(worker, *range(32))
    answers = [worker.result(call_id) for call_id in calls]
    assert [answer["n"] for answer in answers] == list(range(32))
    assert max(answer["batch"] for answer in answers) >= 16


def test_commits_that_arrive_during_a_flush_are_the_next_batch(launch: Any) -> None:
    """STO-028: group commit under load."""
    worker = launch()
    calls = commits(worker, "wait")
    calls += [commits(worker, number)[0] for number in range(10)]
    sizes = [worker.result(call_id)["batch"] for call_id in calls]
    # Those that were read with the first one belong to its batch, all others to the second.
    assert sizes == [sizes[0]] * sizes[0] + [11 - sizes[0]] * (11 - sizes[0])


def test_one_refused_commit_does_not_cost_the_others(launch: Any) -> None:
    """design, store: an exception instance in the list is the answer to its call."""
    worker = launch()
    good, bad, fine = commits(worker, 1, "conflict", 2)
    assert worker.result(good)["n"] == 1
    assert worker.error(bad).detail == {"store": {"code": "conflict", "stream": "s", "head": 4}}
    assert worker.result(fine)["n"] == 2


@pytest.mark.parametrize(("what", "code"), [("short", "contract_violation"), ("raise", "storage")])
def test_a_batch_that_fails_fails_every_call_of_it(launch: Any, what: str, code: str) -> None:
    """design, store: no call is left without an answer."""
    worker = launch()
    for call_id in commits(worker, what, 1, 2):
        error = worker.error(call_id)
        assert code in (error.code, error.detail.get("store", {}).get("code"))
    assert worker.result(commits(worker, 5)[0])["n"] == 5
