"""The tools over the wire, as a worker serves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from purra_bridge.wire.errors import WireError
from purra_plugin_files import searching
from purra_plugin_files.plugin import plugin
from purra_sdk import PluginError, ToolError
from purra_sdk.testing import PluginLink, connect


@pytest.fixture
def link(tmp_path: Path) -> Iterator[PluginLink]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Title\r\nto cancel é\n")
    with connect(plugin, config={"root": str(tmp_path)}) as opened:
        yield opened


def test_the_four_tools_answer(link: PluginLink, tmp_path: Path) -> None:
    entry = {"path": "docs/a.md", "type": "file", "size": 22}
    assert link.tool("fs.list", path="docs") == {
        "path": "docs",
        "entries": [entry],
        "truncated": False,
        "skipped": {},
    }
    assert link.tool("fs.grep", pattern="CANCEL", ignore_case=True) == {
        "matches": [{"path": "docs/a.md", "line": 2, "text": "to cancel é"}],
        "truncated": False,
        "skipped": {},
    }
    assert link.tool("fs.read", path="docs/a.md", max_lines=1)["content"] == "# Title\r\n"
    written = link.tool("fs.write", path="docs/b.md", content="new")
    assert written == {"path": "docs/b.md", "bytes": 3, "created": True}
    assert (tmp_path / "docs" / "b.md").read_text() == "new"


def test_failures_are_results_with_a_code_and_an_effect_state(link: PluginLink) -> None:
    """An ordinary failure is for the model: it does not block the run (tables, effect states)."""
    for name, arguments, code in (
        ("fs.read", {"path": "none"}, "not_found"),
        ("fs.list", {"path": "../"}, "denied"),
        ("fs.grep", {"pattern": "(", "regex": True}, "invalid_argument"),
        ("fs.write", {"path": "docs/a.md", "content": "x"}, "conflict"),
        ("fs.write", {"path": "docs", "content": "x", "mode": "overwrite"}, "conflict"),
    ):
        with pytest.raises(ToolError) as caught:
            link.tool(name, **arguments)
        assert (caught.value.code, caught.value.effect_state) == (code, "not_started")


def test_unknown_arguments_never_reach_a_tool(link: PluginLink, tmp_path: Path) -> None:
    """The gateway refuses them; a caller without one learns it from the plugin (TOL-003)."""
    with pytest.raises(WireError) as caught:
        link.tool("fs.write", path="x", content="x", force=True)
    assert caught.value.code == "invalid_argument"
    assert not (tmp_path / "x").exists()


def test_a_root_that_is_missing_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("none", "file"):
        with pytest.raises(PluginError, match=name) as caught:
            connect(plugin, config={"root": str(tmp_path / name)})
        assert caught.value.code == "failed_precondition"


def test_a_root_that_goes_away_fails_calls_until_it_is_back(
    link: PluginLink, tmp_path: Path
) -> None:
    """The folder is opened for each call, so what replaces it is seen."""
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    tmp_path.rename(moved)
    with pytest.raises(ToolError) as caught:
        link.tool("fs.list")
    assert caught.value.code == "not_found"
    tmp_path.mkdir()
    assert link.tool("fs.list")["entries"] == []
    tmp_path.rmdir()
    moved.rename(tmp_path)


def test_a_search_ends_with_its_deadline(
    link: PluginLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is by then is the answer, and it says so."""
    for number in range(50):
        (tmp_path / f"{number}.txt").write_text("word\n")
    monkeypatch.setattr(searching, "_LINES_PER_LOOK", 1)
    asked = {"arguments": {"pattern": "word"}}
    result = link.call("fs.grep", "call", asked, deadline_ms=1)["value"]
    assert (result["truncated"], result["limit"]) == (True, "time")
