"""The SQLite store with a fuse on each side of every commit of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[4] / "plugins" / "sqlite"))
from fuse import burn

from purra_plugin_sqlite.plugin import Journal
from purra_sdk import Plugin, batched, store


def _named(args: dict[str, Any]) -> list[str]:
    """What a commit appends: kinds of events, `drafts` for a batch of them."""
    names = []
    for op in args["ops"]:
        if op["op"] == "append" and op["stream"].endswith("/out"):
            names.append("drafts")
        elif op["op"] == "append" and op["stream"].count("/") == 1:
            names += [record.get("kind", "") for record in op["records"]]
    return names


@store("journal")
class Fused(Journal):
    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self._fuse = setup.config.get("fuse", "")

    @batched
    def commit(self, calls: list[Any]) -> list[Any]:
        names = [name for call in calls for name in _named(call.args)]
        for name in names:
            burn(self._fuse, f"store:before:{name}", go_on=False)
        outcomes = super().commit(calls)
        for name in names:
            burn(self._fuse, f"store:after:{name}", go_on=False)
        return outcomes


plugin = Plugin(stores=[Fused])
