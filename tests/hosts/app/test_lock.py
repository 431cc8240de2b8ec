"""`purra plugins lock`: these plugins and no others (issue D, part 2)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from purra.errors import PurraError
from purra_hosts.app.locking import locked_text
from purra_hosts.app.scaffold.package import write_package
from tests.hosts.app.authoring import PURRA, command, mutate, package_of

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_package("weather", "tool", tmp_path)


def test_what_is_locked_runs_and_drift_is_refused(project: Path) -> None:
    """Before anything starts, with the place and the mend; locking anew is how it is accepted."""
    before = (project / "try.toml").read_text()
    said = command([PURRA, "plugins", "lock", "try.toml"], project).stdout
    assert [line.split(":")[0] for line in said.splitlines()] == ["weather 0.1.0", "scripted 0.1.0"]
    locked = (project / "try.toml").read_text()
    added = [line for line in locked.splitlines() if line not in before.splitlines()]
    assert [line[:17] for line in added if line.startswith("digest")] == ['digest = "sha256:'] * 2
    command([PURRA, "run", "try.toml", "What now?"], project)

    mutate(package_of(project) / "purra-plugin.toml", "timeout_s = 10", "timeout_s = 11")
    for refused in (["run", "try.toml", "What now?"], ["manifest", "check", "try.toml"]):
        said = command([PURRA, *refused], project, code=4).stderr
        assert "plugins.weather.digest: the manifest of weather 0.1.0 is not the one" in said
        assert said.endswith("[plugin_drift] (look at what changed, then `purra plugins lock`)\n")
        assert said.count("\n") == 1

    again = command([PURRA, "plugins", "lock", "try.toml", "--json"], project).stdout
    rows = {row["plugin"]: row for row in map(json.loads, again.splitlines())}
    assert rows["scripted"]["before"] == rows["scripted"]["digest"]
    assert rows["weather"]["before"] not in (None, rows["weather"]["digest"])
    command([PURRA, "run", "try.toml", "What now?"], project)


def test_a_plugin_that_is_not_there_cannot_be_locked(project: Path) -> None:
    with (project / "try.toml").open("a") as file:
        file.write("[plugins.nobody]\n")
    before = (project / "try.toml").read_text()
    said = command([PURRA, "plugins", "lock", "try.toml"], project, code=4).stderr
    assert "plugins.nobody: no plugin 'nobody' is installed [plugin_not_found]" in said
    assert (project / "try.toml").read_text() == before


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "[plugins.a]  # mine\nconfig = 1\n\n[plugins.b]\n",
            f'[plugins.a]  # mine\ndigest = "{A}"\nconfig = 1\n\n[plugins.b]\ndigest = "{B}"\n',
        ),
        (
            f'[plugins.a]\nconfig = 1\ndigest = "{B}"\n# c\n[plugins.b]\ndigest = "{B}"\n',
            f'[plugins.a]\ndigest = "{A}"\nconfig = 1\n# c\n[plugins.b]\ndigest = "{B}"\n',
        ),
        (
            "[plugins.a.config]\ndigest = 1\n[plugins.b]\n[plugins.b.config]\nx = 1\n",
            f'[plugins.a]\ndigest = "{A}"\n[plugins.a.config]\ndigest = 1\n'
            f'[plugins.b]\ndigest = "{B}"\n[plugins.b.config]\nx = 1\n',
        ),
        (
            '[plugins."a"]\n[ plugins . b ]',
            f'[plugins."a"]\ndigest = "{A}"\n[ plugins . b ]\ndigest = "{B}"\n',
        ),
    ],
)
def test_one_line_of_each_section_changes(text: str, wanted: str) -> None:
    made = locked_text(Path("x"), text, {"a": A, "b": B})
    assert made == wanted
    assert tomllib.loads(made)["plugins"]["a"]["digest"] == A
    assert locked_text(Path("x"), made, {"a": A, "b": B}) == made


@pytest.mark.parametrize(
    "text", ["[plugins]\na = {}\n", "plugins.a.config = 1\n", "plugins.a = {}\n"]
)
def test_a_section_that_is_no_table_of_its_own_is_left_to_its_author(text: str) -> None:
    with pytest.raises(PurraError, match="not a table of its own") as refused:
        locked_text(Path("x"), text, {"a": A})
    assert refused.value.hint == "write each plugin as [plugins.ID]"
