"""What `load_host` makes of a host manifest: agent, adapters, parameters, paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from purra.agent import PromptSection, RunLimits
from purra.errors import PurraError
from purra.manifest.binding import BoundPlugin, bind
from purra.manifest.host import Caller, HostManifest, load_host
from purra.manifest.names import Address
from purra.manifest.placeholders import Parameter
from purra.manifest.plugin import load_plugin

MANIFESTS = Path(__file__).parents[2] / "manifests"
GOOD = MANIFESTS / "good"
EMPTY = Caller(environment={})


def everything(**options: object) -> tuple[HostManifest, dict[str, BoundPlugin]]:
    caller = Caller(**{"environment": {}, **options})  # type: ignore[arg-type]
    host = load_host(GOOD / "everything.host.toml", caller)
    return host, {
        name: bind(host, load_plugin(GOOD / f"{name}.plugin.toml")) for name in host.plugins
    }


def manifest(folder: Path, body: str, params: str = 'root = "data"') -> Path:
    """A host manifest with the plugin `files` and `body` as its section."""
    path = folder / "purra.toml"
    path.write_text(
        f'schema = "purra.host/1"\nname = "t"\n[params]\n{params}\n'
        '[agent]\nid = "a"\nrevision = "1"\nmodel = "files/model"\n'
        f"[plugins.files]\n{body}\n"
    )
    return path


def config_root(path: Path, params: dict[str, Parameter] | None = None, **options: Path) -> object:
    host = load_host(path, Caller(params=params, environment={}, **options))
    return bind(host, load_plugin(GOOD / "files.plugin.toml")).config["root"]


def test_the_quickstart_is_what_the_design_shows() -> None:
    """Design, host manifest, key by key."""
    host = load_host(MANIFESTS / "quickstart.toml", EMPTY)
    assert host.name == "quickstart"
    assert host.adapters.model == Address("offline", "extractive")
    assert [str(tool) for tool in host.adapters.tools] == [
        "files/fs.list",
        "files/fs.read",
        "files/fs.grep",
    ]
    assert [str(item) for item in host.adapters.context] == ["agentsmd/memory"]
    assert host.adapters.store == Address("sqlite", "journal")
    assert host.adapters.policy is None
    assert host.agent.id == "docs-assistant" and host.agent.revision == "1"
    assert host.agent.limits == RunLimits(max_rounds=8, max_tool_calls=32, deadline_s=120)
    assert (host.agent.session_policy, host.agent.approvals) == ("queue", "none")
    text = "Answer from the files. Quote path:line."
    assert host.agent.prompt == (PromptSection("identity", -100, text),)
    assert (host.isolation.level, host.isolation.require) == ("standard", False)
    assert set(host.plugins) == {"files", "agentsmd", "sqlite", "offline"}


def test_every_key_of_an_agent_arrives() -> None:
    """PRE-01, PRE-02: the agent has no routing and no credentials; sections go by order."""
    host, _ = everything()
    assert host.agent.limits == RunLimits(3, 5, 60.5, 100_000, "serial")
    assert (host.agent.session_policy, host.agent.approvals) == ("refuse", "inbox")
    assert [section.name for section in host.agent.sections] == ["identity", "tone"]
    assert host.agent.sections[1].text.endswith("{params.root}, {anything}.")
    assert host.adapters.policy == Address("program", "house-rules")
    assert host.folders == (GOOD / "plugins",)
    assert set(host.extensions) == {"x-notes"}


def test_configuration_is_expanded_typed_and_absolute() -> None:
    """Tables, paths in manifests: placeholders, defaults, `format = "path"` at any depth."""
    host, bound = everything(state=Path("/state"))
    config = bound["everything"].config
    assert config["folders"] == (str(GOOD / "notes"), {"path": "/state/more"})
    assert config["depth"] == 2 and type(config["depth"]) is int
    assert config["extra"] == {"a": 1}
    assert config["label"] == (
        'literal {params.root} and JSON {"a": {"b": 1}}, depth 2, debug false'
    )
    granted = bound["everything"].granted
    assert granted.fs_read == (str(GOOD),)
    assert granted.fs_write == (str(GOOD), "/state")
    assert granted.host == ("secret:API_KEY",)
    assert bound["everything"].secrets == {"API_KEY": "EXAMPLE_API_KEY"}
    assert "hunter2" not in repr(host)


def test_paths_of_the_manifest_and_of_the_caller(tmp_path: Path) -> None:
    """Tables: a manifest's paths are relative to its folder, a caller's to the current one."""
    current = tmp_path / "current"
    folder = tmp_path / "folder"
    folder.mkdir()
    path = manifest(folder, 'config = { root = "{params.root}/../x" }')
    assert config_root(path) == str(folder / "x")
    assert config_root(path, {"root": "here"}, current=current) == str(current / "x")
    assert config_root(path, {"root": "/abs/y"}, current=current) == "/abs/x"
    path = manifest(folder, 'config = { root = "plain" }')
    assert config_root(path, {"root": "here"}, current=current) == str(folder / "plain")


def test_links_are_followed_as_the_system_would(tmp_path: Path) -> None:
    """`link/..` is the parent of what the link leads to; grants are about what is really there."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    path = manifest(tmp_path, 'config = { root = "link/.." }')
    assert config_root(path) == str(tmp_path / "real")


def test_a_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person writes `~`; a folder of that name is never meant."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = manifest(tmp_path, 'config = { root = "~/notes" }')
    assert config_root(path) == str(tmp_path / "notes")


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        ({}, Path("/given"), "/given"),
        ({"XDG_STATE_HOME": "/xdg"}, None, "/xdg/purra/everything"),
        ({"XDG_STATE_HOME": "relative"}, None, "/home/x/.local/state/purra/everything"),
        ({}, None, "/home/x/.local/state/purra/everything"),
    ],
)
def test_the_state_folder(
    environment: dict[str, str],
    given: Path | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables, paths: `--state`, else XDG, else below the home folder; MAN-010: one per name."""
    monkeypatch.setenv("HOME", "/home/x")
    caller = Caller(environment=environment, state=given)
    host = load_host(GOOD / "everything.host.toml", caller)
    assert str(host.state) == expected
    assert not host.state.exists()


def test_parameters_have_the_declared_type() -> None:
    """Text from a command line is read as what the manifest declares."""
    host, bound = everything(params={"depth": "7", "debug": "true"})
    assert host.params["depth"] == 7 and host.params["debug"] is True
    assert bound["everything"].config["depth"] == 7
    assert str(bound["everything"].config["label"]).endswith("depth 7, debug true")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"rot": "x"}, "has no parameter 'rot' [invalid_argument] (did you mean 'root'?)"),
        ({"depth": "deep"}, "'deep' is not of the declared type int"),
        ({"debug": "yes"}, "'yes' is not of the declared type bool"),
        ({"depth": True}, "True is not of the declared type int"),
    ],
)
def test_wrong_parameters_are_the_callers_fault(params: dict[str, Parameter], words: str) -> None:
    """The manifest is right, so the code is not `invalid_manifest`."""
    with pytest.raises(PurraError) as caught:
        everything(params=params)
    assert caught.value.code == "invalid_argument"
    assert words in str(caught.value)


def test_an_address_may_be_a_parameter() -> None:
    """`--param model=...` picks another model, under the same rules."""
    host, _ = everything(params={"model": "program/other"})
    assert host.adapters.model == Address("program", "other")
    with pytest.raises(PurraError, match="of a plugin that this manifest does not name"):
        everything(params={"model": "offline/extractive"})
    with pytest.raises(PurraError, match="is not an address"):
        everything(params={"model": "nothing"})


def test_defaults_of_a_small_manifest(tmp_path: Path) -> None:
    """What is not said is the documented default, not an accident."""
    host = load_host(manifest(tmp_path, ""), EMPTY)
    assert host.agent.limits == RunLimits()
    assert host.adapters.store is None and host.adapters.tools == ()
    assert (host.isolation.level, host.isolation.require) == ("standard", False)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_of_an_embedder_are_checked_too(value: float) -> None:
    """MAN-006 for code: no bound of zero, of nothing, or of infinity."""
    with pytest.raises(PurraError, match="must be positive and finite"):
        RunLimits(deadline_s=value)
