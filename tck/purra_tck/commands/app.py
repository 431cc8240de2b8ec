"""The command line `purra tck`, which its commands add themselves to."""

from __future__ import annotations

from typing import Any, Final

import typer
import typer.core

from purra.errors import PurraError
from purra_hosts.app.printing import print_error

__all__ = ["app"]

NOTHING_JUDGED: Final = 2
"""Usage, configuration, no such subject: the exit code for everything that comes before a rule."""


class _Group(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PurraError as error:
            # Not the exit codes of runs: 4 means a stale waiver here.
            print_error(error)
            raise typer.Exit(NOTHING_JUDGED) from None


app: Final = typer.Typer(
    cls=_Group, no_args_is_help=True, help="Prove a plugin, a host or a store."
)
