"""E: what a kernel costs per step of an agent, with a model that takes no time and a trivial tool.

A run of one round is two steps: a request that calls the tool, and one that answers. A run of a
hundred is a hundred and one. How a step becomes dearer with the length of its run is the growth.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import purra
from purra.agent import Agent, RunLimits
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
from purra.kernel import Kernel
from purra.runs.bindings import Adapters
from purra_bridge.ports.model import HostedModel
from purra_bridge.ports.store import HostedStore
from purra_bridge.ports.tool import HostedTools
from tests.bench.hosted import ADD, bench_launch, hosting, sqlite_launch
from tests.bench.kernel_sketch import (
    MemoryJournal,
    Play,
    SqliteJournal,
    bare_loop,
    here,
    kernel_sketch,
)
from tests.bench.measure import Column, Contender, Goal, Section, part
from tests.bench.sketch import sketch

__all__ = ["GOALS", "HERE", "SECTION", "in_process", "out_of_process"]

SHORT: Final = 60
LONG: Final = 3
LONG_ROUNDS: Final = 100
AT_ONCE: Final = 50
"""An instance takes 64 calls at once, and each run keeps one of its store's to watch its inbox."""
TOGETHER: Final = 300
AGENT: Final = Agent("bench", "1", limits=RunLimits(max_rounds=1000, max_tool_calls=1000))

Open = Callable[[], AbstractAsyncContextManager[Play]]


def _measured(opened: Open) -> Callable[[float], dict[str, float]]:
    async def main(share: float) -> dict[str, float]:
        async with opened() as play:
            for _ in range(part(5, share)):
                await play(1)
            busy_s = time.process_time()
            short_us = await _us_of_step(play, part(SHORT, share), 1)
            busy_s = time.process_time() - busy_s
            long_us = await _us_of_step(play, part(LONG, share), part(LONG_ROUNDS, share))
            return {
                "short_us": short_us,
                "cpu_us": busy_s / (2 * part(SHORT, share)) * 1e6,
                "long_us": long_us,
                "growth": long_us / short_us,
                "rate": await _rate(play, share),
                "blocks": await _blocks(play, part(LONG_ROUNDS, share)),
            }

    return lambda share: asyncio.run(main(share))


async def _us_of_step(play: Play, runs: int, rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(runs):
        await play(rounds)
    return (time.perf_counter() - began) / (runs * (rounds + 1)) * 1e6


async def _rate(play: Play, share: float) -> float:
    """Runs of one round per second, up to `AT_ONCE` of them at once."""
    each = part(TOGETHER // AT_ONCE, share)
    callers = part(AT_ONCE, share)

    async def caller() -> None:
        for _ in range(each):
            await play(1)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return each * callers / (time.perf_counter() - began)


async def _blocks(play: Play, rounds: int) -> float:
    """Blocks of memory per step that are still there while the run's outcome is held."""
    gc.collect()
    before = sys.getallocatedblocks()
    kept = await play(rounds)
    gc.collect()
    after = sys.getallocatedblocks()
    assert kept
    return max(0, after - before) / (rounds + 1)


@asynccontextmanager
async def _floor() -> AsyncIterator[Play]:
    yield bare_loop


@asynccontextmanager
async def _sketch_here() -> AsyncIterator[Play]:
    yield kernel_sketch(here, MemoryJournal())


@asynccontextmanager
async def _sketch_there() -> AsyncIterator[Play]:
    with TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db")
        async with sketch("block") as model, sketch("block") as tool:
            ends = {"model": model, "add": tool}
            yield kernel_sketch(lambda method, value: ends[method].call(method, value), journal)
        journal.close()


class _Script:
    """The model of `bench_plugin`, in this process."""

    async def profile(self) -> ModelProfile:
        return ModelProfile(10_000_000, 512, frozenset({"tools"}))

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        done = len(request.messages) // 2
        if done < int(request.messages[0].content):
            yield ToolCallFragment(0, f"c{done}", "add", f'{{"a": 1, "b": {done}}}')
            yield Usage(1, 1)
            yield Finish("tool_calls")
            return
        yield Content("done")
        yield Usage(1, 1)
        yield Finish("stop")


@purra.tool(effect="pure")
async def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


def _play(kernel: Kernel) -> Play:
    async def play(rounds: int) -> object:
        run = await kernel.submit(str(rounds))
        result = await run.wait()
        assert result.text == "done", result
        return run, result

    return play


@asynccontextmanager
async def in_process() -> AsyncIterator[Play]:
    """Objects of this process, and the journal in memory."""
    async with Kernel(model=_Script(), tools=[add], agent=AGENT) as kernel:
        yield _play(kernel)


@asynccontextmanager
async def out_of_process() -> AsyncIterator[Play]:
    """The real shape: model, tool and store each a plugin in a process of its own."""
    with TemporaryDirectory() as folder:
        launches = (
            bench_launch("bench"),
            bench_launch("again"),
            sqlite_launch(Path(folder) / "journal.db"),
        )
        async with hosting(*launches) as (model, tool, store):
            ports = Adapters(HostedModel(model, "script"), (HostedTools(tool, [ADD]),))
            async with Kernel.of(ports, HostedStore(store, "journal"), AGENT) as kernel:
                yield _play(kernel)


FLOOR: Final = "floor: a bare loop"
SKETCH_HERE: Final = "sketch: in this process"
SKETCH_THERE: Final = "sketch: two processes, SQLite here"
HERE: Final = "purra: in this process"
THERE: Final = "purra: two processes, SQLite in a third"

SECTION: Final = Section(
    "steps",
    "E. a kernel's cost per step",
    (
        Column("short_us", "us, 1 round"),
        Column("cpu_us", "kernel's CPU us"),
        Column("long_us", "us, 100 rounds"),
        Column("growth", "growth", 2, compared=False),
        Column("rate", "runs/s, 50 at once", rate=True),
        Column("blocks", "blocks kept", 0, compared=False),
    ),
    (
        Contender(FLOOR, _measured(_floor)),
        Contender(SKETCH_HERE, _measured(_sketch_here)),
        Contender(SKETCH_THERE, _measured(_sketch_there)),
        Contender(HERE, _measured(in_process)),
        Contender(THERE, _measured(out_of_process)),
    ),
    {SKETCH_HERE: "sketch here", SKETCH_THERE: "sketch there"},
)

GOALS: Final = (
    Goal("E1", "a step in this process, CPU / sketch", "steps", "cpu_us", HERE, SKETCH_HERE, 10.0),
    Goal("E2", "a step in the real shape / sketch", "steps", "short_us", THERE, SKETCH_THERE, 2.5),
    Goal("E3", "growth over 100 rounds, in this process", "steps", "growth", HERE, "", 1.25),
    Goal("E3r", "growth over 100 rounds, real shape", "steps", "growth", THERE, "", 2.0),
    Goal("E4", "50 runs at once, real shape / sketch", "steps", "rate", THERE, SKETCH_THERE, 1.7),
    Goal("E5", "blocks kept per step, in this process", "steps", "blocks", HERE, "", 30.0),
)
