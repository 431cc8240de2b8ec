"""What a call costs: every statement by an index, the same statements and pages at any size."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_sqlite import statements
from purra_plugin_sqlite.engine import Engine
from tests.plugins.sqlite import children

STATEMENTS = {
    name: value
    for name, value in vars(statements).items()
    if name.isupper() and isinstance(value, str)
}
CONTROL = re.compile(r"(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA)\b")
FRAME_BYTES = 4096 + 24


def _flat(sql: str) -> str:
    return " ".join(sql.split())


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans(name: str, tmp_path: Path) -> None:
    """SVC-04: each one finds its rows by a key or an index, and none sorts by itself."""
    engine = Engine(str(tmp_path / "store.db"))
    connection = engine._reader.connection
    sql = STATEMENTS[name]
    parameters = max([0, *map(int, re.findall(r"\?(\d)", sql))]) or sql.count("?")
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * parameters).fetchall()
    engine.close()
    steps = [row[3] for row in plan]
    assert not [step for step in steps if "SCAN" in step.split() or "TEMP" in step], steps
    assert steps or sql.split()[0] == "INSERT"


@contextmanager
def _traced(engine: Engine) -> Iterator[list[str]]:
    """The statements that run meanwhile, with their parameters as they stand in the source."""
    seen: list[str] = []
    for database in (engine._writer, engine._reader):
        database.connection.set_trace_callback(seen.append)
    yield seen
    for database in (engine._writer, engine._reader):
        database.connection.set_trace_callback(None)


def _source_of(traced: str) -> str:
    """The statement of `statements` that was traced: parameters are filled in there."""
    if CONTROL.match(traced):
        return traced.split(" ")[0]
    for name, sql in STATEMENTS.items():
        parts = [re.escape(part) for part in re.split(r"\?\d?", _flat(sql))]
        if re.fullmatch(r"(?:'(?:[^']|'')*'|-?\d+|NULL|x'[0-9a-f]*')".join(parts), _flat(traced)):
            return name
    raise AssertionError(f"a statement from elsewhere: {traced}")


def _run(run: str, *, durable: bool = True) -> list[dict[str, Any]]:
    """What one run commits: its lease, its journal, deltas, heartbeats, its end."""
    rounds = 5
    journal, out, lease, wake = f"run/{run}", f"run/{run}/out", f"run/{run}/lease", f"wake/{run}"
    commits: list[dict[str, Any]] = []

    def add(key: tuple[str, str] | None, *ops: dict[str, Any], **more: Any) -> None:
        commits.append({"ops": list(ops), "key": key, **more})

    add(None, children.put(wake, None, 0, 60_000))
    start = (children.append(journal, 0, {"kind": "run.started"}), children.put(lease, {}, 0, 9000))
    add((journal, "seq:0"), *start, durable=durable)
    fence = {lease: 1}
    for number in range(1, rounds + 1):
        event = {"kind": "model.round", "data": {"text": "x" * 200}, "seq": number}
        key = (journal, f"seq:{number}")
        add(key, children.append(journal, number, event), require=fence)
        add((out, f"seq:{number - 1}"), children.append(out, number - 1, "delta " * 20))
        add(None, {"op": "touch", "key": lease, "expect": 1, "ttl_ms": 15_000})
    end = (
        children.append(journal, rounds + 1, {"kind": "run.completed"}),
        children.append("session/s", -1, {"run": run}),
        {"op": "seal", "stream": journal},
        {"op": "seal", "stream": f"run/{run}/inbox"},
        {"op": "delete", "key": lease, "expect": 1},
        {"op": "delete", "key": wake, "expect": 1},
    )
    add((journal, f"seq:{rounds + 1}"), *end, require=fence, durable=durable)
    add(None, {"op": "drop", "stream": out})
    return commits


def _perform(engine: Engine, run: str) -> None:
    """A run commit by commit, and what is read for it."""
    for request in _run(run):
        engine.commit(request)
    engine.read(f"run/{run}", 0, 512)
    engine.get([f"run/{run}/lease", f"wake/{run}", "nothing"])
    for reverse in (False, True):
        for lapsed_only in (False, True):
            scan = {"prefix": "run/", "limit": 10, "reverse": reverse, "lapsed_only": lapsed_only}
            engine.scan(scan)


def test_run_1000_costs_what_run_100_did(tmp_path: Path) -> None:
    """SVC-04, K37: the same statements, as often, all of them from `statements`; and at most 1.2
    times the pages in the log.
    """
    engine = Engine(str(tmp_path / "store.db"))
    connection = engine._writer.connection
    costs: list[tuple[Counter[str], float]] = []
    done = 0
    for size in (100, 1000):
        while done < size - 1:
            batch = range(done, min(done + 50, size - 1))
            outcomes = engine.commit_together(
                [each for number in batch for each in _run(f"{number}", durable=False)]
            )
            assert all(isinstance(outcome, dict) for outcome in outcomes)
            done = batch.stop
        with _traced(engine) as seen:
            _perform(engine, f"of-{size}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        for repeat in range(10):
            _perform(engine, f"of-{size}+{repeat}")
        frames = os.stat(tmp_path / "store.db-wal").st_size / FRAME_BYTES / 10
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        costs.append((Counter(map(_source_of, seen)), frames))
    engine.close()
    (early, early_frames), (late, late_frames) = costs
    for cost in (early, late):
        cost.pop("FORGET_NEWS", None)  # once in a thousand rows
    assert late == early
    assert late_frames <= 1.2 * early_frames, (early_frames, late_frames)
    assert late_frames < 100
    elsewhere = {"FORGET_NEWS", "NEWS_SINCE", "ADD_BLOB", "ADD_CHUNK", "FIND_BLOB", "READ_CHUNK"}
    assert set(STATEMENTS) - set(late) == elsewhere, "a statement that a run never issues"


def test_a_commit_is_few_statements(tmp_path: Path) -> None:
    """SVC-04: the commit of one event under a fence, counted."""
    engine = Engine(str(tmp_path / "store.db"))
    children.commit(engine, None, children.put("lease", 1, 0))
    children.commit(engine, ("run", "seq:0"), children.append("run", 0, "first"))
    with _traced(engine) as seen:
        op = children.append("run", 1, "second")
        children.commit(engine, ("run", "seq:1"), op, require={"lease": 1})
    engine.close()
    assert [_source_of(sql) for sql in seen] == [
        "BEGIN",
        "FIND_STREAM",
        "FIND_RECEIPT",
        "FIND_DOCUMENT",
        "LAST_ROW",
        "ADD_ROW",
        "ADD_ROW",
        "ADD_PLACE",
        "ADD_PLACE",
        "COMMIT",
    ]


def test_a_refused_commit_writes_nothing(tmp_path: Path) -> None:
    """STO-003, STO-004: no statement that changes a row is even begun."""
    engine = Engine(str(tmp_path / "store.db"))
    children.commit(engine, ("run", "a"), children.append("run", 0, 1), children.put("d", 1, 0))
    ops: list[dict[str, Any]] = [
        children.append("run", 1, 2),
        children.put("new", 1, 0),
        children.put("d", 1, 7),
    ]
    with _traced(engine) as seen:
        refused = engine.commit_together([{"ops": ops, "key": ["run", "b"]}])
    engine.close()
    assert [getattr(outcome, "code", outcome) for outcome in refused] == ["conflict"]
    assert [_source_of(sql) for sql in seen] == [
        "BEGIN",
        "FIND_STREAM",
        "FIND_RECEIPT",
        "FIND_DOCUMENT",
        "FIND_TOMBSTONE",
        "FIND_DOCUMENT",
        "COMMIT",
    ]


def test_old_news_are_forgotten(tmp_path: Path) -> None:
    """SVC-04: what only watchers need does not grow without end; receipts and records stay."""
    engine = Engine(str(tmp_path / "store.db"))
    batch = [{"ops": [children.put(f"doc/{n}", 1, 0)], "key": None} for n in range(500)]
    children.commit(engine, ("run", "k"), children.append("run", 0, "kept"))
    for first in range(0, 9000, 500):
        for number, args in enumerate(batch):
            args["ops"] = [children.put(f"doc/{first + number}", 1, 0)]
        engine.commit_together(batch)
    count = engine._reader.connection.execute("SELECT count(*) FROM purra_log").fetchone()[0]
    assert statements.NEWS_KEPT <= count <= statements.NEWS_KEPT * 1.3 + 2
    assert engine.read("run", 0, 1)["records"] == ["kept"]
    again = children.commit(engine, ("run", "k"), children.append("run", 0, "kept"))
    assert again["heads"] == {"run": 1}
    engine.close()
