"""`purra plugins new`: from an empty folder to a plugin that works, by the commands that the pages
give, for each kind (issue D, parts 1 and 8)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from purra.contracts.store import Store
from purra.errors import PurraError
from purra.manifest.plugin import load_plugin
from purra.registry.discovery import discover
from purra_bridge.ports.store import HostedStore
from purra_hosts.app.scaffold.package import KINDS as MADE
from purra_hosts.app.scaffold.package import files_of, write_package
from purra_hosts.launch import Launch, LaunchLimits
from purra_hosts.process.supervisor import ProcessHost
from tests.conformance.store_subject import Subject
from tests.conformance.store_suite import CHECKS, name_of, run_check
from tests.hosts.app.authoring import (
    KINDS,
    PURRA,
    command,
    environment_in,
    make,
    mutate,
    package_of,
    pip,
)

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
TRIED = {
    "tool": "There are three words.",
    "model": "You said: What now?",
    "context": "Not on Monday.",
    "store": "This is kept.",
    "policy": "I may not look.",
}
FAULTS = {
    "tool": ('"words": len(words)', '"words": len(words) + 1'),
    "model": ('"length" if len(answer) > most else "stop"', '"stop"'),
    "context": ("if left < 0:", "if left < -100:"),
    "store": ('self._db.execute("ROLLBACK TO one")', "pass"),
    "policy": ('"deny_and_tell"', '"allow"'),
}
"""A slip in the code of each kind, such as an author makes."""


def test_every_kind_is_tried_here() -> None:
    assert set(MADE) == set(KINDS) == set(TRIED) == set(FAULTS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_own_tests_and_a_slip_turns_them_red(
    kind: str, tmp_path: Path
) -> None:
    """Both ways: tests that pass whatever the code does would prove nothing."""
    project = make(kind, tmp_path)
    passed = command(PYTEST, project).stdout
    assert " passed" in passed
    assert "failed" not in passed
    code = package_of(project) / ("file.py" if kind == "store" else "plugin.py")
    mutate(code, *FAULTS[kind])
    assert " failed" in command(PYTEST, project, code=1).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_used_by_an_agent_from_its_folder(kind: str, tmp_path: Path) -> None:
    """`try.toml` runs as it is, with the isolation that is the default."""
    project = make(kind, tmp_path)
    ran = command([PURRA, "run", "try.toml", "What now?"], project)
    assert ran.stdout.strip() == TRIED[kind]
    if kind == "store":
        listed = command([PURRA, "runs", "list", "-m", "try.toml", "--json"], project)
        assert [json.loads(line)["status"] for line in listed.stdout.splitlines()] == ["completed"]


def test_new_plugins_are_installed_discovered_and_used(tmp_path: Path) -> None:
    """All kinds in one environment, installed for development, found without their folders."""
    projects = {kind: make(kind, tmp_path) for kind in KINDS}
    python = environment_in(tmp_path / "venv")
    editable = [f"--editable={project}" for project in projects.values()]
    pip(python, *editable, folder=tmp_path)
    purra = (python, "-m", "purra_hosts.app")
    listed = command([*purra, "plugins", "list", "--json"], tmp_path).stdout
    found = {row["plugin"]: row for row in map(json.loads, listed.splitlines())}
    for kind, project in projects.items():
        row = found[project.name]
        assert (row["state"], row["from"]) == ("ok", f"purra-plugin-{project.name} 0.1.0")
        assert [offer["kind"] for offer in row["offers"]] == [kind]
        mutate(project / "try.toml", 'folders = ["."]', "folders = []")
        ran = command([*purra, "run", "try.toml", "What now?"], project)
        assert ran.stdout.strip() == TRIED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_manifest_is_right_and_names_no_other_plugin(kind: str, tmp_path: Path) -> None:
    """MAN-005: every field of a tool is written out; ids differ, so two new plugins can meet."""
    project = write_package("weather-desk", kind, tmp_path)
    (offer,) = load_plugin(package_of(project) / "purra-plugin.toml").offers
    assert offer.kind == kind
    text = "".join(files_of("weather-desk", kind).values())
    assert "$" not in text.replace("$(", "")
    assert "my-" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_new_code_is_tidy(kind: str, tmp_path: Path) -> None:
    project = write_package("weather-desk", kind, tmp_path)
    ruff = (sys.executable, "-m", "ruff")
    rules = "E,F,W,I,B,UP,C4,SIM,RET,PIE,RUF,A,N"
    tidy = ("--isolated", "--line-length", "100", "--no-cache", ".")
    command([*ruff, "check", "--select", rules, *tidy], project)
    command([*ruff, "format", "--check", *tidy], project)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Weather", "weather"), ("weather_desk", "weather-desk"), ("../up", "up"), ("9lives", "")],
)
def test_a_name_that_is_no_id_is_refused(name: str, hint: str, tmp_path: Path) -> None:
    """MAN-002, before anything is written."""
    ran = command([PURRA, "plugins", "new", name, "--kind", "tool"], tmp_path, code=2)
    assert ran.stderr.startswith(f"error plugins new: {name!r} is not a plugin id")
    assert f"write '{hint}'" in ran.stderr or not hint
    assert [path.name for path in tmp_path.iterdir()] == [".home"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    project = make("tool", tmp_path)
    mutate(project / "README.md", "Counts words", "Mine")
    with pytest.raises(PurraError, match="is there already"):
        write_package(project.name, "model", tmp_path)
    assert "Mine" in (project / "README.md").read_text()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PurraError, match="cannot be written") as refused:
        write_package("weather", "tool", tmp_path / "file")
    assert refused.value.code == "invalid_argument"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# The store is the one kind with a contract of its own size.


@asynccontextmanager
async def open_store(project: Path, path: Path) -> AsyncGenerator[Store, None]:
    (found,) = discover(path=[], folders=[project]).plugins
    assert found.manifest is not None
    launch = Launch(
        plugin=found.id,
        version=found.manifest.version,
        folder=found.manifest.path.parent,
        manifest_path=found.manifest.path,
        manifest_sha256=found.sha256,
        offers=(("store", "journal"),),
        python=sys.executable,
        entry=found.manifest.runs.entry,
        config={"path": str(path)},
        grants={"fs.write": (str(path.parent),)},
        sys_path=found.sys_path,
        limits=LaunchLimits(inflight=1024),
    )
    async with ProcessHost() as host:
        route = host.add(launch)
        await route.start()
        yield HostedStore(route, "journal")


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_the_new_store_keeps_the_contract(check: object, tmp_path: Path) -> None:
    """Contract `purra.store/1` across the wire; peers are processes of their own."""
    project = write_package("my-store", "store", tmp_path)

    @asynccontextmanager
    async def subject() -> AsyncGenerator[Subject, None]:
        async with AsyncExitStack() as stack:

            async def opened() -> Store:
                return await stack.enter_async_context(open_store(project, tmp_path / "s.db"))

            async def reopened() -> Store:
                await stack.aclose()
                return await opened()

            store = await opened()

            async def pass_time(ms: int) -> None:
                until_ms = await store.now() + ms
                while await store.now() < until_ms:
                    await anyio.sleep(0.005)

            yield Subject(store, "test", 300, pass_time, opened, reopened)

    run_check(check, subject)  # type: ignore[arg-type]
