"""What goes its own way beside the journal, and kernels that do not meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.store import Append
from purra.contracts.tool import ToolResult, ToolSchema, declare
from purra.errors import PurraError
from purra.runs import keys
from tests.kernel.parts import CountingStore, ScriptModel, ask, say

OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


class Talker:
    """A tool that reports its progress very often."""

    def __init__(self, reports: int) -> None:
        self.reports = reports

    async def catalog(self) -> Sequence[ToolSchema]:
        return [declare("talk", "Talks.", OBJECT, "pure")]

    async def call(self, name: str, arguments: Any, context: CallContext) -> ToolResult:
        for number in range(self.reports):
            context.progress({"done": number})
        return ToolResult("said")


@pytest.mark.anyio
async def test_what_is_reported_often_is_no_event() -> None:
    """EVT-06: progress and drafts cost the journal nothing; drafts have a stream of their own."""

    async def sizes(reports: int, pieces: int) -> tuple[int, int]:
        store = CountingStore()
        text = "x" * pieces
        model = ScriptModel(ask(("talk", "{}")), [*[say(c)[0] for c in text], *say("")[1:]])
        async with purra.Kernel(model=model, tools=[Talker(reports)], store=store) as kernel:
            run = await kernel.submit("go")
            assert (await run.wait()).text == text
            journal = await store.read(keys.journal(run.id), 0, 100)
            drafts = [record async for record in run.output()]
        assert "".join(draft["text"] for draft in drafts) == text
        journaled = [
            commit
            for commit in store.commits
            if any(
                isinstance(op, Append) and op.stream == keys.journal(run.id) for op in commit.ops
            )
        ]
        return journal.head, len(journaled)

    assert await sizes(1000, 1000) == await sizes(0, 1)


@pytest.mark.anyio
async def test_two_kernels_in_one_process_do_not_meet() -> None:
    """API-08, invariant 10: the same session and the same tool in each, and nothing in common."""

    def tool_of(ran: list[str], name: str) -> Any:
        async def note() -> str:
            """Notes."""
            ran.append(name)
            return name

        return purra.tool(effect="external_write")(note)

    ran: dict[str, list[str]] = {"one": [], "two": []}
    kernels = {
        name: purra.Kernel(
            model=ScriptModel(ask(("note", "{}")), say(f"answer {name}")),
            tools=[tool_of(ran[name], name)],
            agent=purra.Agent("a", "1", session_policy="refuse"),
        )
        for name in ran
    }
    async with kernels["one"] as one, kernels["two"] as two:
        runs = [await kernel.submit("go", session="s") for kernel in (one, two)]
        results = [await run.wait() for run in runs]
        assert [result.text for result in results] == ["answer one", "answer two"]
        assert ran == {"one": ["one"], "two": ["two"]}
        for kernel, mine, other in ((one, runs[0], runs[1]), (two, runs[1], runs[0])):
            assert [info.run for info in await kernel.runs.list()] == [mine.id]
            with pytest.raises(PurraError, match="run_not_found"):
                await kernel.runs.show(other.id)
