"""What a plugin asks for and was not granted stands in the journal of the run that it happened in
(CAP-001, audited)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from purra_hosts.app.assembly import open_kernel

CODE = """
import json
from purra_sdk import Plugin, PluginError, model, tool
from purra_sdk.items import content, finish, tool_call

@model("once")
class Once:
    def profile(self, call):
        return {"window": 8000, "output_limit": 500, "features": ["tools"]}

    def generate(self, call, request):
        if request["messages"][-1]["role"] == "tool":
            yield content(str(request["messages"][-1]["content"]))
            yield finish("stop")
        else:
            name = request["messages"][-1]["content"]
            yield tool_call(0, "c", "ask", json.dumps({"name": name}))
            yield finish("tool_calls")

@tool(effect="pure")
def ask(call, name):
    try:
        return call.ask("secret", "get", {"name": name})
    except PluginError as error:
        return error.code

plugin = Plugin(models=[Once], tools=[ask])
"""
PLUGIN = """
schema = "purra.plugin/1"
id = "asks"
version = "1"
summary = "Asks for secrets"
[host]
kind = "process"
entry = "asks_plugin:plugin"
[capabilities]
host = ["secret:MINE", "secret:OTHER"]
[[provides]]
kind = "model"
name = "once"
summary = "Once"
[[provides]]
kind = "tool"
name = "ask"
summary = "Asks"
effect = "pure"
input = { type = "object", properties = { name = { type = "string" } }, required = ["name"] }
"""
HOST = """
schema = "purra.host/1"
name = "asks"
[agent]
id = "a"
revision = "1"
model = "asks/once"
tools = ["asks/ask"]
[plugins.asks]
secrets = { MINE = "env:ASKS_MINE" }
[discovery]
folders = ["."]
"""


def test_a_denial_stands_in_its_runs_journal_and_a_grant_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PLG-16: what was declared and not granted, or not even declared, is denied, told, and not
    done."""
    monkeypatch.setenv("ASKS_MINE", "s3cr3t-of-mine")
    folder = tmp_path / "asks"
    folder.mkdir()
    (folder / "asks_plugin.py").write_text(CODE)
    (folder / "purra-plugin.toml").write_text(PLUGIN)
    (tmp_path / "host.toml").write_text(HOST)

    async def main() -> None:
        async with open_kernel(tmp_path / "host.toml") as kernel:
            for name, text, grants in (
                ("MINE", "s3cr3t-of-mine", []),
                ("OTHER", "capability_denied", [("secret:OTHER", True)]),
                ("NONE", "capability_denied", [("secret:NONE", False)]),
            ):
                run = await kernel.submit(name)
                result = await run.wait()
                assert result.status == "completed" and text in result.text
                events = [event async for event in kernel.runs.events(run.id, follow=False)]
                denied = [event.data for event in events if event.kind == "plugin.denied"]
                assert [(d["grant"], d["declared"]) for d in denied] == grants

    anyio.run(main)
