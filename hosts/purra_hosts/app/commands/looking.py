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
    from purra_hosts.app.plan import Plan

__all__ = ["on_store", "store_plan", "with_store"]


def with_store(
    manifest: Path,
    params: list[str] | None,
    state: Path | None,
    work: Callable[[Kernel], Awaitable[int]],
) -> None:
    """Starts the store's plugin, does `work`, leaves with the exit code that it gives."""
    on_store(store_plan(manifest, params, state), work)


def store_plan(manifest: Path, params: list[str] | None, state: Path | None) -> Plan:
    """The plan for a manifest's store alone. Raises what `make_plan` raises, and
    `PurraError(invalid_manifest)` where there is no store that another process could look at.
    """
    from purra.manifest.host import Caller
    from purra_hosts.app.plan import make_plan

    plan = make_plan(manifest, Caller(params=params_of(params), state=state), only_store=True)
    if plan.match.store is None:
        what = "names no store, so nothing is known of its runs once they are over"
        raise plan.host.refuse(["agent", "store"], what)
    return plan


def on_store(plan: Plan, work: Callable[[Kernel], Awaitable[int]]) -> None:
    """As `with_store`, for a plan of `store_plan`."""
    from purra_hosts.app.assembly import open_application

    async def main() -> int:
        async with open_application(plan) as application:
            return await work(application.kernel)

    raise typer.Exit(anyio.run(main))
