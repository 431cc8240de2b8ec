"""`purra plugins reload`: asks the kernels that run a plugin to replace it, and says what they did.

Nothing of the plugin is loaded here: the running kernels start the new generation, and go on with
the old one if it does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.commands.looking import with_store
from purra_hosts.app.options import Json, Params, StateFolder
from purra_hosts.app.printing import json_line

__all__ = ["reload"]

WAIT_S = 120.0
"""A start may take a minute, and reloads of one kernel wait for each other."""


def reload(
    plugin: Annotated[str, typer.Argument(metavar="PLUGIN", help="The plugin's id.")],
    manifest: Annotated[
        Path, typer.Option("--manifest", "-m", help="The host manifest that the kernels run.")
    ],
    wait: Annotated[float, typer.Option(help="Seconds to wait for each answer.")] = WAIT_S,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Replace a plugin in every running kernel of MANIFEST's store; runs lose no call.

    Exit 1 if one of them went on with the old version.
    """
    from purra.kernel import Kernel
    from purra.runs import kernels

    async def work(kernel: Kernel) -> int:
        running = [
            found
            for found in await kernels.kernels(kernel.store)
            if found.plugins is not None and plugin in found.plugins
        ]
        if not running:
            raise PurraError(
                "plugin_not_found",
                f"no running kernel has the plugin {plugin!r}",
                hint="the next one that starts takes what is installed then",
            )
        token = kernel.clock.token()
        for found in running:
            body = {"kind": "reload", "plugin": plugin}
            await kernels.ask(kernel.store, found.kernel, token, body)
        good = True
        for found in running:
            answer = await kernels.answer(kernel.store, found.kernel, token, wait)
            _print(found.kernel, plugin, answer, json=json)
            good = good and answer is not None and bool(answer["ok"])
        return exits.COMPLETED if good else exits.FAILED

    with_store(manifest, param, state, work)


def _print(kernel: str, plugin: str, answer: Mapping[str, Any] | None, *, json: bool) -> None:
    if json:
        json_line({"kernel": kernel, "plugin": plugin, "answer": answer})
    elif answer is None:
        typer.echo(f"kernel {kernel}: no answer")
    elif not answer["ok"]:
        typer.echo(f"kernel {kernel}: {answer['message']} [{answer['code']}]; the old one serves")
    else:
        now = f"{plugin} {answer['version']}, generation {answer['generation']}"
        new = f"; new offers: {', '.join(answer['changed'])}" if answer["changed"] else ""
        typer.echo(f"kernel {kernel}: {now}{new}")
