"""Several processes on one file: nobody is refused for being late, nobody wins twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import purra_plugin_sqlite
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.plugins.sqlite import children

LIMIT_S = 60
"""Longest life of a child: a store that hangs fails the test."""


@contextmanager
def child(task: str, path: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A child at work; killed at the end if it still lives."""
    package = Path(purra_plugin_sqlite.__file__).parent.parent
    process = subprocess.Popen(
        children.command(task, path, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> list[str]:
    """What the child said until its end, which must be a good one."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def all_records(engine: Engine, stream: str) -> list[Any]:
    found: list[Any] = []
    while True:
        page = engine.read(stream, len(found), 1000)
        found += page["records"]
        if len(found) >= page["head"]:
            return found


def test_eight_writers_and_a_reader(tmp_path: Path) -> None:
    """K56, STO-006, STO-021, SVC-03: 8 processes append 200 records each and count together; no
    lock error comes out, no record is missing, and a reader never sees one appear late.
    """
    path = tmp_path / "store.db"
    names = [f"w{number}" for number in range(8)]
    with contextmanager(_children)("append", path, [(name, 200) for name in names]) as writers:
        engine = Engine(str(path))
        seen: list[object] = []
        while any(writer.poll() is None for writer in writers):
            page = engine.read("shared", len(seen), 100)
            assert len(page["records"]) == min(100, page["head"] - len(seen))
            seen += page["records"]
        for writer in writers:
            assert finish(writer) == ["done"]
    records = all_records(engine, "shared")
    assert records[: len(seen)] == seen
    assert len(records) == 1600
    for name in names:
        mine = [record[1] for record in records if record[0] == name]
        assert mine == list(range(200)), name
        assert all_records(engine, f"own/{name}") == list(range(200))
    assert engine.get(["counter"])["documents"][0]["value"] == 8 * 20
    engine.close()


def _children(
    task: str, path: Path, arguments: list[tuple[object, ...]]
) -> Iterator[list[subprocess.Popen[str]]]:
    if not arguments:
        yield []
        return
    with (
        child(task, path, *arguments[0]) as first,
        contextmanager(_children)(task, path, arguments[1:]) as others,
    ):
        yield [first, *others]


def _go(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Lets children that have said `ready` run at once; what they said."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [finish(process) for process in processes]


def test_takeover_has_one_winner(tmp_path: Path) -> None:
    """STO-012, STO-018, RUN-17: 6 processes take one lapsed lease; one gets it, and the others
    learn its revision.
    """
    path = tmp_path / "store.db"
    for round_number in range(3):
        engine = Engine(str(path))
        (lease,) = engine.get(["lease"])["documents"]
        revision = lease["revision"] if lease else 0
        receipt = children.commit(engine, None, children.put("lease", "dead", revision, 1))
        revision = receipt["revisions"]["lease"]
        while not engine.get(["lease"])["documents"][0]["lapsed"]:
            pass
        names = [f"r{number}" for number in range(6)]
        arguments: list[tuple[object, ...]] = [(name, revision, 10**6) for name in names]
        with contextmanager(_children)("take", path, arguments) as racers:
            said = _go(racers)
        assert sorted(said) == [[f"lost conflict {revision + 1}"]] * 5 + [["won"]], round_number
        (lease,) = engine.get(["lease"])["documents"]
        assert lease["value"] == names[said.index(["won"])]
        engine.close()


def test_one_key_from_many_processes_is_one_record(tmp_path: Path) -> None:
    """STO-008, RUN-06: 6 processes commit the same 20 keys; a key gives all of them one number."""
    path = tmp_path / "store.db"
    engine = Engine(str(path))
    with contextmanager(_children)("same", path, [(n,) for n in range(6)]) as racers:
        said = _go(racers)
    assert said == [said[0]] * 6
    assert sorted(map(int, said[0])) == list(range(1, 21))
    assert len(all_records(engine, "shared")) == 20
    engine.close()


def test_a_stopped_owner_is_fenced_when_it_comes_back(tmp_path: Path) -> None:
    """K58, STO-015: SIGSTOP past the end of the lease, takeover, SIGCONT: every write of the old
    owner is refused, whatever it was doing when it was stopped.
    """
    path = tmp_path / "store.db"
    engine = Engine(str(path))
    with child("own", path, 400) as owner:
        assert owner.stdout is not None
        for _ in range(3):
            assert owner.stdout.readline() == "wrote\n"
        owner.send_signal(signal.SIGSTOP)
        while True:
            (lease,) = engine.get(["lease"])["documents"]
            if lease["lapsed"]:
                break
        children.commit(engine, None, children.put("lease", "second", 1, 10**6))
        before = engine.read("run", 0, 1)["head"]
        owner.send_signal(signal.SIGCONT)
        said = [line for line in finish(owner) if line != "wrote"]
    assert said == ["refused conflict"] * 5
    page = engine.read("run", 0, 1)
    assert (page["head"], page["sealed"]) == (before, False)
    (lease,) = engine.get(["lease"])["documents"]
    assert (lease["value"], lease["revision"]) == ("second", 2)
    engine.close()


def test_a_writer_waits_for_another_and_says_when_it_gives_up(tmp_path: Path) -> None:
    """SVC-03, STO-024: a file that stays locked is a typed error, and passing; nothing is lost."""
    path = tmp_path / "store.db"
    holder, waiter = Engine(str(path)), Engine(str(path), patience_s=0.05)
    connection = holder._writer.connection
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(EngineError) as refused:
        children.commit(waiter, None, children.put("doc", 1, 0))
    assert (refused.value.code, refused.value.passing) == ("storage", True)
    assert refused.value.detail["sqlite"] == "SQLITE_BUSY"
    assert waiter.get(["doc"])["documents"] == [None]
    connection.execute("ROLLBACK")
    children.commit(waiter, None, children.put("doc", 1, 0))
    assert holder.get(["doc"])["documents"][0]["revision"] == 1
    holder.close()
    waiter.close()


def test_many_processes_make_one_file(tmp_path: Path) -> None:
    """SVC-03: who comes first makes the file, the others find it, whole."""
    path = tmp_path / "deep" / "folder" / "store.db"
    with contextmanager(_children)("append", path, [(f"w{n}", 10) for n in range(6)]) as writers:
        for writer in writers:
            assert finish(writer) == ["done"]
    engine = Engine(str(path))
    assert len(all_records(engine, "shared")) == 60
    engine.close()
