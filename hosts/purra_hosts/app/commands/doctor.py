"""`purra doctor`: is this installation well, and what to do about what is not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from purra.errors import PurraError
from purra_hosts.app import exits
from purra_hosts.app.options import Json, Params, StateFolder, params_of
from purra_hosts.app.printing import json_line

if TYPE_CHECKING:
    from purra_hosts.app.checkup import Finding

__all__ = ["doctor", "tell"]


def doctor(
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", "-m", help="Check it too, and start the plugins it names."),
    ] = None,
    folder: Annotated[
        list[Path] | None, typer.Option("--folder", help="Look at the plugins in it, too.")
    ] = None,
    param: Params = None,
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Find what is wrong with this installation, and say the mend.

    Python, packages, folders, isolation, plugins and their manifests. Exit 4 if something is wrong.
    """
    from purra_hosts.app.checkup import installation
    from purra_hosts.app.environments import find_plugins

    well = tell(installation(find_plugins(folder or ())), json=json)
    if manifest is not None:
        well &= tell(_of_manifest(manifest, params_of(param), state), json=json)
    if well and not json:
        typer.echo("All is well.")
    raise typer.Exit(exits.COMPLETED if well else exits.SETUP)


def tell(findings: Iterable[Finding], *, json: bool, name: str = "about") -> bool:
    """Prints each finding as soon as it is there; whether none is wrong."""
    well = True
    for finding in findings:
        well &= finding.ok
        if json:
            told = {name: finding.about, "ok": finding.ok}
            json_line({**told, "text": finding.text, "mend": finding.mend})
            continue
        mend = f"\n    mend: {finding.mend}" if finding.mend else ""
        typer.echo(f"{finding.mark:<3} {finding.about}: {finding.text}{mend}")
    return well


def _of_manifest(manifest: Path, params: dict[str, str], state: Path | None) -> Iterable[Finding]:
    from purra.manifest.host import Caller
    from purra_hosts.app.checkup import Finding, started
    from purra_hosts.app.plan import make_plan

    try:
        plan = make_plan(manifest, Caller(params=params, state=state))
    except PurraError as error:
        where = error.where or str(manifest)
        yield Finding(where, f"{error.message} [{error.code}]", ok=False, mend=error.hint)
        return
    yield Finding(str(manifest), f"right; on {', '.join(plan.launches)}")
    yield from anyio.run(started, plan)
