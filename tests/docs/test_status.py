"""What the pages call missing is missing, with the code that they name.

A test here that fails because something was built is good news: the row in `docs/status.md`, and
the line in the README, have to go.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Final

import anyio
import pytest
import typer.main

import purra
from purra.errors import PurraError
from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.app.assembly import open_application
from purra_hosts.app.main import build
from purra_hosts.app.plan import make_plan
from tests.docs.pages import ROOT

STATUS: Final = (ROOT / "docs" / "status.md").read_text()

PLUGIN: Final = """
from purra_sdk import Plugin, model, tool
from purra_sdk.items import finish, tool_call

@model("asks")
class Asks:
    def profile(self, call):
        return {"window": 8000, "output_limit": 500, "features": []}

    def generate(self, call, request):
        yield tool_call(0, "c1", "burn", "{}")
        yield finish("tool_calls")

@tool(effect="irreversible")
def burn():
    return {}

@tool(effect="pure")
def back(call):
    return call.ask("model", "generate", {})

plugin = Plugin(models=[Asks], tools=[burn, back])
"""
MANIFEST: Final = """
schema = "purra.plugin/1"
id = "page"
version = "1"
summary = "For the status page"
[host]
kind = "KIND"
entry = "page:plugin"
[capabilities]
host = ["memory"]
[[provides]]
kind = "model"
name = "asks"
summary = "Asks for a tool"
[[provides]]
kind = "tool"
name = "burn"
summary = "Destroys"
effect = "irreversible"
[[provides]]
kind = "tool"
name = "back"
summary = "Calls back"
effect = "pure"
"""
DYNAMIC: Final = """
[[provides]]
kind = "tool"
name = "remote"
summary = "Known later"
catalog = "dynamic"
effect = "pure"
"""
HOST: Final = """
schema = "purra.host/1"
name = "page"
TOP
[agent]
id = "page"
revision = "1"
model = "page/asks"
tools = ["page/burn", "page/TOOL"]
AGENT
[plugins.page]
GRANTS
[discovery]
folders = ["plugin"]
"""


BACK: Final = Request("back", "call", {"arguments": {}})


def host(folder: Path, *, kind: str = "process", dynamic: str = "", **parts: str) -> Path:
    """A host manifest that is right but for what `parts` put into it, and its plugin."""
    plugin = folder / "plugin"
    plugin.mkdir()
    (plugin / "page.py").write_text(PLUGIN)
    (plugin / "purra-plugin.toml").write_text(MANIFEST.replace("KIND", kind) + dynamic)
    text = HOST
    for name, default in {"top": "", "agent": "", "grants": "", "tool": "back"}.items():
        text = text.replace(name.upper(), parts.get(name, default))
    (folder / "host.toml").write_text(text)
    return folder / "host.toml"


def says(code: str, row: str) -> None:
    """The table has a row of that text with that code."""
    found = [line for line in STATUS.splitlines() if line.startswith("|") and row in line]
    assert found and f"`{code}`" in found[0], f"docs/status.md: no row about {row} with {code}"


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ("middleware", {"agent": 'middleware = ["m"]'}),
        ("[hooks] use", {"top": '[hooks]\nuse = ["h"]'}),
        ("dynamic", {"dynamic": DYNAMIC, "tool": "remote.one"}),
        ("host service", {"grants": 'grants = { host = ["memory"] }'}),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path: Path, row: str, asked: dict[str, str]) -> None:
    with pytest.raises(PurraError) as refused:
        make_plan(host(tmp_path, **asked))
    assert refused.value.code == "unsupported"
    says("unsupported", row)


def test_the_same_manifest_is_right_without_it(tmp_path: Path) -> None:
    assert set(make_plan(host(tmp_path)).launches) == {"page"}


def test_isolation_and_restarts_are_as_told(tmp_path: Path) -> None:
    """Both ways: what is there is not called missing, what is missing is not kept quiet."""
    plan = make_plan(host(tmp_path))

    async def main() -> None:
        async with open_application(plan) as application:
            route = application.routes["page"]
            await route.start()
            nothing = set(route.status().isolation.values()) == {"none"}
            assert nothing == ("Each axis reports `none`" in STATUS)
            with pytest.raises(WireError) as denied:
                await route.call(BACK)
            assert denied.value.code == "capability_denied"
            pid = route.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WireError) as crashed:
                await route.call(BACK)
            assert crashed.value.code == "crashed"
            with pytest.raises(WireError) as again:
                await route.call(BACK)
            stays_down = (again.value.code, again.value.executed) == ("crashed", "no")
            assert stays_down == ("stays down until" in STATUS)

    anyio.run(main)
    says("capability_denied", "callback")


def test_a_write_in_this_process_must_be_wanted(tmp_path: Path) -> None:
    with pytest.raises(PurraError) as refused:
        make_plan(host(tmp_path, kind="inproc"))
    assert refused.value.code == "invalid_manifest"
    says("invalid_manifest", "inproc")


def test_nobody_can_approve(tmp_path: Path) -> None:
    async def main() -> purra.Result:
        async with purra.open_kernel(host(tmp_path)) as kernel:
            return await (await kernel.submit("Burn it.")).wait()

    result = anyio.run(main)
    assert result.error and result.error["code"] == "approval_unavailable"
    says("approval_unavailable", "approval")


def test_the_commands_are_all_named() -> None:
    """`run`, `runs list|show|...`: as the program itself lists them."""
    listed = " ".join(STATUS.partition("- Commands: ")[2].partition("\n\n")[0].split())
    named: set[str] = set()
    for words in re.findall(r"`([^`]+)`", listed):
        group, _, commands = words.partition(" ")
        named |= {f"{group} {command}" for command in commands.split("|")} if commands else {group}
    there: set[str] = set()
    root = typer.main.get_command(build([]))
    for name, command in getattr(root, "commands", {}).items():
        inner = getattr(command, "commands", None)
        there |= {f"{name} {sub}" for sub in inner} if inner else {name}
    foreign = {name for name in there if name.startswith("tck")}  # an entry point of its own
    assert named == there - foreign, "the line «Commands» of docs/status.md is not what there is"
