"""What the page is told: runs, one run, its events, the kernels at work. Read only (OBS-08)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from purra.contracts.store import Scan
from purra.errors import PurraError
from purra.journal.events import event_value
from purra.kernel import Kernel
from purra.limits import READ_PAGE
from purra.runs import keys
from purra.runs.presence import gone

__all__ = ["Answers"]

RUNS: Final = 200
"""Newest runs on the page."""


class Answers:
    """Answers of one kernel that can look."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._table: Mapping[str, Callable[[Mapping[str, str]], Awaitable[Any]]] = {
            "runs": self._runs,
            "run": self._run,
            "events": self._events,
            "kernels": self._kernels,
        }

    async def ask(self, path: str, query: Mapping[str, str]) -> Any:
        """The answer for a path. Raises `PurraError(not_found | run_not_found)`."""
        if path not in self._table:
            raise PurraError("not_found", f"nothing at {path}")
        return await self._table[path](query)

    async def _runs(self, _: Mapping[str, str]) -> Any:
        infos = await self._kernel.runs.list(RUNS)
        return [asdict(info) for info in reversed(infos)]

    async def _run(self, query: Mapping[str, str]) -> Any:
        from purra_hosts.app.timeline import summary_value

        run = query.get("run", "")
        info = await self._kernel.runs.show(run)
        return summary_value(info, await self._kernel.runs.state(run))

    async def _events(self, query: Mapping[str, str]) -> Any:
        after = query.get("after", "0")
        if not after.isdecimal():
            raise PurraError("invalid_argument", "a cursor is a whole number from 0", where="after")
        found = []
        source = self._kernel.runs.events(query.get("run", ""), int(after), follow=False)
        async for event in source:
            found.append(event_value(event))
            if len(found) == READ_PAGE:
                break
        return found

    async def _kernels(self, _: Mapping[str, str]) -> Any:
        page = await self._kernel.store.scan(Scan(keys.kernel(""), limit=READ_PAGE))
        return [
            {
                "kernel": document.key.removeprefix(keys.kernel("")),
                "lapsed": document.lapsed,
                "gone": gone(document.value.get("process")),
                **document.value,
            }
            for document in page.documents
            if document.key != keys.kernel(self._kernel.id)
        ]
