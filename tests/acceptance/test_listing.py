"""Issue A, done when: a plugin whose module writes a file when imported, or raises, or sleeps 10 s:
`purra plugins list` loads no plugin module, starts no child, and the file does not appear
(invariant 1, LIF-008, PLG-01, H77)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stage import Stage, objects

MANIFEST = """
schema = "purra.plugin/1"
id = "{id}"
version = "1.0"
summary = "Is trouble when it is imported"
[host]
kind = "process"
entry = "{package}:plugin"
[[provides]]
kind = "model"
name = "one"
summary = "A model"
"""
CODES = {
    "writes": "",
    "raises": "raise RuntimeError('imported')\n",
    "sleeps": "import time\ntime.sleep(10)\n",
    "leaves": "import os\nos._exit(9)\n",
}
COMMANDS = [
    ("plugins", "list", "--json"),
    ("plugins", "list"),
    ("plugins", "show", "troubled-writes"),
    ("plugins", "doctor"),
]


def trouble(stage: Stage) -> Path:
    """Four bad plugins in a folder and four that are installed; gives the file they would write."""
    touched = stage.folder / "touched"
    for name, code in CODES.items():
        text = f"open({str(touched)!r}, 'a').write({name!r})\n{code}"
        for place, prefix in (("folder", "troubled"), ("site", "installed")):
            package = f"{prefix}_{name}"
            home = stage.folder / place / package
            home.mkdir(parents=True)
            (home / "__init__.py").write_text(text)
            manifest = MANIFEST.format(id=f"{prefix}-{name}", package=package)
            (home / "purra-plugin.toml").write_text(manifest)
        installed(stage.folder / "site", f"installed-{name}", f"installed_{name}")
    return touched


def installed(site: Path, plugin: str, package: str) -> None:
    """The metadata of a distribution as pip leaves it."""
    info = site / f"purra_plugin_{package}-1.0.dist-info"
    info.mkdir()
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: purra-plugin-{plugin}\nVersion: 1.0\n",
        "entry_points.txt": f"[purra.plugins]\n{plugin} = {package}\n",
    }
    record = [f"{package}/__init__.py", f"{package}/purra-plugin.toml"]
    record += [f"{info.name}/{name}" for name in (*files, "RECORD")]
    for name, text in {**files, "RECORD": "".join(f"{path},,\n" for path in record)}.items():
        (info / name).write_text(text)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_looking_at_plugins_runs_none_of_their_code(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Metadata and manifests only: no module, no child, no file."""
    stage = Stage(tmp_path)
    touched = trouble(stage)
    site = str(stage.folder / "site")
    ran, report = stage.witnessed(
        *command, "--folder", str(stage.folder / "folder"), PYTHONPATH=site
    )
    assert ran.returncode == 0, ran.stderr
    if command == COMMANDS[0]:
        assert_right(stage, objects(ran.stdout))
    assert not touched.exists()
    assert not report["children"]
    loaded = {*report["modules"], *report["imported"]}
    assert not {name for name in loaded if name.startswith(("troubled_", "installed_"))}
    assert not {name for name in loaded if name.startswith("purra_plugin_")}
    assert "purra.registry.discovery" in report["imported"]


def assert_right(stage: Stage, listed: list[dict[str, Any]]) -> None:
    """PLG-01: state, owner and offers are known from files alone, for each of them."""
    found = {plugin["plugin"]: plugin for plugin in listed}
    for name in CODES:
        for prefix, owner in (
            ("troubled", f"folder {stage.folder / 'folder' / f'troubled_{name}'}"),
            ("installed", f"purra-plugin-installed-{name} 1.0"),
        ):
            plugin = found[f"{prefix}-{name}"]
            assert (plugin["state"], plugin["from"]) == ("ok", owner)
            assert [offer["name"] for offer in plugin["offers"]] == ["one"]
    assert {"offline", "files", "agentsmd", "sqlite", "scripted"} <= found.keys()


def test_the_same_plugins_are_trouble_once_they_are_started(tmp_path: Path) -> None:
    """H79: `doctor --manifest` starts what the manifest names, and says what happened; the module
    that writes has its file now. So the tests above could have failed."""
    stage = Stage(tmp_path)
    touched = trouble(stage)
    stage.manifest.write_text(
        'schema = "purra.host/1"\nname = "trouble"\n[agent]\nid = "a"\nrevision = "1"\n'
        f'model = "troubled-raises/one"\n[discovery]\nfolders = ["{stage.folder}/folder"]\n'
        "[plugins.troubled-raises]\n[plugins.troubled-leaves]\n"
        '[isolation]\nlevel = "none"\n'
    )
    ran, report = stage.witnessed("plugins", "doctor", "--json", "--manifest", str(stage.manifest))
    assert ran.returncode == 4
    findings = {finding["plugin"]: finding for finding in objects(ran.stdout)}
    assert not findings["troubled-raises"]["ok"]
    assert "RuntimeError: imported" in findings["troubled-raises"]["text"]
    assert not findings["troubled-leaves"]["ok"]
    assert report["children"]
    assert touched.exists()
