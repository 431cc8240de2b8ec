"""What it means for a run when the store refuses a commit of its owner."""

from __future__ import annotations

from purra.errors import PurraError, StoreError
from purra.runs import keys

__all__ = ["ownership"]


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
