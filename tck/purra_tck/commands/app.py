"""The command line `purra tck`, which its commands add themselves to."""

from __future__ import annotations

from typing import Final

import typer

__all__ = ["app"]

app: Final = typer.Typer(no_args_is_help=True, help="Prove a plugin, a host or a store.")
