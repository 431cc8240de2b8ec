"""Options that several commands share, and what they are read into."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from purra.errors import PurraError

__all__ = [
    "DEFAULT_MANIFEST",
    "Json",
    "Logs",
    "Manifest",
    "Params",
    "StateFolder",
    "duration_ms",
    "params_of",
]

DEFAULT_MANIFEST = Path("purra.toml")
DIGITS = 6
"""Of a length of time: more days than there have been."""

Manifest = Annotated[
    Path, typer.Option("--manifest", "-m", help="The host manifest, whose store holds the runs.")
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="Value for a declared parameter."),
]
StateFolder = Annotated[
    Path | None, typer.Option("--state", help="The folder that {state} stands for.")
]
Logs = Annotated[bool, typer.Option("--logs", help="Show on stderr what plugins print and log.")]
Json = Annotated[bool, typer.Option("--json", help="Strict JSON, one object a line.")]


def params_of(pairs: list[str] | None) -> dict[str, str]:
    """`NAME=VALUE` pairs as a dict. Raises `PurraError(invalid_argument)`."""
    params: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            what, hint = f"{pair!r} is not NAME=VALUE", "as in --param root=docs"
            raise PurraError("invalid_argument", what, where="--param", hint=hint)
        params[name] = value
    return params


_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, where: str) -> int:
    """`30d`, `12h`, `90m` or `45s` in ms. Raises `PurraError(invalid_argument)`."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_MS or not number.isdecimal() or len(number) > DIGITS:
        what = f"{text!r} is no length of time"
        raise PurraError("invalid_argument", what, where=where, hint="as 30d, 12h, 90m or 45s")
    return int(number) * _UNITS_MS[unit]
