"""One step of a kernel under a hosted policy: does the tool run?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import purra
from purra.contracts.model import Chunk, Content, Finish, ModelProfile, ToolCallFragment
from purra.contracts.policy import Policy

__all__ = ["effects_under"]


class _Asks:
    """A model that wants one tool, then ends."""

    async def profile(self) -> ModelProfile:
        return ModelProfile(window=8000, output_limit=500)

    async def generate(self, request: Any, _context: Any) -> AsyncIterator[Chunk]:
        if request.messages[-1].role == "user":
            yield ToolCallFragment(0, "c1", "act", '{"n": 1}')
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

    async with purra.Kernel(model=_Asks(), tools=[act], policy=policy) as kernel:
        run = await kernel.submit("Do it.")
        await run.wait()
    return len(ran)
