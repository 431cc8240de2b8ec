"""The file's mark: looked at before anything is written, and by SQLite alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.schema import APPLICATION_ID, MIGRATIONS, open_file
from purra_plugin_sqlite.statements import FORMAT_1
from tests.plugins.sqlite import children
from tests.plugins.sqlite.test_processes import child, finish


def _digests(folder: Path) -> dict[str, str]:
    """What every file of a folder holds. No store of this process may be open: see `schema`."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if not file.name.endswith("-shm")
    }


def _refusal(path: Path) -> EngineError:
    with pytest.raises(EngineError) as refused:
        Engine(str(path))
    assert refused.value.code == "storage"
    return refused.value


def _store(path: Path) -> None:
    engine = Engine(str(path))
    children.commit(engine, ("run", "k"), children.append("run", 0, "kept"))
    engine.close()


def test_a_new_file_carries_its_mark(tmp_path: Path) -> None:
    """SVC-08: in the header of the file itself, not in the log, and only its owner may read it."""
    path = tmp_path / "new" / "store.db"
    engine = Engine(str(path))
    assert path.stat().st_size > 0
    engine.close()
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == len(MIGRATIONS) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("version", [0, 2, 2**31 - 1])
def test_another_format_leaves_the_file_as_it_is(tmp_path: Path, version: int) -> None:
    """SVC-08, STO-023: newer or unknown: typed, and byte-identical."""
    path = tmp_path / "store.db"
    _store(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = _digests(tmp_path)
    assert list(before) == ["store.db"]
    refused = _refusal(path)
    assert (refused.detail["format"], refused.detail["newest"]) == (version, 1)
    assert _digests(tmp_path) == before


def test_a_newer_format_that_is_only_in_the_log(tmp_path: Path) -> None:
    """SVC-08: where a crash right after an upgrade leaves it; neither file is changed."""
    path, crashed = tmp_path / "store.db", tmp_path / "crashed"
    _store(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA user_version = 2")
    crashed.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(tmp_path / name, crashed / name)
    connection.close()
    before = _digests(crashed)
    assert len(before) == 2
    assert _refusal(crashed / "store.db").detail["format"] == 2
    assert _digests(crashed) == before


def test_a_file_of_another_program(tmp_path: Path) -> None:
    """SVC-08: an SQLite file that is not ours, in either mode, or no SQLite file at all."""
    path = tmp_path / "other.db"
    for mode in ("DELETE", "WAL"):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute(f"CREATE TABLE {mode.lower()}_table(a)")
        connection.close()
        before = _digests(tmp_path)
        assert "not a store" in _refusal(path).message
        assert _digests(tmp_path)["other.db"] == before["other.db"]
    path.write_bytes(b"once upon a time " * 1000)
    for leftover in tmp_path.glob("other.db-*"):
        leftover.unlink()
    before = _digests(tmp_path)
    assert _refusal(path).detail["sqlite"] == "SQLITE_NOTADB"
    assert _digests(tmp_path) == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """SVC-08: what `touch` or an interrupted start leaves."""
    path = tmp_path / "store.db"
    path.touch()
    _store(path)
    engine = Engine(str(path))
    assert engine.read("run", 0, 1)["records"] == ["kept"]
    engine.close()


def test_paths_are_paths(tmp_path: Path) -> None:
    """Names that mean something in a URI are still names."""
    path = tmp_path / "a%20b?mode=ro#c é" / "x&y.db"
    _store(path)
    engine = Engine(str(path))
    assert engine.read("run", 0, 1)["head"] == 1
    engine.close()
    assert [file.name for file in path.parent.iterdir()] == ["x&y.db"]


def test_a_path_that_cannot_be_made(tmp_path: Path) -> None:
    """STO-024: typed, with the errno of the system."""
    (tmp_path / "file").write_text("x")
    assert _refusal(tmp_path / "file" / "store.db").detail["errno"] in (17, 20)
    (tmp_path / "folder").mkdir()
    assert _refusal(tmp_path / "folder").code == "storage"


def test_a_second_opening_does_not_drop_the_locks_of_the_first(tmp_path: Path) -> None:
    """STO-002: while a store is open here, another process that comes and goes must not take the
    log away. (It did when this process had opened and closed the file by other means meanwhile.)
    """
    path = tmp_path / "store.db"
    first = Engine(str(path))
    Engine(str(path)).close()
    with child("append", path, "passing", 10) as passing:
        assert finish(passing) == ["done"]
    assert (tmp_path / "store.db-wal").exists()
    children.commit(first, ("run", "k"), children.append("run", 0, "kept"))
    first.close()
    second = Engine(str(path))
    assert second.read("run", 0, 1)["records"] == ["kept"]
    second.close()


def test_a_crash_while_the_file_is_made(tmp_path: Path) -> None:
    """STO-023: tables half written and a journal beside them: taken back, then made."""
    path = tmp_path / "store.db"
    script = f"""
import os, signal, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for statement in {list(FORMAT_1)!r}:
    connection.execute(statement)
connection.execute("PRAGMA application_id = {APPLICATION_ID}")
for number in range(2000):
    connection.execute("INSERT INTO purra_log VALUES (?, 1, NULL, ?)", (number, "x" * 500))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "store.db-journal").stat().st_size > 0
    assert path.stat().st_size > 100_000
    _store(path)
    engine = Engine(str(path))
    assert engine.read("run", 0, 10) == {"records": ["kept"], "head": 1, "sealed": False}
    assert engine.read("other", 0, 10)["head"] == 0
    engine.close()


def test_a_crash_during_a_migration(tmp_path: Path) -> None:
    """STO-023: SIGKILL at many points leaves the old format, usable, or the new one, refused."""
    path = tmp_path / "store.db"
    outcomes = set()
    for wait_ms in (0, 1, 2, 4, 6, 9, 15, None):
        path.unlink(missing_ok=True)
        for leftover in tmp_path.glob("store.db-*"):
            leftover.unlink()
        _store(path)
        with child("migrate", path, 400) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if wait_ms is None:
                assert process.stdout.readline() == "done\n"
            else:
                time.sleep(wait_ms / 1000)  # the point of the kill, not a wait for something
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        try:
            engine = Engine(str(path))
        except EngineError as error:
            assert error.detail["format"] == 2
            outcomes.add("new")
            open_file(str(path), patience_s=1, migrations=(*MIGRATIONS, ("",))).close()
        else:
            assert engine.read("run", 0, 1)["records"] == ["kept"]
            children.commit(engine, ("run", "k2"), children.append("run", 1, "more"))
            engine.close()
            outcomes.add("old")
    assert outcomes == {"old", "new"}
