"""One line of a file as a quote: `path:line  > text`, with the text exactly as it is in the file.

A quote is given only if it can be read back: `parse(quote(line))` is that line again. That leaves
out paths and texts with line breaks or other control characters (which would also drive a
terminal), and lines that the tool has cut.
"""

from __future__ import annotations

import re

from purra_plugin_offline.evidence import Line

__all__ = ["can_quote", "parse", "quote"]

_QUOTE = re.compile(r"(?P<path>.+?):(?P<line>[1-9]\d*)  > (?P<text>.*)", re.ASCII)
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls but the tab, line and paragraph separators, and marks that turn the text around."""


def quote(line: Line) -> str:
    """The quote of a line."""
    return f"{line.path}:{line.number}  > {line.text}"


def parse(text: str) -> tuple[str, int, str] | None:
    """Path, line number and text of a quote; None if `text` is none."""
    found = _QUOTE.fullmatch(text)
    return None if found is None else (found["path"], int(found["line"]), found["text"])


def can_quote(line: Line) -> bool:
    """Whether the line is whole and its quote can be read back."""
    if not line.whole or not line.text.strip() or _UNPRINTABLE.search(line.path + line.text):
        return False
    return parse(quote(line)) == (line.path, line.number, line.text)
