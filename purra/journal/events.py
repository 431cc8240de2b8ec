"""What can happen in a run: the envelope and the table of kinds. Protocol: old journals fold for
ever.

`KINDS` is the only list. A kind says which fields its data has and how it ends what it ends.
Adding an optional field is a compatible change; anything else is a new kind (EVT-07). A snapshot
test holds the table, golden journals hold the meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

__all__ = ["KINDS", "ROOT", "TERMINAL", "Event", "Fact", "Kind", "event_from_value", "event_value"]

ROOT: Final = "root"
"""The thread of a run's own agent; delegated agents and compactors have threads of their own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`fields` are always in the data, `optional` may be; `terminal` seals the run."""

    fields: frozenset[str]
    optional: frozenset[str]
    terminal: bool
    meaning: str


def _kind(meaning: str, fields: str, optional: str = "", *, terminal: bool = False) -> Kind:
    return Kind(frozenset(fields.split()), frozenset(optional.split()), terminal, meaning)


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "run.started": _kind(
            "the run exists: what was asked, of which agent, within which limits",
            "snapshot agent fingerprint components session prompt limits deadline_ms",
            "binding approvals",
        ),
        "run.owned": _kind("an owner took the run; earlier terms' effects stop", "term kernel"),
        "context.assembled": _kind(
            "the context providers answered; bodies are in the blob `bundle`",
            "blocks bundle history window output_limit estimate",
        ),
        "context.failed": _kind("the context could not be assembled", "code message", "provider"),
        "context.compacted": _kind("older messages were summarised", "removed blob estimate"),
        "stream.opened": _kind(
            "the receipt of an attempt, committed before the request (MOD-15)",
            "attempt round messages tools max_tokens source input_estimate",
        ),
        "model.round": _kind(
            "an attempt ended well: its text, its calls, once",
            "attempt round text calls finish usage",
        ),
        "attempt.failed": _kind(
            "an attempt ended badly; nothing of it is kept",
            "attempt code message origin visible usage",
            "retry_after_ms",
        ),
        "attempt.superseded": _kind("an attempt was given up; its drafts are void", "attempt code"),
        "output.promoted": _kind("what a round's text was: commentary, final, none", "round as"),
        "tool.batch.admitted": _kind("every call of a round may run", "round calls serial"),
        "tool.batch.refused": _kind("no call of a round runs", "round code"),
        "tool.call.claimed": _kind("a call is about to be dispatched", "call key term"),
        "tool.call.completed": _kind(
            "a call's one result",
            "call name value is_error code effect_state",
            "step planning events artifacts display blob bytes",
        ),
        "approval.requested": _kind("a call waits for a person", "call digest expires_ms"),
        "approval.decided": _kind(
            "a person decided on a call", "call decision by", "arguments digest text"
        ),
        "approval.expired": _kind("nobody decided in time", "call"),
        "inbox.taken": _kind("the owner took inbox entry `entry` in", "entry body"),
        "timer.fired": _kind("a wait is over", "timer"),
        "recovery.decided": _kind(
            "the ledger decided on a failure",
            "cause action allowed used budget",
            "attempt not_before_ms",
        ),
        "budget.reserved": _kind("an allowance was set aside", "budget amount"),
        "budget.charged": _kind("an allowance was used", "budget amount"),
        "run.todos_updated": _kind("the agent's task list changed", "todos"),
        "run.blocked": _kind("a person must resolve something first", "code message calls"),
        "run.reconciled": _kind(
            "a person proved what became of an unknown effect", "call effect_state evidence by"
        ),
        "plugin.started": _kind("a plugin instance became ready", "plugin generation", "pid"),
        "plugin.stopped": _kind("a plugin instance ended", "plugin generation", "reason"),
        "plugin.denied": _kind(
            "a plugin asked for what it was not granted",
            "plugin generation grant",
            "declared count",
        ),
        "run.completed": _kind("the answer is final", "text usage effects", "step", terminal=True),
        "run.failed": _kind(
            "the run ended without an answer", "error usage effects", terminal=True
        ),
        "run.canceled": _kind("somebody ended the run", "error usage effects", terminal=True),
    }
)
"""Every kind of event, by name."""

TERMINAL: Final = frozenset(name for name, kind in KINDS.items() if kind.terminal)
"""Kinds that end and seal a run; exactly one stands in each ended journal, last (RUN-09)."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and has no place in a journal yet."""

    kind: str
    data: Mapping[str, Any]
    parent: int | None = None
    thread: str = ROOT


@dataclass(frozen=True, slots=True)
class Event:
    """A fact in its place. `seq` is dense from 1; `at_ms` is the owner's wall clock, for people."""

    seq: int
    run: str
    thread: str
    kind: str
    at_ms: int
    parent: int | None
    data: Mapping[str, Any]


def event_value(event: Event) -> Mapping[str, Any]:
    """The strict value that stands for an event in the store and in CLI JSON, frozen as its data is
    (`purra.values`), so that a store need not look at it again."""
    return MappingProxyType(
        {
            "seq": event.seq,
            "run": event.run,
            "thread": event.thread,
            "kind": event.kind,
            "at_ms": event.at_ms,
            "parent": event.parent,
            "data": event.data,
        }
    )


def event_from_value(value: Mapping[str, Any]) -> Event:
    """The event that a stored record stands for; the store is trusted to give back what it took."""
    return Event(
        value["seq"],
        value["run"],
        value["thread"],
        value["kind"],
        value["at_ms"],
        value["parent"],
        value["data"],
    )
