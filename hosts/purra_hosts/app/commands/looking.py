"""A kernel on the manifest's store alone: it can look at runs, tell them things, and end them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import typer

from purra_hosts.app.options import params_of

if TYPE_CHECKING:
    from purra.kernel import Kernel

__all__ = ["with_store"]


def with_store(
    manifest: Path,
    params: list[str] | None,
    state: Path | None,
    work: Callable[[Kernel], Awaitable[int]],
) -> None:
    """Starts the store's plugin, does `work`, leaves with the exit code that it gives."""
    from purra.manifest.host import Caller
    from purra_hosts.app.assembly import open_application
    from purra_hosts.app.plan import make_plan

    plan = make_plan(manifest, Caller(params=params_of(params), state=state), only_store=True)

    async def main() -> int:
        async with open_application(plan) as application:
            return await work(application.kernel)

    raise typer.Exit(anyio.run(main))
