"""Is what many clients saw of one run what some order of their operations would have given?

Numbers and revisions name that order themselves: the store gave each append a number and each put a
revision. What is left to check is that every answer fits it, and that it fits time: an operation
that had ended before another began must come before it. That makes the check linear, where the
general question is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Event", "faults"]


@dataclass(frozen=True, slots=True)
class Event:
    """One operation of one client. Times in seconds, of one clock.

    `kind`: `wrote` (got `place`, wrote `value`), `read` (saw the first `place`, the last of them
    being `value`), or `refused` (was told that `place` is the last). A place is the number of a
    record, or the revision of a document.
    """

    kind: Literal["wrote", "read", "refused"]
    client: str
    sent_s: float
    got_s: float
    place: int
    value: Any = None


def faults(events: Iterable[Event], last: Sequence[Any] | None = None) -> list[str]:
    """What does not fit any order; [] = linearizable. `last`: all values at the end, in order."""
    known = list(events)
    wrote: dict[int, Event] = {}
    wrong: list[str] = []
    for event in known:
        if event.kind == "wrote" and wrote.setdefault(event.place, event) is not event:
            wrong.append(
                f"place {event.place} was given twice, to {wrote[event.place].client} and "
                f"{event.client}"
            )
    wrong += [f"place {n} was given to nobody" for n in range(1, len(wrote) + 1) if n not in wrote]
    if wrong:
        return wrong
    order = [wrote[place] for place in sorted(wrote)]
    wrong += _against_time(order)
    latest_s = _running_latest(order)
    done = sorted((event.got_s, event.place) for event in order)
    for event in known:
        if event.kind != "wrote":
            wrong += _view(event, order, latest_s, done)
    if last is not None and list(last) != [event.value for event in order]:
        at = next((n for n, (a, e) in enumerate(zip(last, order, strict=False), 1)
                   if a != e.value), min(len(last), len(order)) + 1)  # fmt: skip
        wrong.append(f"at the end place {at} holds something else than was acknowledged for it")
    return wrong


def _against_time(order: Sequence[Event]) -> list[str]:
    """Later places that had ended before an earlier one began."""
    wrong: list[str] = []
    latest: Event | None = None
    for event in order:
        if latest is not None and event.got_s < latest.sent_s:
            wrong.append(
                f"{event.client} had place {event.place} before {latest.client} asked for "
                f"place {latest.place}"
            )
        if latest is None or event.sent_s > latest.sent_s:
            latest = event
    return wrong


def _running_latest(order: Sequence[Event]) -> list[float]:
    """By place: the time before which nobody can have seen all up to it."""
    latest_s: list[float] = [float("-inf")]
    for event in order:
        latest_s.append(max(latest_s[-1], event.sent_s))
    return latest_s


def _view(
    event: Event, order: Sequence[Event], latest_s: Sequence[float], done: Sequence[Any]
) -> list[str]:
    """What is wrong with what one client was shown."""
    if event.place > len(order):
        return [f"{event.client} saw place {event.place} of {len(order)}"]
    wrong: list[str] = []
    if latest_s[event.place] > event.got_s:
        wrong.append(f"{event.client} saw place {event.place} before it was written")
    due = max((place for got_s, place in done if got_s < event.sent_s), default=0)
    if event.place < due:
        wrong.append(
            f"{event.client} saw place {event.place} as the last after place {due} was acknowledged"
        )
    if event.kind == "read" and event.place and event.value != order[event.place - 1].value:
        wrong.append(
            f"{event.client} saw {event.value!r} at place {event.place}, where "
            f"{order[event.place - 1].value!r} was acknowledged"
        )
    return wrong
