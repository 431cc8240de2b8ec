"""The example that is not Python: discovered from its folder, run as any plugin, no SDK of ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from purra.errors import PurraError
from purra.manifest.host import Caller
from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.app.assembly import open_application
from purra_hosts.app.plan import make_plan
from purra_hosts.process.route import Route

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
HOST = """
schema = "purra.host/1"
name = "node"
[discovery]
folders = ["{folder}"]
[agent]
id = "counter"
revision = "1"
model = "scripted/script"
tools = ["node-text/text.count", "node-text/text.countdown"]
[plugins.node-text]
[plugins.scripted.config]
steps = [
  {{ calls = [{{ name = "text.count", arguments = {{ text = "naïve\\nplugin 🐾" }} }}] }},
  {{ expect = {{ last_contains = '"words":3' }}, content = "Three words." }},
]
[isolation]
level = "none"
"""

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def host_file(folder: Path) -> Path:
    path = folder / "host.toml"
    path.write_text(HOST.format(folder=EXAMPLES))
    return path


@pytest.mark.anyio
async def test_a_run_uses_its_tool(tmp_path: Path) -> None:
    """Issue D 8, PLG-19: discovered from a folder, started, governed and journaled as any other."""
    plan = make_plan(host_file(tmp_path), Caller(state=tmp_path / "state"))
    async with open_application(plan) as application:
        run = await application.kernel.submit("count")
        result = await run.wait()
        assert (result.status, result.text) == ("completed", "Three words."), result.error
        (done,) = [e async for e in run.events() if e.kind == "tool.call.completed"]
    assert dict(done.data["value"]) == {"words": 3, "characters": 14, "lines": 2}


@pytest.mark.anyio
async def test_it_streams_within_credit_and_stops_when_cancelled(tmp_path: Path) -> None:
    """STR-003, CAN-002: items in order; a cancel ends the tool, and the next call works."""
    plan = make_plan(host_file(tmp_path), Caller(state=tmp_path / "state"))
    async with open_application(plan) as application:
        route: Route = application.routes["node-text"]
        seen: list[int] = []
        arguments = {"arguments": {"from": 40, "step_ms": 1}}
        request = Request("text.countdown", "call", arguments, window_bytes=200)
        result = await route.call(request, lambda item: seen.append(item["left"]))
        assert result == {"value": {"done": True}}
        assert seen == list(range(40, 0, -1))

        items = route.stream(Request("text.countdown", "call", {"arguments": {"from": 1000}}))
        assert await anext(items) == {"left": 1000}
        await items.aclose()
        with anyio.fail_after(5):
            count = Request("text.count", "call", {"arguments": {"text": ""}})
            assert (await route.call(count))["value"]["words"] == 0


@pytest.mark.anyio
async def test_a_failing_tool_is_told_by_its_type_only(tmp_path: Path) -> None:
    """CAL-005: a coded error; the text of the exception stays in the log."""
    plan = make_plan(host_file(tmp_path), Caller(state=tmp_path / "state"))
    async with open_application(plan) as application:
        route: Route = application.routes["node-text"]
        with pytest.raises(WireError) as caught:
            await route.call(Request("text.count", "call", {"arguments": {}}))
        assert (caught.value.code, caught.value.executed) == ("internal", "yes")
        assert caught.value.detail["type"] == "TypeError"


def test_its_manifest_is_checked_as_any_other(tmp_path: Path) -> None:
    """MAN-001: a typo is one coded error that names the file and the key."""
    folder = tmp_path / "plugins" / "node"
    shutil.copytree(EXAMPLES / "node", folder)
    manifest = folder / "purra-plugin.toml"
    manifest.write_text(manifest.read_text().replace("timeout_s = 5", "timeout = 5"))
    host = host_file(tmp_path)
    host.write_text(host.read_text().replace(str(EXAMPLES), str(folder.parent)))
    with pytest.raises(PurraError, match="timeout") as caught:
        make_plan(host, Caller(state=tmp_path / "state"))
    assert caught.value.code == "plugin_broken"
