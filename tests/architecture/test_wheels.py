"""What is shipped: five packages in the kernel's wheel, a manifest in each plugin's, nothing else.

Wheels are built with the build backend itself, in this interpreter, without a network.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, sources

AGENT = """
import sys
sys.path[:0] = {paths!r}
import purra
assert purra.__file__.startswith({prefix!r}), purra.__file__
print(purra.run_sync("host.toml", "Who calls a tool?", state="state").status)
"""
HOST = """
schema = "purra.host/1"
name = "installed"
[agent]
id = "a"
revision = "1"
model = "offline/extractive"
[plugins.offline]
"""

PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))


def build(project: Path, into: Path) -> zipfile.ZipFile:
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    [wheel] = into.glob("*.whl")
    return zipfile.ZipFile(wheel)


def packaged(wheel: zipfile.ZipFile) -> list[str]:
    return [name for name in wheel.namelist() if ".dist-info/" not in name]


def test_the_kernels_wheel_has_exactly_five_packages(tmp_path: Path) -> None:
    """Design, section 4; every module is shipped, nothing else is."""
    with build(ROOT, tmp_path) as wheel:
        files = packaged(wheel)
        [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        text = wheel.read(metadata).decode()
    assert {name.split("/")[0] for name in files} == {
        "purra",
        "purra_hosts",
        "purra_bridge",
        "purra_sdk",
        "purra_tck",
    }
    assert "\nName: purra-kernel\n" in text
    assert {name for name in files if name.endswith("/py.typed")} == {
        f"{package}/py.typed" for package in {name.split("/")[0] for name in files}
    }
    modules = {name for name in files if name.endswith(".py")}
    ours = {file.path for file in sources() if not file.path.startswith("plugins/")}
    shipped = {
        path.removeprefix("hosts/").removeprefix("bridge/").removeprefix("tck/") for path in ours
    }
    assert modules == shipped
    leaked = [name for name in files if "/tests/" in name or name.endswith((".pyc", ".toml~"))]
    assert leaked == []


@pytest.mark.parametrize("project", PLUGINS, ids=lambda path: path.name)
def test_a_plugins_wheel_ships_its_manifest(project: Path, tmp_path: Path) -> None:
    """Design, discovery: the entry point names the package, the package carries the manifest."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    package = f"purra_plugin_{project.name}"
    assert settings["name"] == f"purra-plugin-{project.name}"
    assert settings["entry-points"] == {"purra.plugins": {project.name: package}}
    with build(project, tmp_path) as wheel:
        files = packaged(wheel)
        manifest = tomllib.loads(wheel.read(f"{package}/purra-plugin.toml").decode())
    assert {name.split("/")[0] for name in files} == {package}
    assert (manifest["id"], manifest["version"]) == (project.name, settings["version"])


@pytest.mark.parametrize("project", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_needs_nothing_of_ours_at_run_time(project: Path) -> None:
    """Design, bootstrap: SDK, wire and msgpack are the host's staged copy."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert [
        name for name in settings["dependencies"] if name.startswith(("purra", "msgpack"))
    ] == []


def test_types_of_every_plugin_are_checked() -> None:
    """`make check` gives mypy all plugins; the path that it finds them by is a list."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["mypy_path"]
    for project in PLUGINS:
        assert f"$MYPY_CONFIG_FILE_DIR/plugins/{project.name}" in listed


def installed(project: Path, prefix: Path) -> None:
    """Without a network, without what `project` depends on, and with no look at what this
    environment has: pip would take that away.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--ignore-installed"]
    command += ["--prefix", str(prefix)]
    subprocess.run([*command, str(project)], check=True, timeout=120, capture_output=True)


def test_the_source_distribution_is_enough_to_run_an_agent(tmp_path: Path) -> None:
    """API-04: sdist, wheel from it, installed where nothing else of ours is, and one agent run
    by public names; its model is a plugin in a process."""
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    [packed] = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    prefix = tmp_path / "prefix"
    installed(source, prefix)
    installed(ROOT / "plugins" / "offline", prefix)
    site = sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)})
    # Without the site module no `.pth` line of this environment leads back to this tree.
    paths = [site, sysconfig.get_path("purelib")]
    (tmp_path / "host.toml").write_text(HOST)
    code = AGENT.format(paths=paths, prefix=str(prefix))
    run = [sys.executable, "-I", "-S", "-W", "error", "-c", code]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "completed\n", "")
