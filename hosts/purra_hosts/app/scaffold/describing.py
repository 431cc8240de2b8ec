"""What the code of a plugin says of itself: asked in a process of its own, never in this one."""

from __future__ import annotations

import json
import marshal
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import purra
from purra.errors import PurraError
from purra.manifest.plugin import PluginManifest
from purra_hosts.app.scaffold import describe as program
from purra_hosts.isolation import jail
from purra_hosts.isolation.folders import Place
from purra_hosts.isolation.machine import probe
from purra_hosts.isolation.policy import Jail
from purra_hosts.launch import Launch
from purra_hosts.process.staging import Folders

__all__ = ["Described", "describe"]

DESCRIBE_S: Final = 60.0
"""Longest time of an import; a plugin that needs more would not start either."""
_MARSHAL_VERSION: Final = 4
"""Read by every Python that a plugin may have."""


@dataclass(frozen=True, slots=True)
class Described:
    """One adapter as its code has it. `facts`: what its decorator says, by the keys of
    `[[provides]]`. `doc`: the first line of its docstring. `description`, `input`: of a tool whose
    signature names its arguments, else None.
    """

    kind: str
    name: str
    facts: Mapping[str, Any]
    doc: str
    description: str | None
    input: Mapping[str, Any] | None


def describe(
    manifest: PluginManifest, sys_path: tuple[str, ...], python: str = sys.executable
) -> tuple[Described, ...]:
    """Every adapter of the plugin, in the order of its code. `sys_path`: where its code is found.

    Raises `PurraError`: `unsupported` for a plugin that is a program, `plugin_broken` when its code
    cannot be imported, or a tool has an annotation that cannot be told to a model.
    """
    where = str(manifest.path)
    if manifest.runs.entry is None:
        raise PurraError(
            "unsupported",
            "a plugin that is a program has no annotations to read",
            where=where,
            hint="write its manifest by hand",
        )
    told = _asked(manifest, sys_path, python)
    if "error" in told:
        raise PurraError("plugin_broken", f"its code says: {told['error']}", where=where)
    return tuple(
        Described(
            kind=offer["kind"],
            name=offer["name"],
            facts=offer["facts"],
            doc=offer["doc"],
            description=offer.get("description"),
            input=offer.get("input"),
        )
        for offer in told["offers"]
    )


def _asked(manifest: PluginManifest, sys_path: tuple[str, ...], python: str) -> dict[str, Any]:
    folders = Folders()
    try:
        staged, home = folders.staged(), folders.home("describe")
        place = Place(str(folders.root), str(staged), str(home))
        launch = Launch(
            plugin=manifest.id,
            version=manifest.version,
            folder=manifest.path.parent,
            manifest_path=manifest.path,
            manifest_sha256=manifest.sha256,
            offers=(),
            python=python,
            entry=manifest.runs.entry,
            sys_path=sys_path,
        )
        return _run(launch, place)
    finally:
        for _ in folders.removing():
            pass


def _run(launch: Launch, place: Place) -> dict[str, Any]:
    cage = Jail(launch, probe())
    process = subprocess.Popen(
        [launch.python, "-I", "-S", program.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=place.home,
        env={"LANG": "C.UTF-8", "HOME": place.home, "PATH": os.defpath},
    )
    asked = {
        "ours": str(Path(purra.__file__).parent.parent),
        "jail": str(Path(jail.__file__).parent),
        "staged": place.staged,
        "sys_path": list(launch.sys_path),
        "entry": launch.entry,
        "policy": cage.policy(place, process.pid, os.getpid()),
    }
    try:
        out, said = process.communicate(marshal.dumps(asked, _MARSHAL_VERSION), DESCRIBE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"nothing, in {DESCRIBE_S:g} s"}
    try:
        told: dict[str, Any] = json.loads(out)
    except ValueError:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        told = {"error": f"exit {process.returncode}: {' '.join(last)}"}
    return told
