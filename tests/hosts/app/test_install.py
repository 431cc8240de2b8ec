"""`purra plugins install`: plugins in environments of their own, found, used, replaced, removed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from purra.errors import PurraError
from purra.manifest.host import Caller
from purra_hosts.app.environments import data_folder, find_plugins, in_use
from purra_hosts.app.installing import Pip, install_isolated, uninstall, upgrade
from purra_hosts.app.plan import make_plan
from tests.hosts.app import wheels
from tests.hosts.app.authoring import PURRA, command, environment_in

HOST = """
schema = "purra.host/1"
name = "shades"
[agent]
id = "painter"
revision = "1"
model = "scripted/script"
tools = ["light/light.version", "dark/dark.version"]
[plugins.light]
[plugins.dark]
[plugins.scripted.config]
match = "round"
[[plugins.scripted.config.steps]]
calls = [{ name = "light.version", arguments = {} }, { name = "dark.version", arguments = {} }]
[[plugins.scripted.config.steps]]
expect = { contains = ['"shade":"1.5"', '"shade":"2.0"'] }
content = "Both."
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two versions of a library, and a data folder that is nobody else's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for version in ("1.5", "2.0"):
        wheels.library(tmp_path / "shelf", version)
    return tmp_path / "shelf"


def offline(shelf: Path) -> Pip:
    return Pip(("--no-index", "--find-links", str(shelf)))


def purra(folder: Path, *arguments: str | Path, code: int = 0) -> Any:
    """The command, with the data folder of the test."""
    data = os.environ["XDG_DATA_HOME"]
    return command([PURRA, *arguments], folder, code=code, XDG_DATA_HOME=data)


def sites(name: str) -> list[Path]:
    return sorted((data_folder() / name).glob("env-*/lib/python*/site-packages"))


def test_two_plugins_with_conflicting_dependencies_serve_one_agent(
    shelf: Path, tmp_path: Path
) -> None:
    """Issue D, part 2: each with its own version, in one kernel, whose own environment has none;
    and nothing of ours is in theirs (design, bootstrap)."""
    light = wheels.plugin(tmp_path / "new", "light", "<2")
    dark = wheels.plugin(tmp_path / "new", "dark", ">=2")
    options = ("--", "--no-index", "--find-links", shelf)
    said = purra(tmp_path, "plugins", "install", light, "--isolated", *options)
    assert said.stdout == "light 1.0: ok, purra-plugin-light 1.0 in its own environment\n"
    purra(tmp_path, "plugins", "install", dark, "--isolated", *options)
    with pytest.raises(ModuleNotFoundError):
        __import__("shade")
    (tmp_path / "purra.toml").write_text(HOST)
    assert purra(tmp_path, "run", "purra.toml", "Which?").stdout.strip() == "Both."
    entries = [entry for name in ("light", "dark") for s in sites(name) for entry in s.iterdir()]
    there = {entry.name.split("-")[0] for entry in entries} - {"__pycache__"}
    assert there == {"shade.py", "shade", "purra_plugin_light", "purra_plugin_dark"}


def test_a_plan_uses_the_plugins_own_interpreter(shelf: Path, tmp_path: Path) -> None:
    for name, needs in (("light", "<2"), ("dark", ">=2")):
        install_isolated(str(wheels.plugin(tmp_path / "new", name, needs)), offline(shelf))
    (tmp_path / "purra.toml").write_text(HOST)
    launches = make_plan(tmp_path / "purra.toml", Caller(state=tmp_path / "state")).launches
    (site,) = sites("light")
    assert launches["light"].python == str(site.parents[2] / "bin" / "python")
    assert launches["light"].sys_path == (str(site),)
    assert launches["scripted"].python == sys.executable


def test_an_installed_plugin_is_listed_and_removed_whole(shelf: Path, tmp_path: Path) -> None:
    install_isolated(str(wheels.plugin(tmp_path / "new", "light", "<2")), offline(shelf))
    listed = purra(tmp_path, "plugins", "list", "--json").stdout.splitlines()
    row = next(row for row in map(json.loads, listed) if row["plugin"] == "light")
    assert (row["state"], row["from"]) == ("ok", "purra-plugin-light 1.0 in its own environment")
    purra(tmp_path, "plugins", "uninstall", "light")
    assert find_plugins().get("light") is None
    assert list(data_folder().iterdir()) == []
    assert "no plugin 'light'" in purra(tmp_path, "plugins", "uninstall", "light", code=4).stderr


def test_an_upgrade_keeps_what_runs_until_the_next_one(shelf: Path, tmp_path: Path) -> None:
    """H70: a worker of the old version goes on with the files that it began with."""
    home = data_folder() / "light"
    install_isolated(str(wheels.plugin(tmp_path / "1", "light", "<2")), offline(shelf))
    first = in_use(home)
    newer = wheels.plugin(tmp_path / "2", "light", ">=2", version="1.1")
    assert upgrade("light", str(newer), offline(shelf)).version == "1.1"
    second = in_use(home)
    assert first is not None and second is not None
    assert second.before == first.folder
    assert (home / first.folder).is_dir()
    assert [found.version for found in find_plugins().plugins if found.id == "light"] == ["1.1"]
    upgrade("light", "", offline(shelf))  # as it was asked for last
    assert not (home / first.folder).exists()
    assert (home / second.folder).is_dir()


@pytest.mark.parametrize("fault", ["dependency", "manifest", "other", "wheel"])
def test_a_failed_upgrade_changes_nothing(fault: str, shelf: Path, tmp_path: Path) -> None:
    install_isolated(str(wheels.plugin(tmp_path / "1", "light", "<2")), offline(shelf))
    before = sorted((data_folder() / "light").iterdir()), in_use(data_folder() / "light")
    if fault == "wheel":
        newer = tmp_path / "2" / "light-2-py3-none-any.whl"
        newer.parent.mkdir()
        newer.write_bytes(b"no zip")
    elif fault == "other":
        newer = wheels.plugin(tmp_path / "2", "dark", "<2")
    elif fault == "dependency":
        newer = wheels.plugin(tmp_path / "2", "light", "==9")
    else:
        newer = wheels.plugin(tmp_path / "2", "light", summary="")
    with pytest.raises(PurraError) as refused:
        upgrade("light", str(newer), offline(shelf))
    assert refused.value.code == "install_failed"
    assert "\n" not in refused.value.message
    after = sorted((data_folder() / "light").iterdir()), in_use(data_folder() / "light")
    assert before == after


def test_what_is_no_plugin_is_refused_before_an_environment_is_made(
    shelf: Path, tmp_path: Path
) -> None:
    shade = shelf / "shade-1.5-py3-none-any.whl"
    ran = purra(tmp_path, "plugins", "install", shade, "--isolated", "--", "--no-index", code=4)
    assert "the package has no plugin [install_failed]" in ran.stderr
    assert not data_folder().exists()


def test_an_id_is_installed_once(shelf: Path, tmp_path: Path) -> None:
    light = str(wheels.plugin(tmp_path / "new", "light", "<2"))
    install_isolated(light, offline(shelf))
    with pytest.raises(PurraError, match=r"already, by purra-plugin-light 1\.0 in its") as refused:
        install_isolated(light, offline(shelf))
    assert refused.value.code == "plugin_conflict"
    assert "purra plugins upgrade light" in refused.value.hint
    files = wheels.plugin(tmp_path / "new", "files")
    with pytest.raises(PurraError, match=r"by purra-plugin-files \d"):
        install_isolated(str(files), offline(shelf))
    assert [path.name for path in data_folder().iterdir()] == ["light"]


def test_an_interpreter_that_is_gone_is_said_with_the_mend(shelf: Path, tmp_path: Path) -> None:
    """As after an upgrade of the system's Python."""
    install_isolated(str(wheels.plugin(tmp_path / "new", "light", "<2")), offline(shelf))
    (python,) = data_folder().glob("light/env-*/bin/python")
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    found = find_plugins().get("light")
    assert found is not None
    assert (found.state, "is not there any more" in found.reason) == ("broken", True)
    upgrade("light", "", offline(shelf))
    assert [found.state for found in find_plugins().plugins if found.id == "light"] == ["ok"]


def test_half_an_installation_is_none(tmp_path: Path, shelf: Path) -> None:
    """What a crash may leave: an environment that nothing chose, a file that is cut off."""
    home = data_folder() / "light"
    (home / "env-half" / "lib").mkdir(parents=True)
    assert find_plugins().get("light") is None
    (home / "environment.json").write_text('{"folder": "env-h')
    assert find_plugins().get("light") is None
    install_isolated(str(wheels.plugin(tmp_path / "new", "light", "<2")), offline(shelf))
    assert not (home / "env-half").exists()


def test_a_project_is_built_first(shelf: Path, tmp_path: Path) -> None:
    """What is installed is a wheel, also where a folder is named; it is built without a network."""
    project = command([PURRA, "plugins", "new", "desk", "--kind", "tool"], tmp_path)
    assert project.returncode == 0
    options = ("--", "--no-index", "--no-build-isolation")
    purra(tmp_path, "plugins", "install", tmp_path / "desk", "--isolated", *options)
    (site,) = sites("desk")
    assert (site / "purra_plugin_desk" / "purra-plugin.toml").is_file()
    chosen = in_use(data_folder() / "desk")
    assert chosen is not None and chosen.spec == str(tmp_path / "desk")


def test_the_kernels_environment_is_installed_into_too(shelf: Path, tmp_path: Path) -> None:
    """Without --isolated, by the pip of the interpreter that runs the command."""
    python = environment_in(tmp_path / "venv")
    here = (python, "-m", "purra_hosts.app", "plugins")
    light = wheels.plugin(tmp_path / "new", "light", "<2")
    options = ("--", "--no-index", "--find-links", shelf)
    data = os.environ["XDG_DATA_HOME"]
    said = command([*here, "install", light, *options], tmp_path, XDG_DATA_HOME=data)
    assert said.stdout == "light 1.0: ok, purra-plugin-light 1.0\n"
    newer = wheels.plugin(tmp_path / "new", "light", "<2", version="1.1")
    upgraded = (*here, "upgrade", "light", "--spec", newer, *options)
    assert "light 1.1: ok" in command(upgraded, tmp_path, XDG_DATA_HOME=data).stdout
    gone = command([*here, "uninstall", "light"], tmp_path, XDG_DATA_HOME=data).stdout
    assert gone == "light: removed with purra-plugin-light 1.1, in this environment\n"
    assert not list((tmp_path / "venv").glob("lib/python*/site-packages/purra_plugin_light"))


def test_what_is_not_there_cannot_be_removed(shelf: Path) -> None:
    with pytest.raises(PurraError) as refused:
        uninstall("nobody", Pip())
    assert refused.value.code == "plugin_not_found"
