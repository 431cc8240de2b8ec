"""Runs of a kernel under a hosted policy, or with hosted tools that a person has to approve."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import purra
from purra.contracts.model import Chunk, Content, Finish, ModelProfile, ToolCallFragment
from purra.contracts.policy import Policy
from purra.contracts.tool import Tools

__all__ = ["HeldRun", "effects_under", "held"]


class _Asks:
    """A model that wants one tool with these arguments, one call after the other, then ends."""

    def __init__(self, tool: str, wanted: Sequence[Mapping[str, Any]]) -> None:
        self._tool = tool
        self._wanted = wanted

    async def profile(self) -> ModelProfile:
        return ModelProfile(window=8000, output_limit=500)

    async def generate(self, request: Any, _context: Any) -> AsyncIterator[Chunk]:
        done = sum(message.role == "tool" for message in request.messages)
        if done < len(self._wanted):
            arguments = json.dumps(self._wanted[done])
            yield ToolCallFragment(0, f"c{done}", self._tool, arguments)
            yield Finish("tool_calls")
        else:
            yield Content("done")
            yield Finish("stop")


async def effects_under(policy: Policy) -> int:
    """How often a tool ran that `policy` was asked about."""
    ran: list[int] = []

    @purra.tool(effect="world_write")
    def act(n: int) -> str:
        """Does something."""
        ran.append(n)
        return "done"

    model = _Asks("act", [{"n": 1}])
    async with purra.Kernel(model=model, tools=[act], policy=policy) as kernel:
        run = await kernel.submit("Do it.")
        await run.wait()
    return len(ran)


class HeldRun:
    """Implements `purra_tck.drivers.host.Held`."""

    def __init__(self, kernel: purra.Kernel, run: Any) -> None:
        self._kernel = kernel
        self._run = run

    async def settled(self) -> str:
        return str((await self._run.wait()).status)

    async def asked(self) -> list[tuple[str, Mapping[str, Any]]]:
        waiting = await self._kernel.runs.asked(self._run.id)
        return [(call.id, dict(call.plan["arguments"])) for call in waiting]

    async def decide(self, call: str, decision: str, **told: Any) -> None:
        await self._kernel.decide(self._run.id, call, decision, by="the kit", **told)

    async def go_on(self) -> None:
        self._run = await self._kernel.resume(self._run.id)


@asynccontextmanager
async def held(
    tools: Tools, name: str, wanted: Sequence[Mapping[str, Any]]
) -> AsyncIterator[HeldRun]:
    """A run whose model calls the tool `name` of `tools` with each of `wanted`."""
    agent = purra.Agent("held", "1", approvals="inbox")
    async with purra.Kernel(model=_Asks(name, wanted), tools=[tools], agent=agent) as kernel:
        yield HeldRun(kernel, await kernel.submit("Do it."))
