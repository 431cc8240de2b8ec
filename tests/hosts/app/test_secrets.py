"""Where a granted secret goes: to its plugin, and nowhere that lasts or is read by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.journal.events import event_value
from purra.manifest.host import Caller
from purra_hosts.app.assembly import Watchers, open_application
from purra_hosts.app.plan import make_plan

SECRET = "s3cr3t-of-the-operator"
CODE = """
import sys
from purra_sdk import Plugin, model, tool
from purra_sdk.items import content, finish, tool_call

@model("once")
class Once:
    def profile(self, call):
        return {"window": 8000, "output_limit": 500, "features": ["tools"]}

    def generate(self, call, request):
        if request["messages"][-1]["role"] == "tool":
            yield content("done")
            yield finish("stop")
        else:
            yield tool_call(0, "c", "use", "{}")
            yield finish("tool_calls")

@tool(effect="external_read")
def use(call):
    secret = call.ask("secret", "get", {"name": "MINE"})["value"]
    assert len(secret) == 22
    print("key is", secret)
    print("key is", secret, file=sys.stderr)
    call.log("info", f"key is {secret}")
    raise RuntimeError(f"refused: {secret}")

plugin = Plugin(models=[Once], tools=[use])
"""
PLUGIN = """
schema = "purra.plugin/1"
id = "uses"
version = "1"
summary = "Uses a secret, carelessly"
[host]
kind = "process"
entry = "uses_plugin:plugin"
[capabilities]
host = ["secret:MINE"]
[[provides]]
kind = "model"
name = "once"
summary = "Once"
[[provides]]
kind = "tool"
name = "use"
summary = "Uses it"
effect = "external_read"
input = { type = "object", properties = {} }
"""
HOST = """
schema = "purra.host/1"
name = "uses"
[agent]
id = "a"
revision = "1"
model = "uses/once"
tools = ["uses/use"]
store = "sqlite/journal"
[plugins.uses]
secrets = { MINE = "env:USES_MINE" }
[plugins.sqlite]
config = { path = "{state}/uses.db" }
grants = { fs.write = ["{state}"] }
[discovery]
folders = ["."]
"""


def test_a_secret_is_stored_and_logged_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-09, PLG-17, invariant 14: not by a plugin's print, log line or error, nor in its
    environment and arguments, nor in any file that the run leaves."""
    monkeypatch.setenv("USES_MINE", SECRET)
    folder = tmp_path / "uses"
    folder.mkdir()
    (folder / "uses_plugin.py").write_text(CODE)
    (folder / "purra-plugin.toml").write_text(PLUGIN)
    (tmp_path / "host.toml").write_text(HOST)
    state = tmp_path / "state"
    logs: list[dict[str, Any]] = []
    told: list[tuple[str, str]] = []
    watchers = Watchers(logs.append, lambda kind, data: told.append((kind, repr(data))))

    async def main() -> None:
        plan = make_plan(tmp_path / "host.toml", Caller(state=state))
        async with open_application(plan, watchers=watchers) as application:
            run = await application.kernel.submit("go")
            result = await run.wait()
            assert result.text == "done"
            events = [event async for event in application.kernel.runs.events(run.id, follow=False)]
            (called,) = [event for event in events if event.kind == "tool.call.completed"]
            assert "RuntimeError" in repr(called.data)
            assert SECRET not in repr([event_value(event) for event in events])
            process = Path(f"/proc/{application.routes['uses'].status().pid}")
            assert SECRET.encode() not in (process / "environ").read_bytes()
            assert SECRET.encode() not in (process / "cmdline").read_bytes()
            assert SECRET not in repr(application.kernel.about)

    anyio.run(main)
    lines = [record["text"] for record in logs if "key is" in record["text"]]
    assert len(lines) == 3 and SECRET not in repr(logs) + repr(told)
    kept = [path for path in state.rglob("*") if path.is_file()]
    assert kept and all(SECRET.encode() not in path.read_bytes() for path in kept)
