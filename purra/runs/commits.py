"""One way to write to the store: again with the same key, while the store's host has a bad time.

A commit with a key may be sent again: the store gives the first receipt back (RUN-06). So an answer
that got lost with a crashed store process is not a lost run. Only failures of the host or instance
are sent again; what the store itself says is final.
"""

from __future__ import annotations

import anyio

from purra.contracts.store import Commit, Receipt, Store
from purra.errors import AdapterError, PurraError, StoreError
from purra.limits import STORE_PATIENCE_S, STORE_RETRY_S
from purra.runs import keys

__all__ = ["commit_surely", "ownership"]


async def commit_surely(store: Store, commit: Commit) -> Receipt:
    """The receipt of `commit`, which must have a key.

    Raises `StoreError` as the store says, or the last `AdapterError` after `STORE_PATIENCE_S`.
    """
    give_up_at = anyio.current_time() + STORE_PATIENCE_S
    while True:
        try:
            return await store.commit(commit)
        except AdapterError as error:
            transient = error.origin in ("host", "instance") and commit.key is not None
            if not transient or anyio.current_time() + STORE_RETRY_S > give_up_at:
                raise
        await anyio.sleep(STORE_RETRY_S)


def ownership(error: StoreError, run: str) -> PurraError:
    """What a refused commit of a run's owner means: somebody else owns it, or something else.

    Everything that an owner commits is fenced by the lease and expects heads that only the owner
    moves, so a conflict on one of those says that there is another owner.
    """
    key, stream = error.detail.get("key"), error.detail.get("stream")
    own = key == keys.lease(run) or stream in (keys.journal(run), keys.output(run))
    if own and error.code in ("conflict", "lapsed", "sealed"):
        return PurraError(
            "ownership_lost",
            f"another owner has the run ({error.code} on {key or stream})",
            where=f"run {run}",
        )
    return error
