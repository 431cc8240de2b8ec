"""Issue A, done when: run 1,000 in one SQLite file issues the statements of run 100, with no SCAN
in any EXPLAIN QUERY PLAN, and at most 1.2x its WAL frames (SVC-04, K37).

Real runs of a real kernel on the plugin's engine, which is called in this process so that its
connections can be watched; the port and the codec are between them as ever.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    ModelProfile,
    ModelRequest,
    ToolCallFragment,
    Usage,
)
from purra.runs import output, owner, shell
from purra_bridge.ports.store import HostedStore
from purra_plugin_sqlite.engine import Engine
from tests.plugins.sqlite.engine_channel import EngineChannel

EARLY, LATE = 100, 1000
WINDOW_RUNS = 10
"""Frames are those of so many runs, so that a page that is split now or then does not decide."""
GROWTH = 1.2
WAL_HEADER_BYTES = 32
FRAME_BYTES = 4096 + 24
LITERAL = re.compile(r"x'[0-9a-f]*'|'(?:[^']|'')*'|\b\d+\b", re.IGNORECASE)
NO_PLAN = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
NOW_AND_THEN = "DELETE FROM purra_log WHERE kind = ? AND id <= ?"
"""Old news are removed each thousand rows, in whichever run that is."""


class OneTool:
    """Calls the tool, then answers."""

    async def profile(self) -> ModelProfile:
        return ModelProfile(8192, 512, frozenset({"tools"}))

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        if request.messages[-1].role == "tool":
            yield Content("done")
            yield Finish("stop", "")
        else:
            yield Content("I write.")
            yield ToolCallFragment(0, "c", "write", '{"line": "x"}')
            yield Finish("tool_calls", "")
        yield Usage(3, 2)


@purra.tool(effect="world_write")
async def write(line: str) -> str:
    """Writes a line."""
    return line


class Watched:
    """The statements of an engine's connections, and the frames of its log."""

    def __init__(self, path: Path) -> None:
        self.engine = Engine(str(path))
        self._log = Path(f"{path}-wal")
        self.samples: dict[str, str] = {}
        """Each statement that was ever seen, without its literals -> as it was traced."""
        self.seen: Counter[str] = Counter()
        for database in (self.engine._writer, self.engine._reader):
            database.connection.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        form = " ".join(LITERAL.sub("?", statement).split())
        self.samples.setdefault(form, statement)
        if form != NOW_AND_THEN:
            self.seen[form] += 1

    def empty_log(self, *, then_keep: bool) -> None:
        """Copies the log into the file. `then_keep`: until the next call it only grows."""
        connection = self.engine._writer.connection
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy
        connection.execute(f"PRAGMA wal_autocheckpoint = {0 if then_keep else 1000}")

    @property
    def frames(self) -> int:
        whole, rest = divmod(self._log.stat().st_size - WAL_HEADER_BYTES, FRAME_BYTES)
        assert rest == 0
        return whole


async def one_run(kernel: purra.Kernel) -> None:
    run = await kernel.submit("go", session="s")
    events = [event async for event in run.events()]
    result = await run.wait()
    assert (result.status, events[-1].kind) == ("completed", "run.completed")


async def measured(kernel: purra.Kernel, watched: Watched) -> tuple[Counter[str], int]:
    """Statements of the next run, and frames of it and those that follow in the window."""
    watched.empty_log(then_keep=True)
    watched.seen.clear()
    await one_run(kernel)
    statements = Counter(watched.seen)
    for _ in range(WINDOW_RUNS - 1):
        await one_run(kernel)
    frames = watched.frames
    watched.empty_log(then_keep=False)
    return statements, frames


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on the clock is left out: heartbeats, when a first delta is stored, and when a
    run begins to watch its inbox."""
    monkeypatch.setattr(owner, "LEASE_TOUCH_S", 3600.0)
    monkeypatch.setattr(output, "FIRST_DELTA_S", 3600.0)
    monkeypatch.setattr(shell, "INBOX_DELAY_S", 3600.0)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: three thousand flushes are not what is measured."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_run_1000_costs_what_run_100_did(quick: Path, steady: None) -> None:
    """One file, one session, a thousand one-tool runs."""
    watched = Watched(quick / "runs.db")
    costs: list[tuple[Counter[str], int]] = []

    async def main() -> None:
        store = HostedStore(EngineChannel(watched.engine), "journal")
        async with purra.Kernel(model=OneTool(), tools=[write], store=store) as kernel:
            done = 0
            for number in (EARLY, LATE):
                while done < number - 1:
                    await one_run(kernel)
                    done += 1
                costs.append(await measured(kernel, watched))
                done += WINDOW_RUNS
            assert len(await kernel.runs.list(limit=50)) == 50
            await kernel.runs.due(10)

    anyio.run(main)
    (early, early_frames), (late, late_frames) = costs
    print(
        f"statements: {early.total()} and {late.total()} of {len(early)} forms, WAL frames of "
        f"{WINDOW_RUNS} runs: {early_frames} and {late_frames}"
    )
    assert late == early
    assert early["COMMIT"] >= 5
    assert WINDOW_RUNS < late_frames <= GROWTH * early_frames
    assert_no_scan(watched.engine._reader.connection, watched.samples)
    watched.engine.close()


def assert_no_scan(connection: sqlite3.Connection, samples: dict[str, str]) -> None:
    """Each statement finds its rows by a key or an index, as this file's data are by now."""
    connection.set_trace_callback(None)
    planned = 0
    for statement in samples.values():
        if statement.startswith(NO_PLAN):
            continue
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        steps = [row[3] for row in plan]
        assert not [step for step in steps if "SCAN" in step.split()], (statement, steps)
        planned += bool(steps)
    assert planned >= 8


def test_a_scan_would_be_seen(tmp_path: Path) -> None:
    """The check above fails on a statement without an index."""
    engine = Engine(str(tmp_path / "runs.db"))
    samples = {"": "SELECT * FROM purra_log WHERE value = 'x'"}
    with pytest.raises(AssertionError, match="SCAN"):
        assert_no_scan(engine._reader.connection, samples)
    engine.close()
