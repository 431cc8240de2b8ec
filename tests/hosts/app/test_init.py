"""`purra init`: a host manifest from answers, right before it is there (issue D, part 6)."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from purra.errors import PurraError
from purra.manifest.host import Caller, load_host
from purra.registry.discovery import Discovery, discover
from purra_hosts.app.commands.init import _Asks
from purra_hosts.app.matching import match
from purra_hosts.app.scaffold.application import Answers, manifest_text, offered
from purra_hosts.app.scaffold.package import write_package
from tests.hosts.app.authoring import PURRA, command

INSTALLED = discover()
TOOLS = [choice.address for choice in offered(INSTALLED)["tool"]]


def accepted(text: str, folder: Path, discovery: Discovery = INSTALLED) -> Path:
    """The text as a file that loader and matching take."""
    path = folder / "purra.toml"
    path.write_text(text)
    host = load_host(path, Caller(state=folder / "state", environment={}))
    match(host, discovery)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "keys.txt").write_text("The green key opens the shed.\n")
    return tmp_path


def test_without_a_question_it_makes_an_agent_that_works(place: Path) -> None:
    """The first model and store, and the tools that only read; nothing may write but the store."""
    made = command([PURRA, "init", "--root", "notes", "--name", "keys"], place)
    assert made.stdout.startswith("purra.toml: offline/extractive, files/fs.list, ")
    command([PURRA, "manifest", "check", "purra.toml"], place)
    ran = command([PURRA, "run", "purra.toml", "What does the green key open?"], place)
    assert "keys.txt:1" in ran.stdout
    table = tomllib.loads((place / "purra.toml").read_text())
    assert table["name"] == "keys"
    grants = {name: part.get("grants", {}) for name, part in table["plugins"].items()}
    writers = {name for name, granted in grants.items() if "write" in granted.get("fs", {})}
    assert writers == {"sqlite"}
    assert table["plugins"]["files"]["grants"] == {"fs": {"read": ["{params.root}"]}}


def test_what_is_asked_for_is_what_is_written(place: Path) -> None:
    steps = 'scripted.steps=[{ content = "Hello." }]'
    flags = ["--model", "scripted/script", "--config", steps, "--tool", "files/fs.write"]
    flags += ["--context", "agentsmd/memory", "--config", 'agentsmd.files=["notes/keys.txt"]']
    told = command([PURRA, "init", "app.toml", *flags, "--store", "none", "--json"], place).stdout
    assert json.loads(told)["plugins"] == ["scripted", "files", "agentsmd"]
    table = tomllib.loads((place / "app.toml").read_text())
    assert table["agent"]["tools"] == ["files/fs.write"]
    assert "store" not in table["agent"]
    assert table["plugins"]["files"]["grants"] == {"fs": {"write": ["{params.root}"]}}
    assert command([PURRA, "run", "app.toml", "Well?"], place).stdout.strip() == "Hello."


def test_a_value_that_only_a_person_knows_is_asked_for_by_name(place: Path) -> None:
    ran = command([PURRA, "init", "--context", "agentsmd/memory"], place, code=2)
    assert ran.stderr.startswith("error init: agentsmd needs a value for 'files': ")
    assert "give it with --config agentsmd.files=VALUE" in ran.stderr
    assert not (place / "purra.toml").exists()


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--model", "offline/extractve"], 4, "did you mean 'extractive'?"),
        (["--model", "files/fs.read"], 4, "the plugin offers no model of that name"),
        (["--tool", "nobody/here"], 4, "no plugin 'nobody' is installed"),
        (["--store", "sqlite"], 2, "write PLUGIN-ID/NAME"),
        (["--config", "files.root"], 2, "is not PLUGIN.KEY=VALUE"),
        (["--config", "files.root=3"], 4, "3 is not of type 'string'"),
        (["--name", "My App"], 4, "write 'my-app'"),
        (["sub/purra.toml"], 2, "cannot be written"),
    ],
)
def test_a_wrong_answer_is_one_line_and_leaves_nothing(
    flags: list[str], code: int, said: str, place: Path
) -> None:
    ran = command([PURRA, "init", *flags], place, code=code)
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert {path.name for path in place.iterdir()} == {"notes", ".home"}


def test_nothing_is_overwritten(place: Path) -> None:
    (place / "purra.toml").write_text("mine")
    ran = command([PURRA, "init"], place, code=2)
    assert "purra.toml is there already" in ran.stderr
    assert (place / "purra.toml").read_text() == "mine"


def test_paths_mean_the_same_from_another_folder(place: Path) -> None:
    """`--root` is typed relative to the current folder, and written relative to the manifest."""
    (place / "deep").mkdir()
    command([PURRA, "init", "deep/app.toml", "--root", "notes"], place)
    table = tomllib.loads((place / "deep" / "app.toml").read_text())
    assert table["params"]["root"] == "../notes"


def test_without_a_model_nothing_can_be_made() -> None:
    empty = Discovery((), (), None)
    with pytest.raises(PurraError, match="no installed plugin offers a model") as refused:
        _Asks(empty, asks=False).one("model", "")
    assert refused.value.code == "plugin_not_found"


@pytest.mark.parametrize("address", TOOLS)
def test_each_tool_gets_what_it_needs_and_no_more(address: str, tmp_path: Path) -> None:
    answers = Answers("one", "offline/extractive", (address,))
    text = manifest_text(answers, INSTALLED)
    path = accepted(text, tmp_path)
    assert ("fs.write" in path.read_text().partition("[plugins.files]")[2]) == (
        address == "files/fs.write"
    )


def test_what_a_plugin_requires_and_wants_is_written(tmp_path: Path) -> None:
    """Required plugins are named, secrets come from variables, irreversible tools get an inbox."""
    project = write_package("desk", "tool", tmp_path)
    (manifest,) = project.glob("*/purra-plugin.toml")
    text = manifest.read_text()
    text = text.replace("[host]", '[requires]\noffline = ">=0.1"\n[host]')
    text = text.replace('network = "none"', 'network = ["a.example:443"]\nhost = ["secret:KEY"]')
    text = text.replace('effect = "pure"', 'effect = "irreversible"')
    text = text.replace('approval = "never"', 'approval = "required"')
    manifest.write_text(text)
    found = discover(folders=[project])
    answers = Answers("desk", "scripted/script", ("desk/desk.count",), store="sqlite/journal")
    made = tomllib.loads(accepted(manifest_text(answers, found), tmp_path, found).read_text())
    assert list(made["plugins"]) == ["scripted", "desk", "sqlite", "offline"]
    assert made["plugins"]["desk"]["secrets"] == {"KEY": "env:KEY"}
    assert made["plugins"]["desk"]["grants"] == {"network": ["a.example:443"]}
    assert made["agent"]["approvals"] == "inbox"


def typed(argv: list[str], folder: Path, answers: list[str]) -> str:
    """A session on a terminal: each answer is typed when a prompt (`]: `) is there."""
    near, far = pty.openpty()
    process = subprocess.Popen(
        argv, cwd=folder, stdin=far, stdout=far, stderr=far, env={**os.environ, "NO_COLOR": "1"}
    )
    os.close(far)
    shown = "".join(_played(near, iter(answers)))
    os.close(near)
    assert process.wait(30) == 0, shown
    return shown


def _played(near: int, answers: Iterator[str]) -> Iterator[str]:
    deadline_s = time.monotonic() + 60
    asked = ""
    while time.monotonic() < deadline_s:
        if not select.select([near], [], [], 1)[0]:
            continue
        try:
            text = os.read(near, 65536).decode()
        except OSError:  # the other end is closed: the command has ended
            return
        yield text
        asked += text
        if asked.endswith(("]: ", "): ")):
            os.write(near, (next(answers) + "\n").encode())
            asked = ""


def test_on_a_terminal_it_asks_and_shows_what_there_is(place: Path) -> None:
    answers = ["", "", "files/fs.list, files/fs.grep", "agentsmd/memory", "none", '["AGENTS.md"]']
    shown = typed([str(PURRA), "init", "--root", "notes"], place, answers)
    for address in ("offline/extractive", "files/fs.write", "sqlite/journal"):
        assert address in shown
    assert "agentsmd.files (Files in the order" in shown
    table = tomllib.loads((place / "purra.toml").read_text())
    assert table["agent"]["model"] == "offline/extractive"
    assert table["agent"]["tools"] == ["files/fs.list", "files/fs.grep"]
    assert table["plugins"]["agentsmd"]["config"] == {"files": ["AGENTS.md"]}
    assert "store" not in table["agent"]
