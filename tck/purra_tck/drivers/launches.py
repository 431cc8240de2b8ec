"""A plugin as our own hosts want it: what assembly would have made of its folder."""

from __future__ import annotations

import hashlib
import sys

from purra_hosts.launch import Isolation, Launch, LaunchLimits
from purra_tck.drivers.host import PluginSpec

__all__ = ["launch_of"]


def launch_of(spec: PluginSpec) -> Launch:
    """The launch that assembly would have made of the folder."""
    manifest = spec.folder / "purra-plugin.toml"
    return Launch(
        plugin=spec.id,
        version=spec.version,
        folder=spec.folder,
        manifest_path=manifest,
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(),
        offers=spec.offers,
        python=sys.executable,
        entry=spec.entry or None,
        command=spec.command or None,
        config=spec.config,
        grants=spec.grants,
        secrets=spec.secrets,
        env=spec.env,
        sys_path=(str(spec.folder),) if spec.entry else (),
        kind=spec.kind,
        limits=LaunchLimits(**spec.limits),
        isolation=Isolation(level=spec.isolation),
        services=spec.services,
        requires=tuple(spec.requires),
        activation="eager" if spec.activation == "eager" else "on-demand",
        idle_s=spec.idle_s,
    )
