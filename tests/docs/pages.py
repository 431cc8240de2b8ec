"""The project's own pages, and the fenced snippets in them.

The first word of a fence's info string is the language, all others are tags for the runner: a word,
or `name=value` (see `tests/docs/bench.py`). A fence without a known language is a mistake of the
page, so that no example escapes by a misspelt word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Page", "Snippet", "pages"]

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"(`{3,})(.*)")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One fenced block. `line`: of its first line of text, counted from 1."""

    page: str
    line: int
    language: str
    tags: Mapping[str, str]
    text: str

    @property
    def place(self) -> str:
        """How failures name it."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file; `name` is its path from the root."""

    name: str
    text: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return ROOT / self.name

    def snippets(self) -> Iterator[Snippet]:
        """Its fenced blocks, in order. Raises `ValueError` for one that is never closed."""
        lines = iter(enumerate(self.text.split("\n"), 1))
        for number, line in lines:
            fence = _FENCE.match(line)
            if fence is None:
                continue
            language, *words = shlex.split(fence[2]) or [""]
            body = []
            for _, inner in lines:
                if inner.startswith(fence[1]):
                    break
                body.append(inner + "\n")
            else:
                raise ValueError(f"{self.name}:{number}: this fence is never closed")
            tags = dict(word.partition("=")[::2] for word in words)
            yield Snippet(self.name, number + 1, language, tags, "".join(body))

    def prose(self) -> Iterator[tuple[int, str]]:
        """Its lines outside of fences, with their numbers."""
        inside = ""
        for number, line in enumerate(self.text.split("\n"), 1):
            fence = _FENCE.match(line)
            if inside:
                inside = "" if line.startswith(inside) else inside
            elif fence:
                inside = fence[1]
            else:
                yield number, line


def pages() -> tuple[Page, ...]:
    """Every page at the root and in docs."""
    files = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(Page(str(file.relative_to(ROOT)), file.read_text()) for file in files)
