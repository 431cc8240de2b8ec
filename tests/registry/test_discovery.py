"""Discovery on search paths made by hand, file by file, as installers write them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from purra.registry.discovery import discover

ROOT = Path(__file__).parents[2]

MANIFEST = """
schema = "purra.plugin/1"
id = "{id}"
version = "{version}"
summary = "An example"
[host]
kind = "process"
entry = "{package}:plugin"
[[provides]]
kind = "model"
name = "one"
summary = "A model"
"""


def manifest(name: str, *, version: str = "1.0", package: str = "") -> str:
    return MANIFEST.format(id=name, version=version, package=package or f"purra_plugin_{name}")


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def install(
    site: Path,
    name: str,
    *,
    version: str = "1.0",
    entry_points: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    info: Mapping[str, str] | None = None,
) -> None:
    """A distribution as pip leaves it: metadata, entry points, RECORD, files."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    points = "".join(f"{key} = {value}\n" for key, value in (entry_points or {}).items())
    content = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/entry_points.txt": f"[purra.plugins]\n{points}",
        **(files or {}),
        **{f"{folder}/{key}": text for key, text in (info or {}).items()},
    }
    record = "".join(f"{path},,\n" for path in content)
    write(site, {f"{folder}/RECORD": record, **content})


def install_plugin(site: Path, name: str, **options: str) -> None:
    """A well-formed plugin `name` as the distribution `purra-plugin-<name>`."""
    package = f"purra_plugin_{name}"
    version = options.get("version", "1.0")
    install(
        site,
        options.get("distribution", f"purra-plugin-{name}"),
        version=version,
        entry_points={name: package},
        files={
            f"{package}/__init__.py": "",
            f"{package}/purra-plugin.toml": manifest(name, version=version),
        },
    )


def test_an_installed_plugin_is_found_with_its_owner_and_paths(tmp_path: Path) -> None:
    """PLG-01: what a plugin says of itself is known from files alone."""
    install_plugin(tmp_path, "one")
    (found,) = discover(path=[str(tmp_path)]).plugins
    assert (found.id, found.state, found.reason) == ("one", "ok", "")
    assert (found.distribution, found.version) == ("purra-plugin-one", "1.0")
    assert found.manifest is not None and found.manifest.offer("one")
    assert found.path == tmp_path / "purra_plugin_one" / "purra-plugin.toml"
    assert found.sha256 == found.manifest.sha256
    assert found.sys_path == (str(tmp_path),)
    assert found.notes == ()


def test_discovery_runs_no_code_of_a_plugin(tmp_path: Path) -> None:
    """LIF-008, H77: modules that write, raise or sleep, and a `.pth` line that writes."""
    touched = tmp_path / "touched"
    site = tmp_path / "site"
    write_file = f"open({str(touched)!r}, 'w').close()\n"
    codes = {
        "writes": write_file,
        "raises": "import missing\n",
        "sleeps": "import time\ntime.sleep(60)\n",
    }
    for name, code in codes.items():
        install_plugin(site, name)
        write(site, {f"purra_plugin_{name}/__init__.py": write_file + code})
    write(site, {"startup.pth": f"import os; {write_file}"})
    script = (
        "import sys\n"
        "from purra.registry.discovery import discover\n"
        "for found in discover().plugins: print(found.id, found.state)\n"
        "print([name for name in sys.modules if name.startswith('purra_plugin')])\n"
    )
    path = [str(site), str(ROOT), *(entry for entry in sys.path if entry)]
    run = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {path!r}\n{script}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert {"writes ok", "raises ok", "sleeps ok"} <= set(lines)
    assert lines[-1] == "[]"
    assert not touched.exists()


def test_a_broken_plugin_is_listed_and_stops_nobody(tmp_path: Path) -> None:
    """H79: what cannot be used says why; the others are found all the same."""
    install_plugin(tmp_path, "good")
    bad = manifest("bad").replace("summary", "sumary", 1)
    files = {"purra_plugin_bad/purra-plugin.toml": bad}
    install(tmp_path, "dist-bad", entry_points={"bad": "purra_plugin_bad"}, files=files)
    install(tmp_path, "dist-none", entry_points={"none": "purra_plugin_none"})
    install(tmp_path, "dist-attr", entry_points={"attr": "purra_plugin_attr:plugin"})
    install(tmp_path, "dist-case", entry_points={"Case": "purra_plugin_case"})
    files = {"other/purra-plugin.toml": manifest("other")}
    install(tmp_path, "dist-other", entry_points={"another": "other"}, files=files)
    found = {item.id: item for item in discover(path=[str(tmp_path)]).plugins}
    assert {name: item.state for name, item in found.items()} == {
        "good": "ok",
        "bad": "broken",
        "none": "broken",
        "attr": "broken",
        "Case": "broken",
        "another": "broken",
    }
    path = tmp_path / "purra_plugin_bad" / "purra-plugin.toml"
    assert found["bad"].reason == f"{path}: sumary: is not a known key (and 1 more)"
    assert found["bad"].hint == "did you mean 'summary'?"
    assert found["none"].reason == "dist-none 1.0 has no purra_plugin_none/purra-plugin.toml"
    assert "'purra_plugin_attr:plugin' is not the name of a package" in found["attr"].reason
    assert "'Case' is not a plugin id" in found["Case"].reason
    assert found["another"].reason == (
        "the entry point is named 'another', its manifest says id = 'other'"
    )


def test_a_listed_file_that_is_gone_is_said(tmp_path: Path) -> None:
    """H08: RECORD is believed about where, not about whether."""
    install_plugin(tmp_path, "one")
    (tmp_path / "purra_plugin_one" / "purra-plugin.toml").unlink()
    (found,) = discover(path=[str(tmp_path)]).plugins
    assert found.state == "broken"
    assert found.reason.endswith("is listed by purra-plugin-one 1.0 but is not there")


def test_nothing_is_remembered_between_calls(tmp_path: Path) -> None:
    """PLG-27, H08: a changed, then a removed plugin is seen as it is now."""
    install_plugin(tmp_path, "one")
    (before,) = discover(path=[str(tmp_path)]).plugins
    path = tmp_path / "purra_plugin_one" / "purra-plugin.toml"
    path.write_text(path.read_text() + "# changed\n")
    (after,) = discover(path=[str(tmp_path)]).plugins
    assert before.sha256 != after.sha256
    for file in (tmp_path / "purra_plugin_one-1.0.dist-info").iterdir():
        file.unlink()
    (tmp_path / "purra_plugin_one-1.0.dist-info").rmdir()
    assert discover(path=[str(tmp_path)]).plugins == ()


@pytest.mark.parametrize("listed", [True, False], ids=["RECORD", "no RECORD"])
def test_an_editable_install_is_found_by_its_path_lines(tmp_path: Path, listed: bool) -> None:
    """H73: `.pth` path lines, as hatchling writes them; the worker gets the source folder first."""
    site, source = tmp_path / "site", tmp_path / "source"
    write(source, {"purra_plugin_one/purra-plugin.toml": manifest("one")})
    install(
        site,
        "purra-plugin-one",
        entry_points={"one": "purra_plugin_one"},
        files={"_purra_plugin_one.pth": f"# a comment\n{source}\n{tmp_path / 'gone'}\n"},
    )
    if not listed:
        (site / "purra_plugin_one-1.0.dist-info" / "RECORD").unlink()
    (found,) = discover(path=[str(site)]).plugins
    assert found.state == "ok", found.reason
    assert found.path == source / "purra_plugin_one" / "purra-plugin.toml"
    assert found.sys_path == (str(source), str(site))


@pytest.mark.parametrize("below", ["", "src/"])
def test_an_editable_install_is_found_by_its_direct_url(tmp_path: Path, below: str) -> None:
    """Where only `direct_url.json` says where the source is, as some backends leave it."""
    site, source = tmp_path / "site", tmp_path / "a source"
    write(source, {f"{below}purra_plugin_one/purra-plugin.toml": manifest("one")})
    direct = {"url": source.as_uri(), "dir_info": {"editable": True}}
    install(
        site,
        "purra-plugin-one",
        entry_points={"one": "purra_plugin_one"},
        info={"direct_url.json": json.dumps(direct)},
    )
    (found,) = discover(path=[str(site)]).plugins
    assert found.state == "ok", found.reason
    assert str((source / below).resolve()) in found.sys_path


def test_what_only_an_import_hook_can_find_is_broken_with_the_remedy(tmp_path: Path) -> None:
    """LIF-008: import lines are never executed, not even to find a plugin."""
    touched = tmp_path / "touched"
    code = f"import os; open({str(touched)!r}, 'w')\n"
    install(
        tmp_path,
        "purra-plugin-one",
        entry_points={"one": "purra_plugin_one"},
        files={"__editable__.one.pth": code},
        info={"direct_url.json": "not JSON"},
    )
    (found,) = discover(path=[str(tmp_path)]).plugins
    assert found.state == "broken"
    assert "only an import hook can find" in found.reason
    assert "install it without -e" in found.hint
    assert not touched.exists()


def test_the_first_on_the_path_wins_and_the_other_is_reported(tmp_path: Path) -> None:
    """H73, H74: a superseded install neither offers dead entry points nor is a conflict."""
    install_plugin(tmp_path / "a", "one", version="2.0")
    install_plugin(tmp_path / "b", "one", version="1.0", distribution="purra_plugin-one")
    result = discover(path=[str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "a")])
    (found,) = result.plugins
    assert (found.state, found.version) == ("ok", "2.0")
    (note,) = result.notes
    assert "purra-plugin-one 1.0" in note and "is hidden by purra-plugin-one 2.0" in note


def test_two_owners_of_one_id_are_a_conflict_that_names_both(tmp_path: Path) -> None:
    """H76, REG-006: neither wins."""
    install_plugin(tmp_path, "one")
    install_plugin(tmp_path, "one", distribution="impostor")
    install_plugin(tmp_path, "two")
    one, two = discover(path=[str(tmp_path)]).plugins
    assert one.state == "conflict" and one.manifest is None
    assert "impostor 1.0" in one.reason and "purra-plugin-one 1.0" in one.reason
    assert two.state == "ok"


def test_folders_are_searched_too(tmp_path: Path) -> None:
    """Design, discovery: a folder is a plugin, or holds plugins one level below."""
    code = {
        "loose/purra-plugin.toml": manifest("loose", package="loose_code"),
        "loose/loose_code.py": "",
    }
    nested = {
        "many/pack/purra-plugin.toml": manifest("pack", package="pack"),
        "many/pack/__init__.py": "",
        "many/broken/purra-plugin.toml": "schema = 5",
    }
    write(tmp_path, {**code, **nested})
    folders = [tmp_path / "loose", tmp_path / "many", tmp_path / "empty"]
    result = discover(path=[], folders=folders)
    found = {item.id: item for item in result.plugins}
    assert {name: item.state for name, item in found.items()} == {
        "loose": "ok",
        "pack": "ok",
        "broken": "broken",
    }
    assert found["loose"].sys_path == (str(tmp_path / "loose"),)
    assert found["pack"].sys_path == (str(tmp_path / "many"),)
    assert any(str(tmp_path / "empty") in note for note in result.notes)


def test_a_folder_that_holds_the_source_of_an_installed_plugin_is_that_plugin(
    tmp_path: Path,
) -> None:
    """H73: one manifest file reached in two ways is one plugin, with a note."""
    install_plugin(tmp_path, "one")
    result = discover(path=[str(tmp_path)], folders=[tmp_path])
    (found,) = result.plugins
    assert found.state == "ok" and found.distribution == "purra-plugin-one"
    assert any("found twice" in note for note in result.notes)


def test_a_folder_and_a_distribution_with_one_id_are_a_conflict(tmp_path: Path) -> None:
    """H76 for folders."""
    install_plugin(tmp_path / "site", "one")
    write(tmp_path / "folder", {"purra-plugin.toml": manifest("one")})
    (found,) = discover(path=[str(tmp_path / "site")], folders=[tmp_path / "folder"]).plugins
    assert found.state == "conflict"
    assert "purra-plugin-one 1.0" in found.reason and str(tmp_path / "folder") in found.reason


def test_a_worker_imports_from_where_its_requirements_are_and_nowhere_else(tmp_path: Path) -> None:
    """Worker paths: each entry is a read grant, so only the closure of requirements is there."""
    user, system, other = tmp_path / "user", tmp_path / "system", tmp_path / "other"
    editable = tmp_path / "editable"
    install_plugin(user, "one")
    metadata = user / "purra_plugin_one-1.0.dist-info" / "METADATA"
    metadata.write_text(
        metadata.read_text() + "Requires-Dist: Lib_A>=1\nRequires-Dist: nonsense ==\n"
    )
    info = {
        "METADATA": "Name: lib-a\nRequires-Dist: lib-b; extra == 'never'\nRequires-Dist: lib-c\n"
    }
    install(system, "lib-a", info=info)
    install(other, "lib-b")
    editable.mkdir()
    install(system, "lib-c", files={"lib_c.pth": str(editable)})
    (found,) = discover(path=[str(user), str(system), str(other)]).plugins
    assert found.sys_path == (str(user), str(system), str(editable))


def test_blocked_ids_are_left_out(tmp_path: Path) -> None:
    """Blocking is pluggy's, by name."""
    install_plugin(tmp_path, "one")
    install_plugin(tmp_path, "two")
    (found,) = discover(path=[str(tmp_path)], blocked=["one"]).plugins
    assert found.id == "two"


def test_a_foreign_distribution_of_our_name_is_reported(tmp_path: Path) -> None:
    """Design, the tree: the name on the index belongs to somebody else."""
    assert discover(path=[str(tmp_path)]).foreign is None
    install(tmp_path, "PurrA", version="1.0.3", files={"purra/__init__.py": ""})
    foreign = discover(path=[str(tmp_path)]).foreign
    assert foreign == f"purra 1.0.3 in {tmp_path}"


def test_a_foreign_distribution_without_our_package_is_harmless(tmp_path: Path) -> None:
    """Only a package that would shadow the kernel matters."""
    install(tmp_path, "purra", files={"purra_other/__init__.py": ""})
    assert discover(path=[str(tmp_path)]).foreign is None


def test_another_version_in_the_manifest_is_noted(tmp_path: Path) -> None:
    """A manifest that was not bumped with its distribution still works, and says so."""
    install_plugin(tmp_path, "one")
    path = tmp_path / "purra_plugin_one" / "purra-plugin.toml"
    path.write_text(manifest("one", version="0.9"))
    (found,) = discover(path=[str(tmp_path)]).plugins
    assert found.state == "ok"
    assert found.notes == ("its manifest says version 0.9",)


def test_unreadable_metadata_costs_its_own_distribution_only(tmp_path: Path) -> None:
    """A file that no parser understands is a note; the other plugins are found."""
    install_plugin(tmp_path, "one")
    points = {"entry_points.txt": "[purra.plugins\nbroken"}
    write(tmp_path / "garbage-1.dist-info", points)
    write(tmp_path / "purra-2.egg-info", {"PKG-INFO": "Name: x\n"})
    result = discover(path=[str(tmp_path), str(tmp_path / "missing")])
    assert [found.id for found in result.plugins] == ["one"]
