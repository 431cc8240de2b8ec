"""The context contract of `agentsmd/memory`, and its manifest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import purra_plugin_agentsmd
from purra.manifest.config import resolve_config
from purra.manifest.plugin import load_plugin
from purra_plugin_agentsmd.plugin import Memory
from purra_sdk import PluginError

REQUEST = {"run": "r", "session": "", "prompt": "what?"}
NO_CALL: Any = None


def _memory(**config: Any) -> Memory:
    setup: Any = SimpleNamespace(config=config)
    return Memory(setup)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "AGENTS.md"
    file.write_text("Be brief. " * 10)
    return file


def test_the_claim_is_exactly_what_is_provided(path: Path) -> None:
    """CTX-001: the blocks fit the claim, and the minimum is all of it (CTX-04)."""
    memory = _memory(files=[str(path)], priority=7)
    claim = memory.demand(NO_CALL, dict(REQUEST))
    assert claim == {"minimum": 25, "desired": 25, "priority": 7}
    bundle = memory.provide(NO_CALL, dict(REQUEST), 25)
    assert [block["content"] for block in bundle["blocks"]] == ["Be brief. " * 10]
    assert bundle == memory.provide(NO_CALL, dict(REQUEST), 26), "more budget changes nothing"


def test_budget_0_gives_nothing_and_no_error(tmp_path: Path) -> None:
    """CTX-002, even if a required file is missing."""
    memory = _memory(files=[str(tmp_path / "none")])
    assert memory.provide(NO_CALL, dict(REQUEST), 0)["blocks"] == []


def test_files_that_outgrew_their_claim_are_an_error_and_not_cut(path: Path) -> None:
    memory = _memory(files=[str(path)])
    granted = memory.demand(NO_CALL, dict(REQUEST))["minimum"]
    path.write_text("Be brief. " * 11)
    with pytest.raises(PluginError) as caught:
        memory.provide(NO_CALL, dict(REQUEST), granted)
    assert caught.value.code == "resource_exhausted"


@pytest.mark.parametrize(("config", "untrusted"), [({}, True), ({"trusted": True}, False)])
def test_text_is_untrusted_unless_the_operator_says_otherwise(
    path: Path, config: dict[str, Any], untrusted: bool
) -> None:
    (block,) = _memory(files=[str(path)], **config).provide(NO_CALL, {}, 1000)["blocks"]
    assert block["untrusted"] is untrusted


def test_errors_keep_their_codes_and_the_request_is_not_changed(tmp_path: Path, path: Path) -> None:
    """CTX-006, CTX-009."""
    memory = _memory(files=[str(path), str(tmp_path / "none")])
    request = dict(REQUEST)
    for ask in (memory.demand, lambda call, body: memory.provide(call, body, 1000)):
        with pytest.raises(PluginError) as caught:
            ask(NO_CALL, request)
        assert caught.value.code == "not_found"
    assert request == REQUEST
    with pytest.raises(PluginError):
        _memory(files=["relative.md"])


def test_the_manifest_takes_both_forms_and_makes_their_paths_absolute() -> None:
    folder = Path(purra_plugin_agentsmd.__file__).parent
    manifest = load_plugin(folder / "purra-plugin.toml")
    given = {"files": ["a.md", {"path": "b.md", "required": False}]}
    config = resolve_config(manifest.config, given, lambda path, _place: f"/root/{path}")
    assert [item if isinstance(item, str) else dict(item) for item in config.values["files"]] == [
        "/root/a.md",
        {"path": "/root/b.md", "required": False},
    ]
    assert config.values["max_bytes"] == 32_768
    assert set(config.paths["files"]) == {"/root/a.md", "/root/b.md"}
