"""The agent's adapters as the kernel's ports: which route and name stand behind each."""

from __future__ import annotations

from collections.abc import Mapping

from purra.contracts.store import Store
from purra.contracts.tool import ToolSchema
from purra.runs.bindings import Adapters
from purra.stores.memory import MemoryStore
from purra_bridge.ports.context import HostedContext
from purra_bridge.ports.model import HostedModel
from purra_bridge.ports.policy import HostedPolicy
from purra_bridge.ports.store import HostedStore
from purra_bridge.ports.tool import HostedTools
from purra_hosts.app.matching import Match, Resolved
from purra_hosts.process.route import Route

__all__ = ["adapters_of", "store_of"]


def adapters_of(match: Match, routes: Mapping[str, Route]) -> Adapters:
    """All but the store. `routes`: by plugin id."""
    names = {"model": match.model.pinned} if match.model else {}
    names |= {f"tool:{tool.offer.name}": tool.pinned for tool in match.tools}
    names |= {f"context[{index}]": item.pinned for index, item in enumerate(match.context)}
    if match.policy:
        names["policy"] = match.policy.pinned
    return Adapters(
        model=HostedModel(*_end(match.model, routes)) if match.model else None,
        tools=tuple(
            HostedTools(routes[plugin], schemas) for plugin, schemas in _by_plugin(match).items()
        ),
        contexts=tuple(
            (str(item.address), HostedContext(*_end(item, routes))) for item in match.context
        ),
        policy=HostedPolicy(*_end(match.policy, routes)) if match.policy else None,
        names=names,
    )


def store_of(match: Match, routes: Mapping[str, Route]) -> Store:
    """The store, in memory if the agent names none."""
    return HostedStore(*_end(match.store, routes)) if match.store else MemoryStore()


def _end(adapter: Resolved, routes: Mapping[str, Route]) -> tuple[Route, str]:
    """Where a port's calls go, and which adapter there they name."""
    return routes[adapter.address.plugin], adapter.address.name


def _by_plugin(match: Match) -> dict[str, list[ToolSchema]]:
    """The tools in the agent's order, as one set per plugin."""
    sets: dict[str, list[ToolSchema]] = {}
    for tool in match.tools:
        assert tool.offer.tool is not None, "an offer of the kind tool that is not dynamic"
        sets.setdefault(tool.address.plugin, []).append(tool.offer.tool)
    return sets
