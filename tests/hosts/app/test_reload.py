"""Replacing a plugin under runs: by the application, and asked for from another process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.errors import AdapterError, PurraError
from purra.manifest.host import Caller
from purra.runs.run import Run
from purra_hosts.app.assembly import Application, open_application
from purra_hosts.app.plan import make_plan

PLUGIN = """
import json, os, time
from purra_sdk import Plugin, model, tool
from purra_sdk.items import content, finish, tool_call

GATE = {gate!r}

@model("twice")
class Twice:
    '''Calls the tool twice, then says what it gave.'''
    def profile(self, call):
        return {{"window": 8000, "output_limit": 500, "features": ["tools"]}}

    def generate(self, call, request):
        seen = [m["content"] for m in request["messages"] if m["role"] == "tool"]
        if len(seen) == 1:
            open(GATE + ".reached", "w").close()
            while not os.path.exists(GATE):
                time.sleep(0.005)
        if len(seen) == 2:
            yield content(" ".join(json.dumps(s) if not isinstance(s, str) else s for s in seen))
            yield finish("stop")
        else:
            names = sorted(t["name"] + ":" + t["description"] for t in request["tools"])
            yield tool_call(0, f"c{{len(seen)}}", "tell", json.dumps({{"offered": names[0]}}))
            yield finish("tool_calls")

@tool(effect="pure")
def tell(call, offered):
    return {{"version": {version!r}, "offered": offered, "generation": call.setup.generation}}

plugin = Plugin(tools=[tell])
minds = Plugin(models=[Twice])
"""
MANIFEST = """
schema = "purra.plugin/1"
id = "{id}"
version = "{version}"
summary = "{summary}"
[host]
kind = "process"
entry = "{module}:{entry}"
[limits]
threads = 4
[[provides]]
{provides}
"""
TELL = """kind = "tool"
name = "tell"
summary = "{summary}"
effect = "pure"
input = {{ type = "object", properties = {{ offered = {{ type = "string" }} }} }}
"""
TWICE = 'kind = "model"\nname = "twice"\nsummary = "Twice"\n'
HOST = """
schema = "purra.host/1"
name = "reloads"
[agent]
id = "a"
revision = "1"
model = "mind/twice"
tools = ["teller/tell"]
store = "sqlite/journal"
[plugins.mind]
[plugins.teller]
[plugins.sqlite]
config = {{ path = "{{state}}/runs.db" }}
grants = {{ fs.write = ["{{state}}"] }}
[discovery]
folders = ["{plugins}"]
[isolation]
level = "none"
"""


class Scene:
    """A host manifest and two plugin folders that can be installed anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = folder / "gate"
        self.plugins = folder / "plugins"
        self.path = folder / "purra.toml"
        self.path.write_text(HOST.format(plugins=self.plugins))
        self.install("1.0")
        mind = self.plugins / "mind"
        mind.mkdir()
        code = PLUGIN.format(gate=str(self.gate), version="1.0")
        (mind / "mind_plugin.py").write_text(code)
        values = {"id": "mind", "version": "1.0", "summary": "Thinks", "entry": "minds"}
        text = MANIFEST.format(module="mind_plugin", provides=TWICE, **values)
        (mind / "purra-plugin.toml").write_text(text)

    def install(self, version: str, summary: str = "Tells", *, code: str | None = None) -> None:
        """Puts a version of the plugin `teller` into its place."""
        folder = self.plugins / "teller"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plain = PLUGIN.format(gate=str(self.gate), version=version)
        (folder / "teller_plugin.py").write_text(plain if code is None else code)
        values = {"id": "teller", "version": version, "summary": summary, "entry": "plugin"}
        text = MANIFEST.format(
            module="teller_plugin", provides=TELL.format(summary=summary), **values
        )
        (folder / "purra-plugin.toml").write_text(text)

    def run(self, body: Callable[[Application], Awaitable[None]]) -> None:
        plan = make_plan(self.path, Caller(state=self.folder / "state"))

        async def main() -> None:
            with anyio.fail_after(30):
                async with open_application(plan) as application:
                    await body(application)

        anyio.run(main)

    async def half_way(self, application: Application) -> Run:
        """A run that has called the tool once, and asks the model for its second round."""
        run = await application.kernel.submit("go")
        reached = Path(f"{self.gate}.reached")
        while not reached.exists():
            await anyio.sleep(0.005)
        reached.unlink()
        return run

    async def told(self, run: Run) -> list[dict[str, Any]]:
        self.gate.touch()
        result = await run.wait()
        self.gate.unlink()
        assert (result.status, result.error) == ("completed", None)
        decoder, text, found = json.JSONDecoder(), result.text, []
        while text:
            value, end = decoder.raw_decode(text)
            found.append(json.loads(value) if isinstance(value, str) else value)
            text = text[end:].lstrip()
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_same_offers_change_hands_in_the_middle_of_a_run(scene: Scene) -> None:
    """REG-002, SHD-006: contracts are equal, so the next call is the new generation's; no epoch."""

    async def body(application: Application) -> None:
        epoch = application.kernel.epoch
        run = await scene.half_way(application)
        scene.install("1.1")
        done = await application.reload("teller")
        assert (done.version, done.generation, done.epoch) == ("1.1", 2, epoch)
        first, second = await scene.told(run)
        assert (first["version"], second["version"]) == ("1.0", "1.1")
        assert application.routes["teller"].launch.version == "1.1"

    scene.run(body)


def test_changed_offers_are_a_new_epoch_and_a_run_keeps_its_own(scene: Scene) -> None:
    """PLG-07, invariant 5, REG-002, REG-003: retire, drain, release; a run sees one set of
    offers."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        epoch = kernel.epoch
        old = application.routes["teller"]
        run = await scene.half_way(application)
        scene.install("2.0", "Tells anew")
        done = await application.reload("teller")
        assert (done.changed, done.epoch) == (("teller/tell",), epoch + 1)
        assert application.routes["teller"] is not old
        other = await scene.half_way(application)
        assert old.status().state == "ready"
        told = await scene.told(run)
        assert [(t["version"], t["offered"]) for t in told] == [("1.0", "tell:Tells")] * 2
        while old.status().state != "stopped":  # released, because its last run has ended
            await anyio.sleep(0.005)
        assert (await other.wait()).status == "completed"
        last = await scene.told(await scene.half_way(application))
        assert {(t["version"], t["offered"]) for t in last} == {("2.0", "tell:Tells anew")}
        assert {t["generation"] for t in last} == {2}

    scene.run(body)


@pytest.mark.parametrize("summary", ["Tells", "Tells anew"])
def test_what_does_not_start_changes_nothing(scene: Scene, summary: str) -> None:
    """SHD-007: the old one serves, the epoch is the same, with changed offers and without."""

    async def body(application: Application) -> None:
        epoch, old = application.kernel.epoch, application.routes["teller"]
        run = await scene.half_way(application)
        scene.install("2.0", summary, code="raise SystemExit('broken')")
        with pytest.raises(AdapterError) as caught:
            await application.reload("teller")
        assert caught.value.code == "internal" and "broken" in caught.value.message
        told = await scene.told(run)
        assert {(t["version"], t["generation"]) for t in told} == {("1.0", 1)}
        assert application.routes["teller"] is old and application.kernel.epoch == epoch

    scene.run(body)


def test_what_cannot_be_reloaded_says_so(scene: Scene) -> None:
    async def body(application: Application) -> None:
        with pytest.raises(PurraError) as caught:
            await application.reload("nobody")
        assert caught.value.code == "plugin_not_found"
        manifest = scene.plugins / "teller" / "purra-plugin.toml"
        manifest.write_text(manifest.read_text().replace('name = "tell"', 'name = "other"'))
        with pytest.raises(PurraError) as caught:
            await application.reload("teller")
        assert caught.value.code == "adapter_not_found"
        scene.path.write_text(scene.path.read_text().replace("[plugins.teller]", ""))
        with pytest.raises(PurraError) as caught:
            await application.reload("teller")
        assert caught.value.code == "invalid_manifest"

    scene.run(body)


def test_another_process_asks_for_it(scene: Scene) -> None:
    """Tables, store keys: through `kernel/<id>/inbox`; the answer comes back, good or bad."""

    async def ask(*more: str) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable, "-m", "purra_hosts.app", "plugins", "reload", *more]
        places = ["--manifest", str(scene.path), "--state", str(scene.folder / "state")]
        return await anyio.run_process([*argv, *places], check=False, env=dict(os.environ))

    async def body(application: Application) -> None:
        run = await scene.half_way(application)
        scene.install("1.1")
        done = await ask("teller")
        assert done.returncode == 0, done.stderr
        assert b": teller 1.1, generation 2\n" in done.stdout
        assert [t["version"] for t in await scene.told(run)] == ["1.0", "1.1"]
        scene.install("1.2", code="raise SystemExit('broken')")
        done = await ask("teller", "--json")
        assert done.returncode == 1
        (line,) = done.stdout.splitlines()
        answer = json.loads(line)["answer"]
        assert answer["ok"] is False and answer["code"] == "internal"
        assert application.routes["teller"].status().state == "ready"
        done = await ask("nobody")
        assert done.returncode != 0 and b"no running kernel has the plugin" in done.stderr

    scene.run(body)


def test_a_plugin_in_this_process_serves_a_run_and_is_not_reloaded(scene: Scene) -> None:
    """Invariant 1: the host manifest names it; its code stays as it was loaded."""
    manifest = scene.plugins / "teller" / "purra-plugin.toml"
    manifest.write_text(manifest.read_text().replace('kind = "process"', 'kind = "inproc"'))

    async def body(application: Application) -> None:
        run = await scene.half_way(application)
        status = application.routes["teller"].status()
        assert status.pid is None and status.isolation["fs"].startswith("none: it runs in")
        assert [t["version"] for t in await scene.told(run)] == ["1.0", "1.0"]
        await application.reload("teller")
        assert application.routes["teller"].status().generation == 2
        text = manifest.read_text()
        manifest.write_text(text.replace('version = "1.0"', 'version = "1.1"'))
        with pytest.raises(PurraError) as caught:
            await application.reload("teller")
        assert caught.value.code == "unsupported"

    scene.run(body)
