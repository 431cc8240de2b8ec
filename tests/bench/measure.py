"""Rounds, ratios and tables: how a figure is taken, whatever it is of.

A round runs every contender of every section once, one after the other, each with workers of its
own. What is said of a contender is the median over the rounds of its ratio to a base *inside* the
same round: a machine that is busy or slow for a while is so for both. Absolute figures are printed
to be read, and only ratios are compared with goals.
"""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

__all__ = [
    "Column",
    "Contender",
    "Goal",
    "Rounds",
    "Section",
    "aligned",
    "cells",
    "environment",
    "kib_of",
    "part",
    "percentile",
    "run_rounds",
]

Figures = Mapping[str, float]

STDERR: Final = 2
HANGS_S: Final = 120.0
"""Whatever takes so long will never end: better to say where it stands."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to be measured. `run` starts what it needs, measures, and ends it again; it is
    given the share of the usual counts that it shall do (1.0 = all).
    """

    name: str
    run: Callable[[float], Figures]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a section. `rate`: more is better. `compared`: with ratios to the bases."""

    figure: str
    title: str
    digits: int = 0
    rate: bool = False
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """Contenders that do the same, and what they are compared with.

    `bases`: the names of contenders that ratios are taken to, each with the word that stands over
    its column; the raw floor first, then the sketch.
    """

    key: str
    title: str
    columns: Sequence[Column]
    contenders: Sequence[Contender]
    bases: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Goal:
    """`of` costs at most `most` times what `over` does, in the same round; or, without `over`, the
    figure itself is at most that.
    """

    key: str
    text: str
    section: str
    figure: str
    of: str
    over: str
    most: float


class Rounds:
    """Figures by section, contender and figure, one per round."""

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, dict[str, list[float]]]] = {}
        self.count = 0

    def add(self, section: str, contender: str, figures: Figures) -> None:
        rows = self.taken.setdefault(section, {}).setdefault(contender, {})
        for name, value in figures.items():
            rows.setdefault(name, []).append(value)

    def values(self, section: str, contender: str, figure: str) -> list[float]:
        return self.taken.get(section, {}).get(contender, {}).get(figure, [])

    def cost(self, section: Section, figure: str, of: str, over: str) -> float | None:
        """How many times the cost of `over` that of `of` is; None if one of them was not taken."""
        rate = any(column.figure == figure and column.rate for column in section.columns)
        mine = self.values(section.key, of, figure)
        base = self.values(section.key, over, figure)
        pairs = [(m, b) for m, b in zip(mine, base, strict=False) if m > 0 and b > 0]
        return median((b / m if rate else m / b) for m, b in pairs) if pairs else None

    def judge(self, sections: Mapping[str, Section], goal: Goal) -> float | None:
        """The ratio, or the figure, that the goal is about; None if it was not taken."""
        if goal.over:
            return self.cost(sections[goal.section], goal.figure, goal.of, goal.over)
        values = self.values(goal.section, goal.of, goal.figure)
        return median(values) if values else None


def run_rounds(
    sections: Iterable[Section],
    count: int,
    tell: Callable[[str], None],
    *,
    budget_s: float = math.inf,
    share: float = 1.0,
) -> Rounds:
    """Takes `count` rounds, or fewer if another one would pass the budget."""
    rounds, began_s = Rounds(), time.perf_counter()
    sections = tuple(sections)
    for number in range(1, count + 1):
        round_s = time.perf_counter()
        parts = []
        for section in sections:
            part_s = time.perf_counter()
            for contender in section.contenders:
                gc.collect()
                faulthandler.dump_traceback_later(HANGS_S, exit=True, file=STDERR)
                rounds.add(section.key, contender.name, contender.run(share))
                faulthandler.cancel_dump_traceback_later()
            parts.append(f"{section.key} {time.perf_counter() - part_s:.1f}")
        rounds.count = number
        took_s = time.perf_counter() - round_s
        tell(f"round {number} of {count}: {took_s:.0f} s ({', '.join(parts)})")
        if number < count and time.perf_counter() - began_s + took_s > budget_s:
            tell(f"the budget of {budget_s:.0f} s ends the run here")
            break
    return rounds


def cells(section: Section, rounds: Rounds) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a section: medians, and beside each the cost against every base."""
    head = [section.title]
    for column in section.columns:
        head.append(column.title)
        if column.compared:
            head += [f"/ {word}" for word in section.bases.values()]
    rows = []
    for contender in section.contenders:
        row = [contender.name]
        for column in section.columns:
            values = rounds.values(section.key, contender.name, column.figure)
            row.append(f"{median(values):,.{column.digits}f}" if values else "-")
            if column.compared:
                row += [
                    _ratio(rounds.cost(section, column.figure, contender.name, base))
                    for base in section.bases
                ]
        rows.append(row)
    return head, rows


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], right: bool = True) -> list[str]:
    """A table as lines of text. `right`: where all but the first column stand."""
    everything = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    everything.insert(1, ["-" * width for width in widths])
    return [
        "  ".join(
            cell.rjust(width) if place and right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]


def _ratio(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:.2f}x"


def part(count: int, share: float) -> int:
    """That share of `count`, at least one."""
    return max(1, round(count * share))


def percentile(samples: Sequence[float], part: float) -> float:
    """The value that `part` of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def kib_of(pid: int, what: str = "Rss") -> float:
    """Resident memory of a process in KiB (`Rss`, or `Pss`)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return float(line.split()[1])
    raise ValueError(f"no {what} of {pid}")


def environment() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "taken": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
