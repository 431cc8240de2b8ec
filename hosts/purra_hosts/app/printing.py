"""How the command line prints: JSON lines for programs, tables and colour for people, one-line
errors.

Answers go to stdout, everything about the work to stderr. Colour and live text only on a terminal;
the library decides that, and honours NO_COLOR. JSON is UTF-8 whatever the locale says; text that
the locale cannot show is escaped, so that no answer ends a command.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from purra.errors import PurraError
from purra.values import thaw
from purra_hosts.app.advice import advised

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "console",
    "harmless",
    "json_line",
    "json_text",
    "moment",
    "print_error",
    "print_table",
    "tame_streams",
]

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
GAP = 2
"""Cells between two columns of a table."""
LAST_CELLS = 20
"""Least width of a table's last column, however narrow the terminal."""
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


def harmless(text: str) -> str:
    """`text` without control characters: what a model or a tool wrote must not steer a terminal.
    Tabs and ends of lines stay.
    """
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines without titles on a pipe.

    Nothing that may be copied is cut: only the last cell ends where the terminal does.
    """
    cells = [[harmless(cell.replace("\n", " ").replace("\t", " ")) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            sys.stdout.write("\t".join(row) + "\n")
        return
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    out = console()
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    last = max(out.width - sum(widths[:-1]) - GAP * (len(widths) - 1), LAST_CELLS)
    for row in (list(titles), *cells):
        if cell_len(row[-1]) > last:
            row[-1] = set_cell_size(row[-1], last - 1).rstrip() + "…"
        padded = [set_cell_size(cell, width + GAP) for cell, width in zip(row, widths, strict=True)]
        style = "" if row in cells else "bold"
        out.print(Text("".join([*padded[:-1], row[-1]]).rstrip(), style=style))


def print_error(error: PurraError) -> None:
    """What, where, what to do: one line on stderr. Only the word `error` has a colour."""
    out = console(stderr=True)
    out.print("[bold red]error[/]", end=" ")
    out.print(harmless(" ".join(advised(error).splitlines())), markup=False)
