"""Trials in worker processes (`python -m purra_tck.selftest_work`): who takes what, and when.

Parts of trials are taken from both ends of a line that is sorted by weight. Half of the lanes begin
with what is longest, so that nothing long is left for the end; it computes. The other half begins
with what is lightest: saboteurs of one rule, which mostly wait for something that never comes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from purra_tck.selftest import Part, Trial, Verdict, concluded, judged, parts

__all__ = ["run_trials"]

PART_TIMEOUT_S: Final = 300.0
"""Longest time of one part of a trial."""
DIE_WITH_PARENT: Final = 1
"""`PR_SET_PDEATHSIG`."""
ANSWER_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Told:
    """What came of a trial so far. `left`: parts that are still to be judged."""

    left: int
    rules: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of a part. `broken`: why there is nothing else, "" = there is."""

    rules: Mapping[str, Mapping[str, Any]]
    duration_s: float
    broken: str = ""


Ask = Callable[[Part], Awaitable[_Answer]]


async def run_trials(
    wanted: Sequence[Trial], *, jobs: int, tell: Callable[[Verdict], None] = lambda _: None
) -> list[Verdict]:
    """Tries all of `wanted` in `jobs` worker processes; in the given order. `tell` gets each
    verdict as it is known.
    """
    line = sorted((p for t in wanted for p in parts(t)), key=lambda p: p.weight, reverse=True)
    waiting = deque(line)
    told = {trial: _Told(sum(part.trial == trial for part in line)) for trial in wanted}
    found: dict[Trial, Verdict] = {}

    def take(part: Part, answer: _Answer) -> None:
        known = told[part.trial]
        known.left -= 1
        known.rules |= answer.rules
        known.broken += [answer.broken] if answer.broken else []
        known.duration_s += answer.duration_s
        if not known.left:
            verdict = concluded(part.trial, known.rules, known.broken, known.duration_s)
            found[part.trial] = verdict
            tell(verdict)

    async def work(following: Callable[[], Part]) -> None:
        while waiting:
            async with _worker() as ask:
                while waiting:
                    part = following()
                    answer = await ask(part)
                    take(part, answer)
                    if answer.broken:
                        break  # its worker may be gone: the next part gets another

    async with anyio.create_task_group() as tasks:
        for lane in range(max(1, min(jobs, len(line)))):
            tasks.start_soon(work, waiting.pop if lane % 2 else waiting.popleft)
    return [found[trial] for trial in wanted]


@asynccontextmanager
async def _worker() -> AsyncIterator[Ask]:
    command = [sys.executable, *(["-O"] if sys.flags.optimize else []), "-m", __name__]
    process = await anyio.open_process(command, stderr=None, start_new_session=True)
    if process.stdout is None or process.stdin is None:
        raise OSError("a worker without pipes")
    answers = BufferedByteReceiveStream(process.stdout)

    async def ask(part: Part) -> _Answer:
        with anyio.move_on_after(PART_TIMEOUT_S):
            return await _ask(process, answers, part)
        return _Answer({}, PART_TIMEOUT_S, f"no verdict within {PART_TIMEOUT_S:g} s")

    try:
        yield ask
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def _ask(process: Process, answers: BufferedByteReceiveStream, part: Part) -> _Answer:
    try:
        if process.stdin is not None:
            await process.stdin.send(json.dumps(asdict(part)).encode() + b"\n")
        value = json.loads(await answers.receive_until(b"\n", ANSWER_BYTES))
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, OSError) as error:
        return _Answer({}, 0.0, f"its worker process died: {type(error).__name__}")
    return _Answer(value["rules"], value["duration_s"])


def serve() -> None:
    """A worker: one part per line of standard input, one answer per line of standard output.

    What a subject prints goes to standard error. Nothing of it outlives the selftest, also where a
    subject holds it up for ever.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        value = json.loads(line)
        part = Part(Trial(**value["trial"]), tuple(value["rules"]))
        began_s = time.perf_counter()
        rules = anyio.run(judged, part)
        told = {"rules": rules, "duration_s": time.perf_counter() - began_s}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
