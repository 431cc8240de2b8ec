"""`purra manifest` and `purra schema`: is this file right, and what may stand in it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from purra.errors import PurraError
from purra_hosts.app.options import Json, Params, StateFolder, params_of
from purra_hosts.app.printing import json_line

__all__ = ["app", "schema"]

app = typer.Typer(no_args_is_help=True, help="Check manifests.")


@app.callback()
def _group() -> None:
    """Check manifests."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plugin or a host manifest.")],
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Check FILE; for a host manifest also its plugins, adapters, grants and config.

    Starts nothing. Exit 0 if it is right, 4 if not.
    """
    told = _check(file, params_of(param), state)
    if json:
        json_line(told)
        return
    typer.echo(f"{file}: right. " + told["summary"])


def _check(file: Path, params: dict[str, str], state: Path | None) -> dict[str, Any]:
    if _schema_of(file).startswith("purra.plugin/"):
        from purra.manifest.plugin import load_plugin

        plugin = load_plugin(file)
        offers = [f"{offer.kind} {offer.name}" for offer in plugin.offers]
        summary = f"Plugin {plugin.id} {plugin.version} offers {', '.join(offers)}."
        return {"file": str(file), "schema": "purra.plugin/1", "summary": summary}
    from purra.manifest.host import Caller
    from purra_hosts.app.plan import make_plan

    plan = make_plan(file, Caller(params=params, state=state))
    agent = plan.host.agent
    summary = f"Agent {agent.id} revision {agent.revision} on {', '.join(plan.launches)}."
    return {"file": str(file), "schema": "purra.host/1", "summary": summary}


def _schema_of(file: Path) -> str:
    """What the file says it is; everything about its form is left to the loader."""
    try:
        document = tomllib.loads(file.read_text())
    except (OSError, ValueError):
        return ""
    return str(document.get("schema", "purra.plugin/" if "provides" in document else ""))


def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="plugin or host")],
) -> None:
    """Print the JSON Schema of a manifest, for editors."""
    from purra.manifest.schemas import NAMES, json_schema

    known = {full.removeprefix("purra.").partition("/")[0]: full for full in NAMES}
    if name not in known:
        raise PurraError(
            "invalid_argument", f"no schema {name!r}", where="schema", hint=" or ".join(known)
        )
    import json

    typer.echo(json.dumps(json_schema(known[name]), indent=2, ensure_ascii=False))
