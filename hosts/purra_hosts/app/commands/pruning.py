"""`purra runs prune`: removes runs that have ended; shows them first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.options import duration_ms
from purra_hosts.app.printing import json_line, moment, print_table

if TYPE_CHECKING:
    from purra.kernel import Kernel
    from purra.runs.pruning import EndedRun

__all__ = ["pruning"]


def pruning(
    older_than: str, status: Sequence[str], *, yes: bool, json: bool
) -> Callable[[Kernel], Awaitable[int]]:
    """What `with_store` is to do. Raises `PurraError(invalid_argument)` if it is not clear what."""
    age_ms = duration_ms(older_than, "--older-than") if older_than else None
    wanted = _statuses(status)
    if age_ms is None and not wanted:
        raise PurraError(
            "invalid_argument",
            "which runs?",
            where="purra runs prune",
            hint="name an age (--older-than 30d), a status (--status failed), or both",
        )

    async def work(kernel: Kernel) -> int:
        from purra.runs.pruning import ENDED, ended_runs

        before_ms = None if age_ms is None else await kernel.store.now() - age_ms
        source = ended_runs(kernel.store, wanted or ENDED, before_ms)
        found = [item async for item in source]
        removed = await _remove(kernel, found) if yes else None
        (_print_json if json else _print)(found, removed)
        return exits.COMPLETED

    return work


def _statuses(given: Sequence[str]) -> tuple[str, ...]:
    from purra.runs.pruning import ENDED

    for status in given:
        if status not in ENDED:
            what = f"{status!r} is no status of a run that has ended"
            hint = f"{', '.join(ENDED)}; no other run is ever removed"
            raise PurraError("invalid_argument", what, where="--status", hint=hint)
    return tuple(given)


async def _remove(kernel: Kernel, found: Sequence[EndedRun]) -> dict[str, Any]:
    from purra.runs import kernels, pruning

    runs = [item.info for item in found if await pruning.prune(kernel.store, item.info.run)]
    sessions = {info.session for info in runs if info.session}
    forgotten = await pruning.forget_sessions(kernel.store, sessions)
    return {
        "runs": len(runs),
        "sessions": len(forgotten),
        "sessions_kept": sorted(sessions - set(forgotten)),
        "kernels": await kernels.forget(kernel.store),
    }


def _print_json(found: Sequence[EndedRun], removed: dict[str, Any] | None) -> None:
    for item in found:
        info = item.info
        told = {"kind": "run", "run": info.run, "status": info.status, "session": info.session}
        json_line({**told, "ended_ms": item.ended_ms})
    json_line({"kind": "summary", "found": len(found), "removed": removed})


def _print(found: Sequence[EndedRun], removed: dict[str, Any] | None) -> None:
    if removed is None:
        rows = [
            (item.info.run, item.info.status, moment(item.ended_ms), item.info.prompt[:60])
            for item in found
        ]
        print_table(("run", "status", "ended", "prompt"), rows)
        what = f"{len(found)} would be removed; --yes removes them" if found else "nothing to do"
        typer.echo(f"note: {what}", err=True)
        return
    counts = [_counted(removed[f"{what}s"], what) for what in ("run", "session", "kernel")]
    typer.echo(f"removed: {', '.join(counts)}")
    if removed["sessions_kept"]:
        names = ", ".join(removed["sessions_kept"])
        typer.echo(f"note: other runs of {names} still see what these said", err=True)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
