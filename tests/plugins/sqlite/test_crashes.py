"""SIGKILL of a writer: what was acknowledged is there, everything else is whole or absent."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.plugins.sqlite import children
from tests.plugins.sqlite.test_processes import LIMIT_S, all_records, child

KILLS = 20
LONGEST_MS = 12
"""The kill comes this long after an acknowledgement at most: some ten commits later."""


def _steps(path: Path) -> int:
    """How many steps are in the file; fails if one of them is there in part."""
    engine = Engine(str(path))
    records = all_records(engine, "run")
    number = len(records)
    assert [record["step"] for record in records] == list(range(number))
    assert all_records(engine, "audit") == list(range(number))
    documents = engine.get(["status", *(f"step/{n}" for n in range(number + 1))])["documents"]
    status, *marks = documents
    assert (status["value"] if status else 0) == number
    assert (status["revision"] if status else 0) == number
    assert [n for n, mark in enumerate(marks) if mark] == ([number - 1] if number else [])
    for n in range(number):
        # Each step's key gives its receipt, and the key of the next one is unused.
        again = children.commit(engine, ("run", f"seq:{n}"), *children.step_ops(n))
        assert again["heads"] == {"run": n + 1, "audit": n + 1}
    engine.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return number


def test_a_killed_writer_leaves_whole_commits(tmp_path: Path) -> None:
    """STO-001, STO-002, RUN-07: at random points of a stream of commits."""
    path = tmp_path / "store.db"
    chance = random.Random(5)
    before = 0
    for _ in range(KILLS):
        with child("step", path) as writer:
            assert writer.stdout is not None
            acknowledged = int(writer.stdout.readline())
            time.sleep(chance.uniform(0, LONGEST_MS) / 1000)  # the point of the kill
            writer.kill()
            said = writer.stdout.read().split()
            writer.wait(LIMIT_S)
        acknowledged = int(said[-1]) if said else acknowledged
        after = _steps(path)
        assert acknowledged <= after <= acknowledged + 1
        assert after > before
        before = after


def test_killed_between_any_two_statements(tmp_path: Path) -> None:
    """STO-001: before each statement of a commit; the one before it stays, of this one nothing."""
    path = tmp_path / "store.db"
    survived = False
    for statement in range(1, 60):
        before = _steps(path) if path.exists() else 0
        with child("die", path, statement) as writer:
            out, err = writer.communicate(timeout=LIMIT_S)
        assert err == ""
        lines = out.split()
        assert int(lines[0]) == before + 1
        survived = len(lines) > 1
        assert writer.returncode == (0 if survived else -signal.SIGKILL)
        assert _steps(path) == before + (2 if survived else 1)
        if survived:
            break
    assert survived
    assert statement > 12, "a commit of five ops has more statements than that"


def test_a_killed_upload_leaves_nothing(tmp_path: Path) -> None:
    """STO-026: not found, no file left beside the store, no row in it; and it can be repeated."""
    path = tmp_path / "store.db"
    Engine(str(path)).close()
    for pieces in (1, 10, 25):
        with child("blob", path, 40) as uploader:
            assert uploader.stdout is not None
            for number in range(pieces):
                assert uploader.stdout.readline() == f"piece {number}\n"
            os.kill(uploader.pid, signal.SIGKILL)
            uploader.wait()
        assert {file.name for file in tmp_path.iterdir()} <= {
            "store.db",
            "store.db-wal",
            "store.db-shm",
        }
        engine = Engine(str(path))
        found = engine._reader.connection.execute("SELECT count(*) FROM purra_blob_chunks")
        assert found.fetchone() == (0,)
        engine.close()
    with child("blob", path, 40) as uploader:
        out, err = uploader.communicate(timeout=LIMIT_S)
    assert err == ""
    digest = out.split()[-1]
    engine = Engine(str(path))
    whole = b"".join(engine.blob_get(digest, 0, 10**9))
    assert len(whole) == 40 * 300_000
    assert whole[-300_000:] == bytes([39]) * 300_000
    try:
        engine.blob_get(digest[:-1] + "x", 0, 1)
    except EngineError as error:
        assert error.code == "not_found"
    engine.close()
