"""`purra doctor`: what is wrong with an installation, and the mend (issue D, part 4)."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from purra.registry.discovery import Discovered, Discovery
from purra_hosts.app.checkup import Finding, installation
from purra_hosts.app.environments import find_plugins
from purra_hosts.app.scaffold.package import write_package
from purra_hosts.isolation.machine import Findings
from tests.hosts.app.authoring import PURRA, command, mutate, package_of

AXES = ("fs", "net", "exec", "ipc", "memory", "cpu", "tree", "env")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and data of nobody else."""
    for name in ("STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


def findings(discovery: Discovery | None = None) -> dict[str, Finding]:
    found = installation(find_plugins() if discovery is None else discovery)
    return {finding.about: finding for finding in found}


def test_a_good_installation_is_well(tmp_path: Path) -> None:
    ran = command([PURRA, "doctor"], tmp_path)
    assert ran.stdout.endswith("All is well.\n")
    assert "BAD" not in ran.stdout
    for about in ("python", "platform", "packages", "state folder", "data folder", "plugins"):
        assert f" {about}: " in ran.stdout
    for axis in AXES:
        assert f" isolation {axis}: " in ran.stdout


def test_looking_makes_nothing(tmp_path: Path) -> None:
    findings()
    assert list(tmp_path.iterdir()) == []


def test_programs_read_json_and_an_exit_code(tmp_path: Path) -> None:
    project = write_package("weather", "tool", tmp_path)
    mutate(package_of(project) / "purra-plugin.toml", 'kind = "tool"', 'kind = "tol"')
    ran = command([PURRA, "doctor", "--folder", project, "--json"], tmp_path, code=4)
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert all(set(line) == {"about", "ok", "text", "mend"} for line in told)
    (bad,) = [line for line in told if not line["ok"]]
    assert bad["about"] == "weather"
    assert "provides[0].kind: must be one of model, tool" in bad["text"]
    assert bad["mend"] == "did you mean 'tool'?"


def test_a_manifest_behind_its_code_is_found_where_the_code_is_worked_on(tmp_path: Path) -> None:
    project = write_package("weather", "tool", tmp_path)
    mutate(package_of(project) / "plugin.py", "timeout_s=10", "timeout_s=20")
    found = findings(find_plugins([project]))["weather"]
    assert (found.ok, found.text) == (
        False,
        "its manifest: tool weather.count: timeout_s is 10, the code says 20",
    )
    command(found.mend.replace("purra", str(PURRA), 1).split(), tmp_path)
    assert "weather" not in findings(find_plugins([project]))


def test_the_code_of_what_was_installed_is_not_run(tmp_path: Path) -> None:
    """It is nobody's here to mend, and looking must not run what is not named."""
    project = write_package("weather", "tool", tmp_path / "site-packages")
    (package_of(project) / "plugin.py").write_text("raise SystemExit('run')")
    assert "weather" not in findings(find_plugins([project]))


def test_code_that_cannot_be_imported_is_said(tmp_path: Path) -> None:
    project = write_package("weather", "tool", tmp_path)
    (package_of(project) / "plugin.py").write_text("import no_such_module")
    found = findings(find_plugins([project]))["weather"]
    assert not found.ok
    assert "No module named 'no_such_module'" in found.text


@pytest.mark.parametrize(("name", "about"), [("STATE", "state folder"), ("DATA", "data folder")])
def test_a_folder_that_cannot_be_written_is_said(
    name: str, about: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "file"))
    found = findings()[about]
    assert not found.ok
    assert found.text.endswith(f"cannot be written, because of {tmp_path / 'file'}")
    assert f"XDG_{name}_HOME" in found.mend


def test_a_full_disk_is_worth_knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1))
    found = findings()["state folder"]
    assert (found.ok, found.mark) == (True, "tip")
    assert "0 MiB are free" in found.text


def test_what_the_machine_does_not_isolate_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Landlock: plugins run, and it is told what they are not kept from."""
    why = "the kernel has no Landlock"
    bare = Findings(True, 0, None, why, "no table of system calls for pdp11")
    monkeypatch.setattr("purra_hosts.isolation.machine.probe", lambda: bare)
    found = findings(Discovery((), (), None))
    assert found["isolation fs"].text == f"none: {why}"
    assert {axis for axis in AXES if found[f"isolation {axis}"].mend} == {
        "fs",
        "net",
        "exec",
        "ipc",
    }
    assert all(finding.ok for finding in found.values())


def test_a_package_of_our_name_and_hidden_installs_are_said() -> None:
    broken = Discovered(
        "files", "conflict", "a and b", reason="the id 'files' is claimed", hint="x"
    )
    found = list(installation(Discovery((broken,), ("b is hidden by a",), "purra 1.0.3 in /site")))
    told = {finding.about: finding for finding in found if finding.mark != "ok"}
    assert told["purra"].text == "purra 1.0.3 in /site has a package of our name"
    assert (told["files"].ok, told["files"].mend) == (False, "x")
    assert told["packages"].text == "b is hidden by a"


@pytest.mark.parametrize(
    ("requires", "text"),
    [
        (["no-such-package>=1"], "no-such-package is not installed"),
        (["anyio>=999"], f"anyio {importlib.metadata.version('anyio')} does not fit >=999"),
    ],
)
def test_a_dependency_that_does_not_fit_is_said(
    requires: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.distribution

    class Ours:
        version = "0.1.0"

        def __init__(self) -> None:
            self.requires = requires

    def distribution(name: str) -> Any:
        return Ours() if name == "purra-kernel" else real(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    found = findings(Discovery((), (), None))["packages"]
    assert (found.ok, found.text) == (False, text)


def test_half_an_environment_is_said(tmp_path: Path) -> None:
    (tmp_path / "data" / "purra" / "plugins" / "light" / "env-1").mkdir(parents=True)
    found = findings()["light"]
    assert (found.ok, found.text.endswith("has no environment that is whole")) == (False, True)


def test_a_host_manifest_is_checked_and_its_plugins_started(tmp_path: Path) -> None:
    project = write_package("weather", "tool", tmp_path)
    asked = (PURRA, "doctor", "-m", "try.toml")
    ran = command(asked, project)
    assert "\nok  try.toml: right; on scripted, weather\n" in ran.stdout
    assert "\nok  weather: starts; isolation: fs " in ran.stdout
    mutate(package_of(project) / "plugin.py", "import annotations", "import annotations\nimport no")
    ran = command(asked, project, code=4)
    assert "\nBAD weather: does not start: " in ran.stdout
    assert "No module named 'no'" in ran.stdout
    mutate(project / "try.toml", "[plugins.scripted.config]", "[plugins.scriptd.config]")
    ran = command(asked, project, code=4)
    assert "add a section [plugins.scripted]" in ran.stdout
