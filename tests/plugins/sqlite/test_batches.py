"""Commits that wait together: one transaction, one flush, each judged by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.plugins.sqlite import children


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def _request(*ops: dict[str, Any], key: str = "", **more: Any) -> dict[str, Any]:
    return {"ops": list(ops), "key": ["run", key] if key else None, **more}


def _codes(outcomes: list[Any]) -> list[str]:
    return [outcome.code if isinstance(outcome, EngineError) else "receipt" for outcome in outcomes]


def test_a_batch_is_one_transaction(engine: Engine) -> None:
    """STO-028: 64 callers of 64 streams share one transaction."""
    before = engine.transactions
    outcomes = engine.commit_together(
        [
            {"ops": [children.append(f"run/{n}", 0, n)], "key": [f"run/{n}", "k"], "durable": True}
            for n in range(64)
        ]
    )
    assert engine.transactions == before + 1
    assert [outcome["heads"] for outcome in outcomes] == [  # type: ignore[index]
        {f"run/{n}": 1} for n in range(64)
    ]


def test_refused_commits_do_not_harm_the_others(engine: Engine) -> None:
    """STO-003: every kind of refusal, between commits that stand."""
    children.commit(engine, None, children.put("lease", 1, 0), children.put("old", 1, 0))
    children.commit(engine, None, {"op": "seal", "stream": "sealed"})
    good = [_request(children.append("run", -1, n), key=f"good{n}") for n in range(6)]
    bad: list[Any] = [
        _request(children.append("run", 99, "x"), children.put("bad", 1, 0), key="b1"),
        _request(children.put("bad", 1, 0), children.append("sealed", -1, "x"), key="b2"),
        _request(children.put("bad", 1, 0), require={"lease": 2}),
        _request(children.put("bad", 1, 0), {"op": "project", "name": "no", "payload": 1}),
        _request(children.put("bad", 1, 0), {"op": "frobnicate"}),
        "nonsense",
    ]
    pairs = zip(good, bad, strict=True)
    outcomes = engine.commit_together([each for pair in pairs for each in pair])
    assert _codes(outcomes)[::2] == ["receipt"] * 6
    assert _codes(outcomes)[1::2] == [
        "conflict",
        "sealed",
        "conflict",
        "not_found",
        "invalid_argument",
        "invalid_argument",
    ]
    assert engine.read("run", 0, 10)["records"] == list(range(6))
    assert engine.get(["bad"])["documents"] == [None]


def test_commits_of_a_batch_see_each_other_in_order(engine: Engine) -> None:
    """Contract, order of checks: as if they had come one after the other."""
    outcomes = engine.commit_together(
        [
            _request(children.append("run", 0, "a"), key="1"),
            _request(children.append("run", 0, "b"), key="2"),
            _request(children.append("run", 1, "c"), key="3"),
            _request(children.append("run", 0, "a"), key="1"),
            _request(children.append("run", 0, "other"), key="1"),
            _request(children.put("d", 1, 0)),
            _request(children.put("d", 2, 0)),
            _request(children.put("d", 2, 1), children.append("run", -1, "d"), key="4"),
            _request({"op": "delete", "key": "d", "expect": 2}),
            _request(children.put("d", 3, 0), {"op": "seal", "stream": "run"}),
            _request(children.append("run", -1, "e"), key="5"),
            _request({"op": "drop", "stream": "run"}),
            _request(require={"d": 3}),
        ]
    )
    assert _codes(outcomes) == [
        *("receipt", "conflict", "receipt", "receipt", "conflict"),
        *("receipt", "conflict", "receipt", "receipt", "receipt"),
        *("sealed", "receipt", "receipt"),
    ]
    assert engine.transactions == 1
    assert outcomes[0] == outcomes[3]
    assert engine.read("run", 0, 10) == {"records": [], "head": 3, "sealed": True}
    (document,) = engine.get(["d"])["documents"]
    assert (document["value"], document["revision"]) == (3, 3)


def test_an_empty_batch_and_an_empty_commit(engine: Engine) -> None:
    """Contract, Commit: a commit without ops is one."""
    assert engine.commit_together([]) == []
    assert engine.commit_together([_request()]) == [{"heads": {}, "revisions": {}}]


def test_a_commit_too_large_for_the_medium_harms_itself_only(engine: Engine) -> None:
    """STO-024, STO-003: the medium fails for the batch; alone, the others fit."""
    children.commit(engine, None, children.put("there", 1, 0))
    connection = engine._writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 20}")
    large = _request(children.append("run", -1, "x" * 200_000), key="large")
    small = [_request(children.append("run", -1, n), key=f"{n}") for n in range(3)]
    outcomes = engine.commit_together([small[0], small[1], large, small[2]])
    assert _codes(outcomes) == ["receipt", "receipt", "storage", "receipt"]
    refused = outcomes[2]
    assert isinstance(refused, EngineError)
    assert refused.detail == {"errno": 28, "sqlite": "SQLITE_FULL"}
    assert engine.read("run", 0, 10)["records"] == [0, 1, 2]
    connection.execute("PRAGMA max_page_count = 1000000")
    assert _codes(engine.commit_together([large])) == ["receipt"]


def test_a_locked_file_fails_a_batch_once(engine: Engine, tmp_path: Path) -> None:
    """SVC-03: the whole batch waits once, not each of its commits after the other."""
    impatient = Engine(str(tmp_path / "store.db"), patience_s=0.1)
    engine._writer.connection.execute("BEGIN IMMEDIATE")
    before = impatient.transactions
    outcomes = impatient.commit_together([_request(children.put(f"d{n}", 1, 0)) for n in range(9)])
    engine._writer.connection.execute("ROLLBACK")
    assert _codes(outcomes) == ["storage"] * 9
    assert impatient.transactions == before + 1
    impatient.close()
