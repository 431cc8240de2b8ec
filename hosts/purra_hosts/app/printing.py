"""How the command line prints: JSON lines for programs, tables and colour for people, one-line
errors.

Answers go to stdout, everything about the work to stderr. Colour and live text only on a terminal;
the library decides that, and honours NO_COLOR. JSON is UTF-8 whatever the locale says; text that
the locale cannot show is escaped, so that no answer ends a command.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from purra.errors import PurraError
from purra.values import thaw

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "console",
    "json_line",
    "json_text",
    "moment",
    "print_error",
    "print_table",
    "tame_streams",
]

_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})
"""JSON takes these as they are, but some readers of lines take them for the end of one."""


def tame_streams() -> None:
    """From now on a character that stdout or stderr cannot encode is escaped, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def console(*, stderr: bool = False) -> Console:
    """A console of the terminal library, loaded when something is printed for people."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def json_line(value: Any) -> None:
    """One strict JSON object on a line of its own, at once."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_text(value))
    sys.stdout.buffer.flush()


def json_text(value: Any) -> bytes:
    """The line of `json_line`, with its end."""
    text = json.dumps(thaw(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_LINE_ENDS).encode() + b"\n"


def moment(ms: int) -> str:
    """A point in time, given in ms since 1970, as people read it; UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines without titles on a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write("\t".join(cell.replace("\n", " ") for cell in row) + "\n")
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console().print(table)


def print_error(error: PurraError) -> None:
    """What, where, what to do: one line on stderr. Only the word `error` has a colour."""
    out = console(stderr=True)
    out.print("[bold red]error[/]", end=" ")
    out.print(str(error), markup=False)
