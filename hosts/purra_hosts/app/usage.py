"""What was typed wrongly, as an error like any other: one line of what, where and what to do."""

from __future__ import annotations

import difflib
from typing import Any, Final

import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.printing import print_error

__all__ = ["UsageError", "told"]

UsageError: Final[Any] = typer.BadParameter.__base__
"""The class of all of them: which package it is in differs with the library's version."""
_HELP: Final = "NoArgsIsHelpError"
"""Not an error: a command that needs arguments was given none, and has shown its help."""


def told(error: Any) -> int:
    """Prints the line; the exit code."""
    if type(error).__name__ == _HELP:
        if text := error.format_message():
            typer.echo(text)
        return exits.USAGE
    place = error.ctx.command_path if error.ctx is not None else "purra"
    what = _what(error)
    print_error(PurraError("invalid_argument", what, where=place, hint=_hint(error, place)))
    return exits.USAGE


def _what(error: Any) -> str:
    """The library's own message, without its candidates and its capitals."""
    text = error.message if hasattr(error, "option_name") else error.format_message()
    text = text.partition(" Did you mean")[0].replace("Value error, ", "").strip().rstrip(".")
    return str(text[:1].lower() + text[1:])


def _hint(error: Any, place: str) -> str:
    group: Any = getattr(error.ctx, "command", None)
    option = getattr(error, "option_name", "")
    if option:
        near = difflib.get_close_matches(option, getattr(error, "possibilities", None) or (), 1)
        if near:
            return f"did you mean {near[0]}?"
    typed = error.message.partition("No such command '")[2].partition("'")[0]
    if typed and hasattr(group, "list_commands"):
        near = difflib.get_close_matches(typed, group.list_commands(error.ctx), 1)
        if near:
            return f"did you mean `{place} {near[0]}`?"
    return f"`{place} --help` shows how"
