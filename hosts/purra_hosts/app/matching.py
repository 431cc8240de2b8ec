"""A host manifest against what is installed: which plugin offers which adapter. Nothing starts.

Every way in which the two can disagree is a coded error of its own that says where and what to do,
because this is where most first attempts fail: a name misspelt, a package not installed, a kind
mixed up, a grant forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from purra.errors import PurraError
from purra.manifest.binding import BoundPlugin, bind
from purra.manifest.host import HostManifest
from purra.manifest.names import Address, nearest, suggest
from purra.manifest.order import start_order
from purra.manifest.plugin import Offer, PluginManifest
from purra.manifest.plugin_tables import Kind
from purra.registry.discovery import Discovered, Discovery

__all__ = ["Match", "Resolved", "match", "match_store"]

_KIND_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"model": "a model", "tool": "a tool", "context": "a context provider", "store": "a store"}
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """One adapter of the agent: its address and the offer behind it."""

    address: Address
    offer: Offer

    @property
    def pinned(self) -> str:
        """What a run pins of it: the address and the digest of what is declared (invariant 5)."""
        return f"{self.address} {self.offer.digest}"


@dataclass(frozen=True, slots=True)
class Match:
    """The agent's adapters, and the plugins that the host manifest names, in start order.

    `model` is None where only the store was asked for.
    """

    model: Resolved | None
    tools: tuple[Resolved, ...]
    context: tuple[Resolved, ...]
    store: Resolved | None
    policy: Resolved | None
    plugins: Mapping[str, BoundPlugin]
    found: Mapping[str, Discovered]


def match(host: HostManifest, discovery: Discovery) -> Match:
    """Finds every plugin and adapter that `host` names among what was discovered.

    Raises `PurraError`: `package_conflict`, `plugin_not_found`, `plugin_broken`, `plugin_conflict`,
    `plugin_drift`, `adapter_not_found`, `invalid_manifest` (config or grants), `unsupported`.
    """
    _refuse_foreign(discovery)
    found = {name: _usable(host, name, discovery) for name in host.plugins}
    manifests = {name: _manifest(item) for name, item in found.items()}
    bound = {name: bind(host, manifests[name]) for name in start_order(manifests)}
    adapters = host.adapters
    resolver = _Resolver(host, bound)
    tools = resolver.many("tool", adapters.tools)
    _check_writes(host, manifests, tools)
    return Match(
        model=resolver.one("model", adapters.model),
        tools=tools,
        context=resolver.many("context", adapters.context),
        store=resolver.one("store", adapters.store) if adapters.store else None,
        policy=resolver.one("policy", adapters.policy) if adapters.policy else None,
        plugins=MappingProxyType(bound),
        found=MappingProxyType(found),
    )


def match_store(host: HostManifest, discovery: Discovery) -> Match:
    """As `match`, for the store alone: whoever only looks at runs needs nothing else to be well.

    Raises what `match` raises for that plugin, and `invalid_manifest` if there is no store.
    """
    _refuse_foreign(discovery)
    address = host.adapters.store
    if address is None:
        reason = "is missing: without a store no run outlives the process that ran it"
        raise host.refuse(["agent", "store"], reason)
    found = _usable(host, address.plugin, discovery)
    bound = {address.plugin: bind(host, _manifest(found))}
    return Match(
        model=None,
        tools=(),
        context=(),
        store=_Resolver(host, bound).one("store", address),
        policy=None,
        plugins=MappingProxyType(bound),
        found=MappingProxyType({address.plugin: found}),
    )


def _refuse_foreign(discovery: Discovery) -> None:
    if discovery.foreign is not None:
        raise PurraError(
            "package_conflict",
            f"{discovery.foreign} is another project with a package of the same name",
            hint="uninstall it, or use an environment of its own",
        )


def _usable(host: HostManifest, name: str, discovery: Discovery) -> Discovered:
    where = f"{host.path}: plugins.{name}"
    found = discovery.get(name)
    if found is None:
        near = nearest(name, [plugin.id for plugin in discovery.plugins])
        raise PurraError(
            "plugin_not_found",
            f"no plugin {name!r} is installed",
            where=where,
            hint=f"did you mean {near!r}?" if near else "`purra plugins list` shows what there is",
        )
    if found.state == "conflict":
        raise PurraError("plugin_conflict", found.reason, where=where, hint=found.hint)
    if found.state == "broken":
        raise PurraError("plugin_broken", found.reason, where=where, hint=found.hint)
    if found.python and _manifest(found).runs.host == "inproc":
        raise PurraError(
            "unsupported",
            "a plugin with an environment of its own cannot run in the kernel's process",
            where=where,
            hint="install it without --isolated",
        )
    return found


def _check_writes(
    host: HostManifest, manifests: Mapping[str, PluginManifest], tools: Iterable[Resolved]
) -> None:
    """A handler in a thread cannot be ended, so what it writes after its time is nobody's will."""
    for tool in tools:
        plugin, schema = tool.address.plugin, tool.offer.tool
        threaded = (
            manifests[plugin].runs.host == "inproc" and not host.plugins[plugin].inproc_writes
        )
        if threaded and schema is not None and not schema.reads:
            raise host.refuse(
                ["plugins", plugin, "inproc_writes"],
                f"{tool.address} writes ({schema.effect}), and runs in the kernel's own process,"
                " where a write that is late cannot be stopped",
                "set it to true, or run the plugin as a process",
            )


def _manifest(found: Discovered) -> PluginManifest:
    assert found.manifest is not None, "a plugin in state ok has its manifest"
    return found.manifest


class _Resolver:
    def __init__(self, host: HostManifest, bound: Mapping[str, BoundPlugin]) -> None:
        self._host = host
        self._bound = bound

    def many(self, kind: Kind, addresses: Iterable[Address]) -> tuple[Resolved, ...]:
        return tuple(self.one(kind, address) for address in addresses)

    def one(self, kind: Kind, address: Address) -> Resolved:
        plugin = self._bound[address.plugin]
        offer = plugin.manifest.offer(address.name)
        if offer is None:
            if any(address.name.startswith(prefix) for prefix in _prefixes(plugin.manifest)):
                raise self._error("unsupported", address, "dynamic catalogs are not supported yet")
            names = [item.name for item in plugin.manifest.offers if item.kind == kind]
            hint = suggest(address.name, names, what="it offers")
            raise self._missing(address, f"the plugin offers no {kind} of that name", hint)
        if offer.kind != kind:
            words = _KIND_WORDS.get(offer.kind, f"of the kind {offer.kind}")
            raise self._missing(address, f"it is {words} and stands where a {kind} is needed")
        if offer.dynamic:
            raise self._error("unsupported", address, "dynamic catalogs are not supported yet")
        if missing := plugin.withheld.get(offer.name):
            raise self._missing(
                address,
                f"it needs {', '.join(missing)}, which is not granted",
                f"grant it in [plugins.{address.plugin}], or leave the adapter out",
            )
        return Resolved(address, offer)

    def _missing(self, address: Address, reason: str, hint: str = "") -> PurraError:
        return self._error("adapter_not_found", address, reason, hint)

    def _error(self, code: str, address: Address, reason: str, hint: str = "") -> PurraError:
        where = f"{self._host.path}: {address}"
        return PurraError(code, reason, where=where, hint=hint)


def _prefixes(manifest: PluginManifest) -> list[str]:
    return [offer.name for offer in manifest.offers if offer.dynamic]
