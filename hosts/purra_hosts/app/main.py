"""The command `purra`: its commands, and how every error leaves it.

Each command is a file in `commands`; other distributions add theirs through the entry point group
`purra.commands`, whose names are commands and whose values are typer apps. Only what is called is
loaded; all of it for the list of commands. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from purra.errors import PurraError
from purra_hosts.app import exits, usage
from purra_hosts.app.printing import print_error, tame_streams

__all__ = ["build", "main"]

GROUP: Final = "purra.commands"
DISTRIBUTION: Final = "purra-kernel"
DEBUG: Final = "--debug"

_SINGLE: Final = {
    "run": "purra_hosts.app.commands.run:run",
    "chat": "purra_hosts.app.commands.chat:chat",
    "inspect": "purra_hosts.app.commands.inspect:inspect",
    "worker": "purra_hosts.app.commands.worker:worker",
    "schema": "purra_hosts.app.commands.manifest:schema",
    "init": "purra_hosts.app.commands.init:init",
    "doctor": "purra_hosts.app.commands.doctor:doctor",
}
_READY: Final = frozenset({"inspect", "init", "doctor"})
"""Commands that need no argument, and so do something without one."""
_GROUPS: Final = {
    "runs": "purra_hosts.app.commands.runs:app",
    "approvals": "purra_hosts.app.commands.approvals:app",
    "plugins": "purra_hosts.app.commands.plugins:app",
    "manifest": "purra_hosts.app.commands.manifest:app",
}


_OURS: Final = frozenset({*_SINGLE, *_GROUPS})


def build(arguments: Sequence[str]) -> typer.Typer:
    """The app for these arguments: with the one command that they call, else with all."""
    app = typer.Typer(
        name="purra",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Run agents whose adapters are plugins in supervised subprocesses.",
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), "")
    foreign = {} if called in _OURS else _foreign()
    known = called in _OURS or called in foreign
    for name, where in _SINGLE.items():
        if name == called or not known:
            app.command(name, no_args_is_help=name not in _READY)(_load(where))
    for name, where in _GROUPS.items():
        if name == called or not known:
            app.add_typer(_load(where), name=name)
    for name, entry in foreign.items():
        if name == called:
            app.add_typer(entry.load(), name=name)
        elif not known:
            app.add_typer(_listed(entry), name=name)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"purra {importlib.metadata.version(DISTRIBUTION)}")
        raise typer.Exit


def _root(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the trace of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show which this is."),
    ] = False,
) -> None:
    """Run agents whose adapters are plugins in supervised subprocesses."""


def _foreign() -> dict[str, importlib.metadata.EntryPoint]:
    found = importlib.metadata.entry_points(group=GROUP)
    return {entry.name: entry for entry in found if entry.name not in _OURS}


def _listed(entry: importlib.metadata.EntryPoint) -> typer.Typer:
    """Another distribution's command in the list; one that is broken must not break the list."""
    try:
        app = entry.load()
    except Exception as error:  # whatever its import raises
        app = None
        fault = f"cannot be loaded: {type(error).__name__}: {error}"
    else:
        fault = "is no typer app"
    if isinstance(app, typer.Typer):
        return app
    owner = entry.dist.name if entry.dist else "another package"
    return typer.Typer(name=entry.name, help=f"From {owner}: {fault}.")


def _load(where: str):  # type: ignore[no-untyped-def]  # a typer app or a command function
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and exits with its code (see `exits`); errors are one line on stderr.

    `--debug`, wherever it stands, lets the error out instead.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    given = [argument for argument in given if argument != DEBUG]
    tame_streams()
    try:
        code = build(given)(args=given, prog_name="purra", standalone_mode=False)
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:  # each way out is one line
        told = _told(list(_causes(error)), debug=debug)
        if told is None:
            raise
        sys.exit(told)
    sys.exit(code if isinstance(code, int) else exits.COMPLETED)


def _told(causes: Sequence[BaseException], *, debug: bool) -> int | None:
    """The exit code for what ended a command, after a line about it; None to let it out."""
    first = causes[0]
    if all(isinstance(cause, (KeyboardInterrupt, typer.Abort)) for cause in causes):
        return exits.CANCELED
    if isinstance(first, usage.UsageError):
        return usage.told(first)
    if debug or not all(isinstance(cause, Exception) for cause in causes):
        return None
    for cause in causes:
        if isinstance(cause, PurraError):
            print_error(cause)
            return exits.of_error(cause)
    if all(isinstance(cause, BrokenPipeError) for cause in causes):
        # Whoever reads has gone, as `head` does. The interpreter must not find that out once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    print_error(
        PurraError(
            "internal_error",
            f"{type(first).__name__}: {first}",
            where="purra",
            hint=f"not your fault: please report it, with the trace that {DEBUG} shows",
        )
    )
    return exits.FAILED


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What task groups wrapped."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error
