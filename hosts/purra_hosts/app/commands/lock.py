"""`purra plugins lock`: these plugins and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from purra_hosts.app.options import Json, Params, params_of
from purra_hosts.app.printing import json_line

__all__ = ["lock"]


def lock(
    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="The host manifest to change.")
    ],
    param: Params = None,
    json: Json = False,
) -> None:
    """Write into MANIFEST the digest of each plugin's manifest as it is installed now.

    From then on a plugin that offers or wants anything else is refused (`plugin_drift`), until it
    is locked anew. Starts nothing.
    """
    from purra.manifest.host import Caller, load_host
    from purra_hosts.app.environments import find_plugins
    from purra_hosts.app.locking import lock as found_by
    from purra_hosts.app.locking import locked_text
    from purra_hosts.app.toml_text import replace_file

    host = load_host(manifest, Caller(params=params_of(param)))
    locked = found_by(host, find_plugins(host.folders))
    text = manifest.read_text(encoding="utf-8")
    made = locked_text(host.path, text, {found.plugin: found.digest for found in locked})
    if made != text:
        replace_file(manifest, made)
    for found in locked:
        change = "as before" if found.before == found.digest else "was another one"
        change = change if found.before else "new"
        if json:
            told = {"plugin": found.plugin, "version": found.version, "digest": found.digest}
            json_line({**told, "before": found.before or None})
        else:
            typer.echo(f"{found.plugin} {found.version}: {found.digest[:19]}…, {change}")
