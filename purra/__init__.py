"""An embeddable agent kernel. Its adapters are plugins in supervised subprocesses.

    async with purra.open_kernel("manifests/quickstart.toml") as kernel:
        run = await kernel.submit("What does the protocol say about cancel?")
        result = await run.wait()

Names are loaded when they are first used, so that importing this package costs next to nothing.
`open_kernel`, `run_sync` and `Watchers` are the front door to `purra_hosts.app`, the one place of
this package that names it; everything else here knows no host.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from purra.agent import Agent, PromptSection, RunLimits
    from purra.errors import AdapterError, PurraError, StoreError, ToolError
    from purra.journal.events import Event
    from purra.kernel import Kernel
    from purra.output import Output
    from purra.runs.result import Result
    from purra.runs.run import Run
    from purra.tools import tool
    from purra_hosts.app.assembly import Watchers, open_kernel, run_sync

__all__ = [
    "AdapterError",
    "Agent",
    "Event",
    "Kernel",
    "Output",
    "PromptSection",
    "PurraError",
    "Result",
    "Run",
    "RunLimits",
    "StoreError",
    "ToolError",
    "Watchers",
    "open_kernel",
    "run_sync",
    "tool",
]

_HOMES = {
    "AdapterError": "purra.errors",
    "Agent": "purra.agent",
    "Event": "purra.journal.events",
    "Kernel": "purra.kernel",
    "Output": "purra.output",
    "PromptSection": "purra.agent",
    "PurraError": "purra.errors",
    "Result": "purra.runs.result",
    "Run": "purra.runs.run",
    "RunLimits": "purra.agent",
    "StoreError": "purra.errors",
    "ToolError": "purra.errors",
    "Watchers": "purra_hosts.app.assembly",
    "open_kernel": "purra_hosts.app.assembly",
    "run_sync": "purra_hosts.app.assembly",
    "tool": "purra.tools",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'purra' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
