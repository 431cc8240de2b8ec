"""The provider over the wire, as a worker serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from purra_bridge.wire.errors import WireError
from purra_plugin_agentsmd.plugin import plugin
from purra_sdk.testing import connect

REQUEST = {"run": "r", "session": "", "prompt": "what?"}


def test_claim_and_blocks(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("Be brief.\n")
    config = {"files": [{"path": str(path)}], "trusted": True}
    with connect(plugin, config=config) as link:
        claim = link.call("memory", "demand", REQUEST)
        assert claim == {"minimum": 3, "desired": 3, "priority": 0}
        bundle = link.call("memory", "provide", {**REQUEST, "budget": claim["desired"]})
        (block,) = bundle["blocks"]
        assert (block["content"], block["untrusted"]) == ("Be brief.\n", False)
        assert link.call("memory", "provide", {**REQUEST, "budget": 0})["blocks"] == []


def test_failures_are_typed_and_compressing_is_not_offered(tmp_path: Path) -> None:
    """CTX-009; a provider need not compress."""
    with connect(plugin, config={"files": [str(tmp_path / "none.md")]}) as link:
        for method, args in (("demand", REQUEST), ("provide", {**REQUEST, "budget": 9})):
            with pytest.raises(WireError, match=r"none\.md") as caught:
                link.call("memory", method, args)
            assert (caught.value.code, caught.value.origin) == ("not_found", "plugin")
        with pytest.raises(WireError) as caught:
            link.call("memory", "compress", {"messages": [], "budget": 1})
        assert caught.value.code == "unimplemented"
