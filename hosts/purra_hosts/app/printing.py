"""How the command line prints: JSON lines for programs, tables and colour for people, one-line
errors.

Answers go to stdout, everything about the work to stderr. Colour and live text only on a terminal;
the library decides that, and honours NO_COLOR.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from purra.errors import PurraError
from purra.values import thaw

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "json_line", "print_error", "print_table"]


def console(*, stderr: bool = False) -> Console:
    """A console of the terminal library, loaded when something is printed for people."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def json_line(value: Any) -> None:
    """One strict JSON object on a line of its own, at once."""
    text = json.dumps(thaw(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


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
