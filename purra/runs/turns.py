"""Runs of one session are serial (invariant 13): one document says whose turn it is.

`{"run": the run whose turn it is or "", "queue": runs behind it, oldest first}`. A run joins in the
commit that creates it and leaves in the commit that ends it, handing the turn to the next; so the
turn can neither be lost nor held by two. Pure: the caller commits the ops and deals with conflicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from purra.contracts.store import Document, Put
from purra.runs import keys

__all__ = ["EMPTY", "holds", "join", "leave"]

EMPTY: Mapping[str, Any] = {"run": "", "queue": []}


def _now(document: Document | None) -> tuple[Mapping[str, Any], int]:
    return (document.value, document.revision) if document else (EMPTY, 0)


def holds(document: Document | None, run: str) -> bool:
    """Whether it is the run's turn."""
    return document is not None and document.value["run"] == run


def free(document: Document | None) -> bool:
    """Whether nobody has the turn."""
    return document is None or not document.value["run"]


def join(document: Document | None, session: str, run: str) -> Put:
    """Takes the turn if it is free, else a place at the end of the queue."""
    turn, revision = _now(document)
    if turn["run"]:
        value = {"run": turn["run"], "queue": [*turn["queue"], run]}
    else:
        value = {"run": run, "queue": list(turn["queue"])}
    return Put(keys.turn(session), value, revision)


def leave(document: Document | None, session: str, run: str) -> Put:
    """Hands the turn on, or leaves the queue."""
    turn, revision = _now(document)
    queue = [waiting for waiting in turn["queue"] if waiting != run]
    if turn["run"] != run:
        value = {"run": turn["run"], "queue": queue}
    else:
        value = {"run": queue[0] if queue else "", "queue": queue[1:]}
    return Put(keys.turn(session), value, revision)
