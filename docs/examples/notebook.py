# %% [markdown]
# An agent in a notebook. A loop runs already, so `await` and `async with` stand in the cells
# themselves. Run it from the project's root; each `# %%` begins a cell.

# %% One run, with every event that was committed
import asyncio
from contextlib import AsyncExitStack

from standin import Standin

import purra

MANIFEST = "manifests/quickstart.toml"
ASKED = {"root": "docs/spec"}

async with purra.open_kernel(MANIFEST, params=ASKED, state="notebook-state") as kernel:
    run = await kernel.submit("What is in a HELLO?")
    async for event in run.events():
        print(event.seq, event.kind, event.data.get("name", ""))
    print((await run.wait()).text)

# %% A kernel that stays open for the next cells
opened = AsyncExitStack()
kernel = await opened.enter_async_context(
    purra.open_kernel(MANIFEST, params=ASKED, state="notebook-state")
)

# %% Two questions of one session, and what is stored
for question in ("What is a credit?", "What is a drain?"):
    run = await kernel.submit(question, session="notes")
    print((await run.wait()).status)
print([found.prompt for found in await kernel.runs.list()])

# %% Cancel: the run has ended, and what it was waiting for is over
stopped = asyncio.Event()


@purra.tool(effect="external_read")
async def dial(number: str) -> str:
    """Waits until somebody answers."""
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


async with purra.Kernel(
    model=Standin(lambda said: ("dial", {"number": "555"})), tools=[dial]
) as own:
    run = await own.submit("Call them.")
    async for event in run.events():
        if event.kind == "tool.call.claimed":
            await run.cancel()
    result = await run.wait()
    print(result.status, result.error["code"], stopped.is_set())

# %% Two kernels at once, which know nothing of each other
left = purra.Kernel(model=Standin(lambda said: f"left: {said[-1].content}"))
right = purra.Kernel(model=Standin(lambda said: f"right: {said[-1].content}"))
async with left, right:
    runs = [await one.submit("Who are you?", session="same") for one in (left, right)]
    print([result.text for result in await asyncio.gather(*(run.wait() for run in runs))])
    print(len(await left.runs.list()), len(await right.runs.list()))

# %% The end: every plugin process is gone
await opened.aclose()
