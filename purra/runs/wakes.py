"""When a run that nobody owns must be taken up: one document per run, due when it has lapsed.

Whoever puts something in the inbox of an unowned run, gives a run up, or hands a session's turn
on, says when the run is due; a worker finds due runs at a cost that does not depend on the others
(STO-018). The document is a hint: what is to be done stands in the journal and the inbox, so a
wake too many costs a look, and the taker deletes it in the commit that takes the run.
"""

from __future__ import annotations

from typing import Final

from purra.contracts.store import Delete, Document, Put
from purra.runs import keys

__all__ = ["NOW_MS", "due", "taken"]

NOW_MS: Final = 1
"""The shortest life that a document can have: due at once."""


def due(wake: Document | None, run: str, in_ms: int = NOW_MS) -> Put:
    """The op that makes `run` due in `in_ms`, by the store's clock, whatever was said before."""
    return Put(keys.wake(run), {"run": run}, wake.revision if wake else 0, max(in_ms, NOW_MS))


def taken(wake: Document | None) -> tuple[Delete, ...]:
    """The op that says that somebody has taken the run, if there is anything to say."""
    return (Delete(wake.key, wake.revision),) if wake else ()
