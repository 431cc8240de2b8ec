"""Manifests, readers and packages that are broken in one way each, and those that must pass."""

from __future__ import annotations

import hashlib
import importlib
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from purra.errors import PurraError
from purra.manifest.plugin import FILE_NAME, PluginManifest, load_plugin
from purra_hosts.launch import Launch
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.plugin_notes import NOTES
from purra_tck.saboteurs.plugin_parts import made, made_of_wheel, universal
from purra_tck.subjects.plugin import Ways
from purra_tck.subjects.plugin_manifests import toml_text

__all__ = ["REFERENCES", "SABOTEURS", "mending"]

Mend = Callable[[dict[str, Any]], None]


def mending(mend: Mend) -> Ways:
    """A reader that makes something legal of what it should refuse."""

    def read(path: Path) -> PluginManifest:
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return load_plugin(path)
        mend(table)
        with TemporaryDirectory(prefix="purra-tck-") as folder:
            other = Path(folder, FILE_NAME)
            other.write_text(toml_text(table), encoding="utf-8")
            return load_plugin(other)

    return Ways(read=read)


def _any_schema(table: dict[str, Any]) -> None:
    table["schema"] = "purra.plugin/1"


def _any_id(table: dict[str, Any]) -> None:
    table["id"] = "".join(letter for letter in str(table["id"]).lower() if letter.isalpha()) or "x"


def _split_line(table: dict[str, Any]) -> None:
    host = table["host"]
    if isinstance(host.get("command"), str):
        host["command"] = [word.strip(";") for word in host["command"].split()]


def _zero_is_none(table: dict[str, Any]) -> None:
    limits = table.get("limits", {})
    for name in [name for name, value in limits.items() if value == 0]:
        del limits[name]


def _importing(path: Path) -> PluginManifest:
    """Looks into the code for what the manifest says already."""
    manifest = load_plugin(path)
    module = (manifest.runs.entry or "").partition(":")[0]
    sys.path.insert(0, str(path.parent))
    try:
        importlib.import_module(module)
    except ImportError:
        pass
    finally:
        sys.path.remove(str(path.parent))
    return manifest


def _guessing(path: Path) -> PluginManifest:
    """Gives what it can for what it cannot read."""
    try:
        return load_plugin(path)
    except PurraError as error:
        if "TOML" in error.message:
            raise ValueError("what is this?") from error
        raise


def _reopened(launch: Launch) -> Launch:
    """The digest of whatever lies there now."""
    digest = hashlib.sha256(launch.manifest_path.read_bytes()).hexdigest()
    return replace(launch, manifest_sha256=digest)


_MORE = """
from purra_sdk.declare import Handler


class Generous(Plugin):
    def build(self, setup):
        handlers, closing = super().build(setup)
        handlers["admin", "call"] = Handler(("tool", "admin"), "call", lambda call, request: 1, 1)
        return handlers, closing


plugin = Generous(tools=[read, add, order, shape])
"""
_OFFERED = """
@tool(effect="world_write", name="note.erase")
def erase(name):
    return {}


plugin = Plugin(tools=[read, add, order, shape, erase])
"""

REFERENCES: dict[str, Any] = {"notes": made(NOTES), "notes-as-a-wheel": made_of_wheel(NOTES)}
SABOTEURS: tuple[Saboteur, ...] = (
    Saboteur(
        "ignores-schema-version",
        ("MAN-001",),
        "schema = 'purra.plugin/2': accepted",
        made(NOTES, mending(_any_schema)),
    ),
    Saboteur(
        "raw-string-id", ("MAN-002",), "id = 'Files': accepted", made(NOTES, mending(_any_id))
    ),
    Saboteur(
        "shell-True",
        ("MAN-003",),
        "a command that is a line: accepted",
        made(NOTES, mending(_split_line)),
    ),
    Saboteur("over-implements", ("MAN-004",), "does not declare it", made(NOTES.changed(_MORE))),
    Saboteur(
        "offers-more",
        ("MAN-004",),
        "not in the manifest: tool note.erase",
        made(NOTES.changed(_OFFERED)),
    ),
    Saboteur(
        "effect-missing",
        ("MAN-005",),
        "provides[0].effect: is missing",
        made(NOTES.changed("", ('effect = "world_read"\n', ""))),
    ),
    Saboteur(
        "limit-0-is-infinite",
        ("MAN-006",),
        "limits.inflight = 0: accepted",
        made(NOTES, mending(_zero_is_none)),
    ),
    Saboteur(
        "hash-then-reopen",
        ("MAN-007",),
        "it started with other bytes",
        made(NOTES, Ways(launch=_reopened)),
    ),
    Saboteur(
        "yaml-load", ("MAN-008",), "code of the package ran", made(NOTES, Ways(read=_importing))
    ),
    Saboteur(
        "leaks-the-parser",
        ("MAN-008",),
        "ValueError: what is this?",
        made(NOTES, Ways(read=_guessing)),
    ),
    Saboteur(
        "source-tree-only",
        ("MAN-009",),
        FILE_NAME,
        made_of_wheel(NOTES, without=(FILE_NAME,)),
    ),
    Saboteur(
        "fixed-cache-dir",
        ("MAN-010",),
        "the same for every version: ['/var/cache/notes']",
        made(NOTES.changed("", ('fs.write = ["', 'fs.write = ["/var/cache/notes", "'))),
    ),
    *(
        Saboteur(name, ("MAN-*",), "", opened, dies="any", timeout_s=5.0)
        for name, opened in universal(NOTES).items()
    ),
)
