"""Watchers: told by the thread that commits, found by the one that looks, forgotten when gone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_sqlite import statements, watching
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.watching import PENDING_NAMES
from tests.plugins.sqlite import children

WAIT_S = 5.0


class _Watcher:
    """Keeps what it is told. `room` = how much it takes before it says "not now"."""

    def __init__(self, room: int = 10**9) -> None:
        self.told: queue.Queue[str] = queue.Queue()
        self.room = room
        self.closed = False

    def offer(self, item: str) -> bool:
        if self.closed or self.room <= 0:
            return False
        self.room -= 1
        self.told.put(item)
        return True

    def next(self) -> str:
        return self.told.get(timeout=WAIT_S)

    def all(self) -> list[str]:
        """What was told so far."""
        found = []
        while not self.told.empty():
            found.append(self.told.get())
        return found


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """Two openings of one file: what one commits, the other has to find."""
    path = str(tmp_path / "store.db")
    pair = Engine(path), Engine(path)
    yield pair
    for engine in pair:
        engine.close()


def _put(engine: Engine, key: str, expect: int = 0) -> None:
    children.commit(engine, None, children.put(key, 1, expect))


def test_own_commits_are_told_at_once_and_once(engines: tuple[Engine, Engine]) -> None:
    """STO-020: by the time the commit is acknowledged, exactly the names it changed."""
    engine, _ = engines
    watcher = _Watcher()
    engine.watch("run/", watcher)
    assert watcher.all() == [""]
    ops = [children.append("run/1", 0, 1), children.put("run/1/lease", 1, 0)]
    children.commit(engine, ("run/1", "k"), *ops, children.put("other", 1, 0))
    assert watcher.all() == ["run/1", "run/1/lease"]
    engine.commit_together(
        [{"ops": [children.put(f"run/{n % 2}/doc", 1, n // 2)], "key": None} for n in range(8)]
    )
    assert watcher.all() == ["run/0/doc", "run/1/doc"]
    # The looking thread must not tell the same again: let it come by twice.
    second = _Watcher()
    engines[1].watch("", second)
    assert second.next() == ""
    _put(engine, "nobody")
    assert second.next() == "nobody"
    assert watcher.all() == []


def test_commits_of_others_are_found_by_name(engines: tuple[Engine, Engine]) -> None:
    """STO-020: the names, not just that something happened; nothing outside the prefix."""
    engine, other = engines
    watcher = _Watcher()
    engine.watch("run/1/", watcher)
    assert watcher.next() == ""
    _put(other, "run/2/doc")
    children.commit(other, ("run/1/out", "k"), children.append("run/1/out", 0, 1))
    children.commit(other, None, {"op": "seal", "stream": "run/1/inbox"})
    _put(other, "run/1/doc")
    children.commit(other, None, {"op": "delete", "key": "run/1/doc", "expect": 1})
    found = {watcher.next() for _ in range(4)}
    assert found == {"run/1/out", "run/1/inbox", "run/1/doc"}


def test_a_heartbeat_is_no_news(engines: tuple[Engine, Engine]) -> None:
    """Contract, watch: extending a life changes nothing that a watcher could read."""
    engine, other = engines
    watcher = _Watcher()
    children.commit(engine, None, children.put("lease", 1, 0, 10_000))
    engine.watch("", watcher)
    assert watcher.next() == ""
    for each in engines:
        touch = {"op": "touch", "key": "lease", "expect": 1, "ttl_ms": 10_000}
        children.commit(each, None, touch)
    _put(other, "after")
    assert watcher.next() == "after"


def test_who_is_far_behind_is_told_to_look_again(engines: tuple[Engine, Engine]) -> None:
    """Contract, watch: "" = look again, instead of thousands of names."""
    engine, other = engines
    watcher = _Watcher()
    engine.watch("", watcher)
    assert watcher.next() == ""
    batch = [
        {"ops": [children.put(f"doc/{n}", 1, 0)], "key": None} for n in range(statements.NEWS_KEPT)
    ]
    other.commit_together(batch)
    assert watcher.next() == ""
    _put(other, "after")
    assert watcher.next() == "after"


def test_a_watcher_without_room_is_told_later(engines: tuple[Engine, Engine]) -> None:
    """Contract, watch: several changes may be told as one, none is lost; nobody waits for it."""
    engine, _ = engines
    slow, quick = _Watcher(room=2), _Watcher()
    engine.watch("", slow)
    engine.watch("", quick)
    for key in ("a", "b", "c"):
        _put(engine, key)
    _put(engine, "b", 1)
    assert slow.all() == ["", "a"]
    assert quick.all() == ["", "a", "b", "c", "b"]
    slow.room = 10**9
    _put(engine, "d")
    assert [slow.next(), slow.next(), slow.next()] == ["b", "c", "d"]
    slow.room = 0
    for number in range(PENDING_NAMES + 10):
        _put(engine, f"doc/{number}")
    slow.room = 10**9
    told = [slow.next()]
    while told[-1] != f"doc/{PENDING_NAMES + 9}":
        told.append(slow.next())
    assert told[0] == ""
    assert len(told) <= 12


def test_closed_watchers_are_forgotten_and_the_thread_ends(
    engines: tuple[Engine, Engine],
) -> None:
    """Design, invariant 10: no thread and no connection while nobody watches."""
    engine, _ = engines
    assert _threads() == 0
    first, second = _Watcher(), _Watcher()
    subscription = engine.watch("a", first)
    engine.watch("b", second)
    assert _threads() == 1
    subscription.close()
    subscription.close()
    second.closed = True
    (thread,) = [each for each in threading.enumerate() if each.name == "purra-sqlite-watch"]
    thread.join(WAIT_S)
    assert not thread.is_alive()
    third = _Watcher()
    engine.watch("c", third)
    assert third.next() == ""
    assert _threads() == 1


def test_a_commit_between_looking_and_telling_is_told_once(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """STO-020: the thread that looks finds a row that the committing thread tells meanwhile."""
    engine, other = engines
    watcher = _Watcher()
    real = watching._news_since

    def meddled(connection: Any, seen: int) -> Any:
        if not engine.get(["meanwhile"])["documents"][0]:
            _put(engine, "meanwhile")
        return real(connection, seen)

    engine.watch("", watcher)
    assert watcher.next() == ""
    monkeypatch.setattr(watching, "_news_since", meddled)
    assert watcher.next() == "meanwhile"
    _put(other, "after")
    assert watcher.next() == "after"


def test_trouble_with_the_file_is_told(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, watch: who cannot be told what has changed is told to look, and meets the error."""
    engine, other = engines
    watcher = _Watcher()
    engine.watch("", watcher)
    assert watcher.next() == ""

    def broken(connection: object, seen: int) -> object:
        raise EngineError("storage", "the disk is gone", errno=5)

    with monkeypatch.context() as patched:
        patched.setattr(watching, "_news_since", broken)
        assert watcher.next() == ""
    _put(other, "after")
    while watcher.next() != "after":
        pass


def _threads() -> int:
    return sum(each.name == "purra-sqlite-watch" for each in threading.enumerate())
