"""A host manifest, real plugin processes, one run: what assembly puts together works."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.errors import PurraError
from purra.manifest.host import Caller
from purra_hosts.app.assembly import Watchers, open_application, open_kernel, run_sync
from purra_hosts.app.plan import make_plan

PLUGINS = Path(__file__).parent / "plugins"

MANIFEST = """
schema = "purra.host/1"
name = "parrots"
[params]
folder = "notes"
[agent]
id = "parrot"
revision = "1"
model = "parrot/echo"
tools = ["notes/notes.report"]
policy = "parrot/strict"
[[agent.prompt]]
name = "identity"
text = "Repeat."
[plugins.notes]
config = {{ folder = "{{params.folder}}" }}
grants = {{ fs.read = ["{{params.folder}}"], env = ["NOTES_COLOUR"] }}
secrets = {{ TOKEN = "env:SECRET_TOKEN" }}
[plugins.parrot]
[discovery]
folders = ["{plugins}"]
{more}
"""


@pytest.fixture(autouse=True)
def circumstances(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret-value")
    monkeypatch.setenv("NOTES_COLOUR", "blue")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def manifest(folder: Path, more: str = "", **changes: str) -> Path:
    text = MANIFEST.format(plugins=PLUGINS, more=more)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "purra.toml"
    path.write_text(text)
    return path


def refused(path: Path, **options: Any) -> PurraError:
    with pytest.raises(PurraError) as caught:
        make_plan(path, **options)
    return caught.value


def test_a_run_from_a_manifest_to_an_answer(tmp_path: Path) -> None:
    """Design, using it: discovery, launch, ports and kernel; each plugin got what it was granted
    and nothing else (invariants 1, 14)."""
    seen: list[tuple[str, str]] = []

    def events(kind: str, data: Mapping[str, Any]) -> None:
        seen.append((kind, data["plugin"]))

    async def main() -> str:
        watchers = Watchers(events=events)
        async with open_kernel(
            manifest(tmp_path), params={"folder": "elsewhere"}, watchers=watchers
        ) as kernel:
            run = await kernel.submit("what is there?")
            result = await run.wait()
        assert (result.status, result.error) == ("completed", None)
        return result.text

    text = anyio.run(main)
    message = json.loads(text.removeprefix("seen: "))
    report = json.loads(message["content"]) if isinstance(message["content"], str) else message
    folder = os.path.realpath("elsewhere")
    assert report["text"] == "what is there?"
    assert report["config"] == {"folder": folder, "greeting": "hello"}
    assert report["grants"]["fs.read"] == [folder] and report["grants"]["fs.write"] == []
    assert report["secret"] == "s3cret-value"
    assert report["in_environment"] is False
    assert report["colour"] == "blue"
    assert {("plugin.ready", "parrot"), ("plugin.stopped", "notes")} <= set(seen)
    assert not [name for name in sys.modules if name in ("parrot", "notes")]


def test_a_script_needs_one_line(tmp_path: Path) -> None:
    """Design, using it: `run_sync`; and the policy of the manifest decides."""
    denied = run_sync(manifest(tmp_path), "danger ahead")
    assert denied.status == "failed"
    assert denied.error is not None and denied.error["code"] == "policy_denied"


def test_nothing_starts_before_it_is_called_or_eager(tmp_path: Path) -> None:
    """Lifecycle: on demand by default; the plan alone starts and writes nothing."""

    async def main() -> dict[str, str]:
        plan = make_plan(manifest(tmp_path))
        assert list(plan.launches) == ["parrot", "notes"]  # what is required comes first
        async with open_application(plan) as application:
            return {name: route.status().state for name, route in application.routes.items()}

    assert anyio.run(main) == {"parrot": "stopped", "notes": "stopped"}
    assert not (tmp_path / "home").exists()


def eager_copy(tmp_path: Path, code: str) -> Path:
    """The parrot as an eager plugin whose module ends with `code`."""
    folder = tmp_path / "plugins" / "parrot"
    folder.mkdir(parents=True)
    text = (PLUGINS / "parrot" / "purra-plugin.toml").read_text()
    text += '[lifecycle]\nactivation = "eager"\n'
    (folder / "purra-plugin.toml").write_text(text)
    (folder / "parrot.py").write_text((PLUGINS / "parrot" / "parrot.py").read_text() + code)
    return folder.parent


def test_an_eager_plugin_is_ready_when_the_kernel_is(tmp_path: Path) -> None:
    """Lifecycle: eager."""
    plugins = eager_copy(tmp_path, "")
    path = manifest(tmp_path, "", **{f'["{PLUGINS}"]': f'["{plugins}", "{PLUGINS}/notes"]'})

    async def main() -> str:
        async with open_application(make_plan(path)) as application:
            return application.routes["parrot"].status().state

    assert anyio.run(main) == "ready"


def test_an_eager_plugin_that_cannot_start_says_why(tmp_path: Path) -> None:
    """H79: the inner error of a failed import reaches whoever opens the kernel."""
    plugins = eager_copy(tmp_path, "import not_there_at_all\n")
    path = manifest(tmp_path, "", **{f'["{PLUGINS}"]': f'["{plugins}", "{PLUGINS}/notes"]'})

    async def main() -> None:
        async with open_kernel(path):
            pass

    with pytest.raises(PurraError, match=r"not_there_at_all.*plugin_broken"):
        anyio.run(main)


def test_a_start_that_fails_half_way_is_undone_and_may_be_tried_again(tmp_path: Path) -> None:
    """PLG-05: what was ready already is stopped, what failed before what it required; when the
    fault is mended the same manifest opens."""
    plugins = eager_copy(tmp_path, "")
    notes = plugins / "notes"
    notes.mkdir()
    text = (PLUGINS / "notes" / "purra-plugin.toml").read_text()
    (notes / "purra-plugin.toml").write_text(text + '[lifecycle]\nactivation = "eager"\n')
    code = (PLUGINS / "notes" / "notes.py").read_text()
    (notes / "notes.py").write_text(code + "raise SystemExit(3)\n")
    path = manifest(tmp_path, "", **{f'["{PLUGINS}"]': f'["{plugins}"]'})
    seen: list[tuple[str, str, int | None]] = []

    def events(kind: str, data: Mapping[str, Any]) -> None:
        seen.append((kind, data["plugin"], data["pid"]))

    async def main() -> str:
        watchers = Watchers(events=events)
        with pytest.raises(PurraError, match="plugin_broken"):
            async with open_kernel(path, watchers=watchers):
                pass
        life = [(kind, plugin) for kind, plugin, _ in seen]
        assert ("plugin.ready", "parrot") in life
        stopped = [plugin for kind, plugin in life if kind == "plugin.stopped"]
        assert stopped == ["notes", "parrot"]
        assert not [pid for _, _, pid in seen if pid and Path(f"/proc/{pid}").exists()]
        (notes / "notes.py").write_text(code)
        async with open_kernel(path, watchers=watchers) as kernel:
            return (await (await kernel.submit("hello")).wait()).status

    assert anyio.run(main) == "completed"


def test_a_plugin_is_there_for_the_agents_that_name_it(tmp_path: Path) -> None:
    """PLG-23: of two agents with the same folders, one sees the tool, and for the other neither the
    tool nor the plugin exists."""
    sees = manifest(tmp_path)
    blind = tmp_path / "blind.toml"
    text = sees.read_text()
    start, end = text.index("[plugins.notes]"), text.index("[plugins.parrot]")
    blind.write_text(text[:start].replace('tools = ["notes/notes.report"]', "") + text[end:])

    async def answer(path: Path) -> tuple[str, list[str]]:
        async with open_application(make_plan(path)) as application:
            run = await application.kernel.submit("look")
            return (await run.wait()).text, list(application.routes)

    text, routes = anyio.run(answer, sees)
    assert '"role": "tool"' in text and routes == ["parrot", "notes"]
    text, routes = anyio.run(answer, blind)
    assert '"role": "user"' in text and routes == ["parrot"]


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("[plugins.parrot]", "[plugins.parrrot]", "invalid_manifest", "does not name"),
        ("[plugins.parrot]", "[plugins.nots]\n[plugins.parrot]", "plugin_not_found", "'notes'?"),
        ("parrot/echo", "parrot/eco", "adapter_not_found", "did you mean 'echo'?"),
        ("parrot/echo", "parrot/strict", "adapter_not_found", "where a model is needed"),
        ("notes.report", "notes.write", "adapter_not_found", "needs fs.write, which is not"),
        ("env:SECRET_TOKEN", "env:NO_SUCH", "secret_missing", "NO_SUCH is not set"),
        ('/plugins"]', '/plugins", "gone"]', "invalid_manifest", "gone is not a folder"),
        ("fs.read = [", 'network = "any", fs.read = [', "invalid_manifest", "not declare"),
    ],
)
def test_what_does_not_fit_is_a_coded_error_before_anything_starts(
    tmp_path: Path, old: str, new: str, code: str, words: str
) -> None:
    """APP-01, PLG-01, brief errors: what, where, what to do."""
    error = refused(manifest(tmp_path, **{old: new}))
    assert error.code == code
    assert words in str(error)
    assert str(tmp_path / "purra.toml") in str(error)


def test_a_broken_and_a_double_plugin_are_refused_only_if_named(tmp_path: Path) -> None:
    """H76, H79: broken ones are listed and stop nobody else; a named one stops the start."""
    folder = tmp_path / "more"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        text = (PLUGINS / "parrot" / "purra-plugin.toml").read_text()
        (folder / name / "purra-plugin.toml").write_text(text.replace('"parrot"', '"twice"', 1))
    (folder / "bad").mkdir()
    (folder / "bad" / "purra-plugin.toml").write_text("schema = 1")
    folders = {f'["{PLUGINS}"]': f'["{PLUGINS}", "{folder}"]'}
    make_plan(manifest(tmp_path, **folders))
    for name, code in (("twice", "plugin_conflict"), ("bad", "plugin_broken")):
        error = refused(manifest(tmp_path, f"[plugins.{name}]", **folders))
        assert error.code == code


def test_who_only_looks_at_runs_needs_only_the_store(tmp_path: Path) -> None:
    """Tables: `runs list` and `runs cancel` from another process, whatever became of the tools."""
    error = refused(manifest(tmp_path), only_store=True)
    assert error.code == "invalid_manifest" and "agent.store: is missing" in str(error)


def test_the_state_folder_is_made_private_when_it_is_used(tmp_path: Path) -> None:
    """Tables, paths: below XDG, or where the caller says."""
    path = manifest(
        tmp_path, **{'folder = "notes"': 'folder = "x"', '"{params.folder}" }': '"{state}/n" }'}
    )

    async def main() -> None:
        async with open_kernel(path, state=tmp_path / "state"):
            assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700

    anyio.run(main)
    plan = make_plan(path, Caller(state=tmp_path / "other"))
    assert plan.launches["notes"].config["folder"] == str(tmp_path / "other" / "n")
    assert not (tmp_path / "other").exists()
