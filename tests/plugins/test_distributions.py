"""Every first-party plugin as a distribution: manifest, code and metadata say the same."""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from purra.gateway.schema import admit
from purra.manifest.plugin import PluginManifest, load_plugin

FOLDERS = sorted(
    path.parent for path in (Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml")
)
TOOL_FIELDS = (
    *("effect", "description", "input", "permission", "idempotency", "concurrency"),
    *("approval", "timeout_s", "shared", "needs"),
)


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def _package(folder: Path) -> Path:
    return folder / f"purra_plugin_{folder.name}"


def _manifest(folder: Path) -> PluginManifest:
    return load_plugin(_package(folder) / "purra-plugin.toml")


def _offered(folder: Path) -> Any:
    module, _, attribute = str(_manifest(folder).runs.entry).partition(":")
    return getattr(importlib.import_module(module), attribute)


def test_the_manifest_and_the_code_offer_the_same(folder: Path) -> None:
    """Both ways, with the same effect and timeout (MAN-004)."""
    manifest, plugin = _manifest(folder), _offered(folder)
    declared = [{"kind": offer.kind, "name": offer.name} for offer in manifest.offers]
    assert plugin.offers() == declared
    for offer, (kind, part) in zip(manifest.offers, plugin.adapters, strict=True):
        if kind == "tool":
            facts, tool = part.__purra__[2], offer.tool
            assert tool is not None
            assert (facts["effect"], facts["timeout_s"]) == (tool.effect, tool.timeout_s)


def test_every_tool_declares_every_field(folder: Path) -> None:
    """Nothing rests on a default, and the host admits each schema (MAN-005, TOL-001)."""
    table = tomllib.loads((_package(folder) / "purra-plugin.toml").read_text())
    for provided in table["provides"]:
        if provided["kind"] == "tool":
            assert not set(TOOL_FIELDS) - set(provided), provided["name"]
            schema = admit(provided["input"], where=provided["name"])
            for name, part in schema["properties"].items():
                assert part["description"], f"{provided['name']}: {name}"


def test_the_metadata_names_the_package_that_carries_the_manifest(folder: Path) -> None:
    """Entry point: plugin id to package; no dependency, one version (design, section 8)."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    manifest = _manifest(folder)
    assert project["name"] == f"purra-plugin-{folder.name}"
    assert project["entry-points"]["purra.plugins"] == {manifest.id: _package(folder).name}
    assert project["version"] == manifest.version
    assert project["dependencies"] == []


def test_the_package_needs_only_the_standard_library_and_the_sdk(folder: Path) -> None:
    """The host stages `purra_sdk`; a worker has nothing else of ours."""
    allowed = {*sys.stdlib_module_names, "purra_sdk", _package(folder).name}
    for path in _package(folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert {name.partition(".")[0] for name in names} <= allowed, path


def test_the_wheel_ships_the_manifest_and_the_types(folder: Path, tmp_path: Path) -> None:
    """MAN-009: what is installed is what was tested."""
    (wheel,) = WheelBuilder(str(folder)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = _package(folder).name
    assert {f"{package}/purra-plugin.toml", f"{package}/py.typed"} <= names
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {package}
