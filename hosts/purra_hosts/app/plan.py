"""Everything that is decided before anything starts: one host manifest turned into launches.

A plan is a value. `purra manifest check` makes one and stops there; `open_kernel` makes one and
carries it out. So what is checked is what runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from purra.errors import PurraError
from purra.manifest.binding import BoundPlugin
from purra.manifest.host import Caller, HostManifest, load_host
from purra.registry.discovery import Discovered, Discovery
from purra_hosts.app.environments import find_plugins
from purra_hosts.app.matching import Match, match, match_store
from purra_hosts.launch import Isolation, Launch, LaunchLimits

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be started, and how. `launches`: by plugin id, in start order. `caller`: by whom,
    so that the same plan can be made again.
    """

    host: HostManifest
    discovery: Discovery
    match: Match
    launches: Mapping[str, Launch]
    caller: Caller


def make_plan(manifest: Path, caller: Caller | None = None, *, only_store: bool = False) -> Plan:
    """Reads the host manifest, discovers, matches and resolves. Starts and writes nothing.

    `only_store`: nothing but the store, for those who look at runs and end them.

    Raises `PurraError` of `load_host`, `match` and `match_store`, and `secret_missing`.
    """
    caller = caller or Caller()
    host = load_host(manifest, caller)
    for index, folder in enumerate(host.folders):
        if not folder.is_dir():
            raise host.refuse(["discovery", "folders", index], f"{folder} is not a folder")
    discovery = find_plugins(host.folders, caller.environment)
    matched = match_store(host, discovery) if only_store else match(host, discovery)
    environment = os.environ if caller.environment is None else caller.environment
    launches = {
        name: _launch(host, bound, matched.found[name], environment)
        for name, bound in matched.plugins.items()
    }
    return Plan(host, discovery, matched, MappingProxyType(launches), caller)


def _launch(
    host: HostManifest, bound: BoundPlugin, found: Discovered, environment: Mapping[str, str]
) -> Launch:
    manifest = bound.manifest
    limits = manifest.limits
    return Launch(
        plugin=manifest.id,
        version=manifest.version,
        folder=manifest.path.parent,
        manifest_path=manifest.path,
        manifest_sha256=manifest.sha256,
        offers=tuple((offer.kind, offer.name) for offer in manifest.offers if not offer.dynamic),
        python=found.python or sys.executable,
        entry=manifest.runs.entry,
        command=manifest.runs.command,
        config=bound.config,
        grants=bound.granted.value(),
        secrets=MappingProxyType(_secrets(host, bound, environment)),
        env=MappingProxyType(
            {name: environment[name] for name in bound.granted.env if name in environment}
        ),
        sys_path=found.sys_path,
        limits=LaunchLimits(
            inflight=limits.inflight,
            threads=limits.threads,
            memory_bytes=limits.memory_bytes,
            instances=limits.instances,
            cpu_s=limits.cpu_s,
        ),
        isolation=Isolation(host.isolation.level, host.isolation.require),
        activation=manifest.lifecycle.activation,
        idle_s=manifest.lifecycle.idle_s,
        services=manifest.capabilities.host,
        kind=manifest.runs.host,
        requires=tuple(manifest.requires),
    )


def _secrets(
    host: HostManifest, bound: BoundPlugin, environment: Mapping[str, str]
) -> dict[str, str]:
    secrets = {}
    for name, variable in bound.secrets.items():
        if not environment.get(variable):
            raise PurraError(
                "secret_missing",
                f"the environment variable {variable} is not set",
                where=f"{host.path}: plugins.{bound.manifest.id}.secrets.{name}",
            )
        secrets[name] = environment[variable]
    return secrets
