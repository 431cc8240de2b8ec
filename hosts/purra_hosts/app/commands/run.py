"""`purra run`: one run from a prompt to its result, shown as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from purra_hosts.app.options import Json, Logs, Params, StateFolder, params_of

__all__ = ["run"]


def run(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The host manifest.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the agent is asked.")],
    session: Annotated[str, typer.Option(help="Runs of one session follow one another.")] = "",
    param: Params = None,
    state: StateFolder = None,
    logs: Logs = False,
    json: Json = False,
) -> None:
    """Run the agent of MANIFEST on PROMPT.

    Ctrl-C cancels the run, a second one leaves at once. Exit: 0 completed, 1 failed, 2 usage, 3
    blocked or waiting, 4 set-up, 130 canceled.
    """
    from purra_hosts.app.commands.following import follow_run

    follow_run(
        manifest,
        params_of(param),
        state,
        json=json,
        logs=logs,
        begin=lambda kernel: kernel.submit(prompt, session=session),
    )
