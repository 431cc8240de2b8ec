"""What a run has found, in words: which goals are met, tables, JSON, and the page of figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.bench.measure import Goal, Rounds, Section, aligned, cells

__all__ = ["document", "goal_lines", "tables", "verdict", "write_page"]

BEGIN: Final = "<!-- figures: written by `python -m tests.bench --page` -->"
END: Final = "<!-- end of the figures -->"
LINE_CHARS: Final = 100
"""Longest line of a page, tables apart."""


def verdict(goal: Goal, found: float | None) -> str:
    """`met 1.10x of 1.25x`, or by what ratio it is not."""
    if found is None:
        return "not taken"
    unit = "x" if goal.over else ""
    if found <= goal.most:
        return f"met {_short(found)}{unit} of {_short(goal.most)}{unit}"
    by = found / goal.most
    return f"not met by {_short(by)}x ({_short(found)}{unit} of {_short(goal.most)}{unit})"


def _short(number: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 0.1 else 4
    return f"{number:.{digits}f}"


def goal_lines(sections: Sequence[Section], goals: Iterable[Goal], rounds: Rounds) -> list[str]:
    """A line for each goal of the sections that were taken."""
    rows = _goal_rows(sections, goals, rounds)
    return aligned(["goal", "about", "verdict"], rows, right=False)


def _goal_rows(
    sections: Sequence[Section], goals: Iterable[Goal], rounds: Rounds
) -> list[Sequence[str]]:
    by_key = {section.key: section for section in sections}
    return [
        (goal.key, goal.text, verdict(goal, rounds.judge(by_key, goal)))
        for goal in goals
        if goal.section in by_key
    ]


def tables(sections: Iterable[Section], rounds: Rounds) -> list[str]:
    """All tables, an empty line before each."""
    lines: list[str] = []
    for section in sections:
        lines += ["", *aligned(*cells(section, rounds))]
    return lines


def document(
    sections: Sequence[Section], goals: Iterable[Goal], rounds: Rounds, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that was taken, as a JSON value."""
    by_key = {section.key: section for section in sections}
    return {
        "environment": dict(about),
        "rounds": rounds.count,
        "sections": {
            key: {
                contender: {
                    figure: {"median": median(values), "rounds": values}
                    for figure, values in figures.items()
                }
                for contender, figures in contenders.items()
            }
            for key, contenders in rounds.taken.items()
        },
        "goals": {
            goal.key: {
                "about": goal.text,
                "found": found,
                "most": goal.most,
                "met": None if found is None else found <= goal.most,
            }
            for goal in goals
            if goal.section in by_key
            for found in [rounds.judge(by_key, goal)]
        },
    }


def write_page(
    path: Path,
    sections: Sequence[Section],
    goals: Iterable[Goal],
    rounds: Rounds,
    about: Mapping[str, Any],
) -> None:
    """Puts the figures between the two markers of a page. Raises `ValueError` if it has none."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no place for figures: `{BEGIN}` and `{END}`")
    taken = (
        f"Medians of interleaved rounds: {rounds.count}. Python {about['python']}, "
        f"{about['system']}, {about['cores']} processors, load {about['load']} when it began, "
        f"{about['taken']}."
    )
    lines = [
        *textwrap.wrap(taken, LINE_CHARS),
        "",
        *_markdown(["goal", "about", "verdict"], _goal_rows(sections, goals, rounds)),
    ]
    for section in sections:
        head, rows = cells(section, rounds)
        lines += ["", f"### {section.title}", "", *_markdown(["", *head[1:]], rows)]
    path.write_text("\n".join([before + begin, "", *lines, "", end + after]))


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
