"""Passages: paragraphs, list items, table rows and headings that hold terms, best first.

A term weighs the more the fewer lines hold it. A passage scores the weights of the distinct terms
in it, and again half of those that stand in one line together, since words that belong together
stand together; a long passage scores less, because it holds many words anyway. Equal scores keep
the order of path and line, so the answer is always the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import log2
from typing import NamedTuple

from purra_plugin_offline.evidence import Evidence, Line
from purra_plugin_offline.words import Term, held, search_pattern

__all__ = ["Passage", "passages"]

MAX_PASSAGE_LINES = 6
"""A longer paragraph is judged, and quoted, by the best of its parts."""
PLAIN_CHARS = 400
"""Up to this length a passage is not marked down."""
MANY = 1000
"""How often a term occurs at least, if a search for it was cut short."""
_HEADING = re.compile(r"#{1,6} ")
_OWN_UNIT = re.compile(r"\s*(\||[-*+] |\d+[.)] |#{1,6} )")
"""How lines begin that begin something new: table rows, list items, headings."""


class Passage(NamedTuple):
    """Lines that follow each other in one file."""

    lines: tuple[Line, ...]
    score: float

    @property
    def place(self) -> tuple[str, int]:
        """Path and number of the first line."""
        return self.lines[0].path, self.lines[0].number


class _Judge:
    """Scores lines by the terms in them."""

    def __init__(self, terms: tuple[Term, ...], evidence: Evidence) -> None:
        self.held = {key: held(terms, line.text) for key, line in evidence.found.items()}
        counts = {term: sum(term in some for some in self.held.values()) for term in terms}
        for term in terms:
            patterns = {search_pattern(term, regex=regex) for regex in (True, False)}
            if patterns & evidence.truncated:
                counts[term] += MANY
        self._weight = {term: 1 / log2(2 + count) for term, count in counts.items()}

    def score(self, lines: list[Line]) -> float:
        """Weights are summed in the order of the terms, so that rounding is always the same."""
        per_line = [self.held[line.path, line.number] for line in lines]
        together = frozenset[Term]().union(*per_line)
        densest = max(self._sum(one) for one in per_line)
        size = sum(len(line.text) for line in lines)
        return (self._sum(together) + densest / 2) / (1 + max(0, size - PLAIN_CHARS) / 1000)

    def _sum(self, some: frozenset[Term]) -> float:
        return sum(weight for term, weight in self._weight.items() if term in some)


def passages(terms: tuple[Term, ...], evidence: Evidence) -> list[Passage]:
    """All passages that hold a term, best first."""
    judge = _Judge(terms, evidence)
    units = _units(evidence.found)
    found = []
    for index, unit in enumerate(units):
        best = max(_parts(unit), key=judge.score)
        if not any(judge.held[line.path, line.number] for line in best):
            continue
        score = judge.score(best)
        if _is_heading(best[0]) and index + 1 < len(units) and _goes_on(best, units[index + 1]):
            best = best + units[index + 1][: MAX_PASSAGE_LINES - 1]
        found.append(Passage(tuple(best), score))
    return sorted(found, key=lambda passage: (-passage.score, passage.place))


def _units(found: Mapping[tuple[str, int], Line]) -> list[list[Line]]:
    """Lines without gaps and empty lines between them, cut where something new begins."""
    units: list[list[Line]] = []
    before: Line | None = None
    for key in sorted(found):
        line = found[key]
        if not line.text.strip():
            before = None
            continue
        follows = before is not None and before[:2] == (line.path, line.number - 1)
        begins = _OWN_UNIT.match(line.text) or (before is not None and _is_heading(before))
        if follows and not begins:
            units[-1].append(line)
        else:
            units.append([line])
        before = line
    return units


def _parts(unit: list[Line]) -> list[list[Line]]:
    starts = range(max(1, len(unit) - MAX_PASSAGE_LINES + 1))
    return [unit[start : start + MAX_PASSAGE_LINES] for start in starts]


def _is_heading(line: Line) -> bool:
    return bool(_HEADING.match(line.text)) and line.path.endswith((".md", ".markdown"))


def _goes_on(heading: list[Line], unit: list[Line]) -> bool:
    """Whether `unit` is what stands under the heading: next to it, or after one empty line."""
    last, first = heading[-1], unit[0]
    near = first.path == last.path and first.number - last.number <= 2
    return near and not _is_heading(first)
