"""Projectors: the operator's functions, in the transaction of the commit that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_sqlite import projecting
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.projecting import Projectors, Tables
from tests.plugins.sqlite import children


def _totals(tables: Tables, payload: Any) -> None:
    tables.execute("CREATE TABLE IF NOT EXISTS totals(name TEXT PRIMARY KEY, sum, at_ms)")
    tables.execute(
        "INSERT INTO totals VALUES (?1, ?2, ?3) ON CONFLICT(name) DO UPDATE SET sum = sum + ?2",
        (payload["name"], payload["n"], tables.now_ms),
    )
    if payload["n"] < 0:
        raise ValueError(f"a negative number: {payload['n']}")


def _hostile(tables: Tables, payload: Any) -> None:
    tables.execute(payload)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    projectors = Projectors({"totals": _totals, "hostile": _hostile})
    opened = Engine(str(tmp_path / "store.db"), projectors=projectors, clock_ms=lambda: 1234)
    yield opened
    opened.close()


def _rows(engine: Engine) -> list[Any]:
    return engine._reader.connection.execute("SELECT * FROM totals ORDER BY name").fetchall()


def _project(name: str, payload: Any) -> dict[str, Any]:
    return {"op": "project", "name": name, "payload": payload}


def test_what_a_projector_writes_is_there_with_its_commit(engine: Engine) -> None:
    """RUN-18: together with the records, once, also when the commit is repeated."""
    ops = [
        children.append("run", 0, "a"),
        _project("totals", {"name": "x", "n": 2}),
        _project("totals", {"name": "x", "n": 3}),
        _project("totals", {"name": "y", "n": 1}),
    ]
    for _ in range(3):
        children.commit(engine, ("run", "k"), *ops)
    assert _rows(engine) == [("x", 5, 1234), ("y", 1, 1234)]
    assert engine.read("run", 0, 10)["records"] == ["a"]


def test_a_raising_projector_aborts_its_commit_alone(engine: Engine) -> None:
    """RUN-18, STO-003: nothing of that commit, everything of the others in the batch."""
    requests = [
        {
            "ops": [children.append("run", -1, n), _project("totals", {"name": "x", "n": n})],
            "key": ["run", f"{n}"],
        }
        for n in (1, -5, 2)
    ]
    outcomes = engine.commit_together(requests)
    refused = outcomes[1]
    assert isinstance(refused, EngineError)
    assert (refused.code, refused.detail) == (
        "storage",
        {"project": "totals", "type": "ValueError"},
    )
    assert engine.read("run", 0, 10)["records"] == [1, 2]
    assert _rows(engine) == [("x", 3, 1234)]
    assert engine.transactions == 1


def test_a_later_refusal_takes_the_projection_back(engine: Engine) -> None:
    """RUN-18: a projector that succeeded before an op that does not."""
    children.commit(engine, None, _project("totals", {"name": "x", "n": 1}))
    with pytest.raises(EngineError):
        bad = children.put("doc", 1, 7)
        children.commit(engine, None, _project("totals", {"name": "x", "n": 5}), bad)
    assert _rows(engine) == [("x", 1, 1234)]


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "  rollback",
        "RELEASE projecting",
        "BEGIN",
        "PRAGMA synchronous = OFF",
        "ATTACH ':memory:' AS other",
        "/* */ COMMIT",
        "",
    ],
)
def test_a_projector_has_no_say_over_the_transaction(engine: Engine, sql: str) -> None:
    """RUN-18: it cannot end it, nor change what holds for the connection."""
    with pytest.raises(EngineError) as refused:
        children.commit(
            engine, ("run", "k"), children.append("run", 0, 1), _project("hostile", sql)
        )
    assert refused.value.detail == {"project": "hostile", "type": "ValueError"}
    assert engine.read("run", 0, 1)["head"] == 0
    assert not engine._writer.connection.in_transaction


def test_projectors_are_loaded_by_address() -> None:
    """RUN-18: from the plugin's own configuration; one that cannot be had fails the start."""
    assert isinstance(
        projecting.load({"t": "tests.plugins.sqlite.test_projectors:_totals"}), Projectors
    )
    for address in ("no_such_module:f", "os:no_such_name", "os", ""):
        with pytest.raises(ValueError, match="projector 'p'"):
            projecting.load({"p": address})
