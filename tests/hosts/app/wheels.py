"""Tiny wheels, written by hand, so that installing them needs no network and no build."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["library", "plugin", "wheel"]

MANIFEST: Final = """\
schema = "purra.plugin/1"
id = "{id}"
version = "{version}"
summary = "Tells which version it got"
[host]
kind = "process"
entry = "purra_plugin_{id}:plugin"
[[provides]]
kind = "tool"
name = "{id}.version"
summary = "{summary}"
effect = "pure"
"""
CODE: Final = """\
import shade
from purra_sdk import Plugin, tool

@tool(effect="pure", name="{id}.version")
def version():
    return {{"shade": shade.VERSION}}

plugin = Plugin(tools=[version])
"""


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: Sequence[str] = (),
    plugins: Mapping[str, str] | None = None,
) -> Path:
    """A pure wheel of those files. `plugins`: package by plugin id."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    content = dict(files)
    content[f"{info}/METADATA"] = metadata
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if plugins:
        points = "".join(f"{key} = {value}\n" for key, value in plugins.items())
        content[f"{info}/entry_points.txt"] = f"[purra.plugins]\n{points}"
    rows = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_in, text in content.items():
            archive.writestr(name_in, text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def library(folder: Path, version: str) -> Path:
    """The library `shade`, which knows its version."""
    return wheel(folder, "shade", version, {"shade.py": f"VERSION = {version!r}\n"})


def plugin(
    folder: Path,
    name: str,
    needs: str = "",
    *,
    version: str = "1.0",
    summary: str = "Tells which version it got",
) -> Path:
    """A plugin that needs `needs` of the library and says which it got."""
    package = f"purra_plugin_{name}"
    files = {
        f"{package}/__init__.py": CODE.format(id=name),
        f"{package}/purra-plugin.toml": MANIFEST.format(id=name, version=version, summary=summary),
    }
    requires = [f"shade{needs}"] if needs else []
    return wheel(
        folder, f"purra-plugin-{name}", version, files, requires=requires, plugins={name: package}
    )
