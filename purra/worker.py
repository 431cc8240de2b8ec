"""Takes up every run that is due: unowned and woken, waiting its turn, or with its owner gone.

Any number of workers may look at one store: a run is taken by a commit that only one of them can
win.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from purra.contracts.store import Store
from purra.errors import AdapterError, PurraError, StoreError
from purra.kernel import Kernel
from purra.limits import STORE_RETRY_S, WORKER_BATCH, WORKER_LOOK_S, WORKER_RETRY_S
from purra.runs import keys
from purra.runs.reader import closed_watch

__all__ = ["Told", "work"]

Told = Callable[[str, PurraError | None], None]
"""Takes a run and None, or why it cannot be taken up here."""


async def work(kernel: Kernel, told: Told) -> None:
    """Works until cancelled. A run that cannot be taken up is tried again after
    `WORKER_RETRY_S`."""
    refused: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        bell = _Bell()
        tasks.start_soon(_hear, kernel.store, bell)
        while True:
            now = anyio.current_time()
            for run in await kernel.runs.due(WORKER_BATCH):
                if refused.get(run, 0.0) <= now and not await _take(kernel, run, told):
                    refused[run] = now + WORKER_RETRY_S
            await bell.wait(WORKER_LOOK_S)


async def _take(kernel: Kernel, run: str, told: Told) -> bool:
    try:
        await kernel.resume(run)
    except PurraError as error:
        if error.code != "ownership_lost":  # else somebody else was faster
            told(run, error)
        return False
    told(run, None)
    return True


async def _hear(store: Store, bell: _Bell) -> None:
    """Rings when something may have become due; what is missed is found at the next look."""
    while True:
        try:
            async with closed_watch(store, keys.wake("")) as wake_ups:
                async for _ in wake_ups:
                    bell.ring()
        except (AdapterError, StoreError):
            await anyio.sleep(STORE_RETRY_S)


class _Bell:
    def __init__(self) -> None:
        self._rung = anyio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, longest_s: float) -> None:
        with anyio.move_on_after(longest_s):
            await self._rung.wait()
        self._rung = anyio.Event()
