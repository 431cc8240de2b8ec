"""What a real installer and build backend leave behind is what discovery reads (MAN-009, H73)."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from purra.registry.discovery import discover

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "purra-plugin-real"
version = "1.0"
[project.entry-points."purra.plugins"]
real = "purra_plugin_real"
[tool.hatch.build.targets.wheel]
packages = ["purra_plugin_real"]
dev-mode-dirs = ["."]
"""
MANIFEST = """
schema = "purra.plugin/1"
id = "real"
version = "1.0"
summary = "Installed for real"
[host]
kind = "process"
entry = "purra_plugin_real:plugin"
[[provides]]
kind = "policy"
name = "yes"
summary = "Allows"
"""


def pip_install(source: Path, prefix: Path, *options: str) -> str:
    """The site-packages folder of a fresh prefix with the project in it. Needs no network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--prefix", str(prefix)]
    subprocess.run([*command, *options, str(source)], check=True, timeout=120, capture_output=True)
    return sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)})


@pytest.mark.parametrize("options", [(), ("--editable",)], ids=["wheel", "editable"])
def test_an_install_by_pip_is_found(tmp_path: Path, options: tuple[str, ...]) -> None:
    """MAN-009: the installed package; H73: the path line that hatchling writes."""
    source = tmp_path / "source"
    package = source / "purra_plugin_real"
    package.mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "purra-plugin.toml").write_text(MANIFEST)
    site = pip_install(source, tmp_path / "prefix", *options)
    (found,) = discover(path=[site]).plugins
    assert (found.state, found.reason) == ("ok", "")
    assert found.owner == "purra-plugin-real 1.0"
    if options:
        assert found.path == package / "purra-plugin.toml"
        assert found.sys_path == (str(source), site)
    else:
        assert found.path == Path(site) / "purra_plugin_real" / "purra-plugin.toml"
        assert found.sys_path == (site,)
