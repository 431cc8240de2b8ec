"""The gate: what HELLO and READY must say, and what WELCOME tells. Pure.

A plugin introduces itself before it has run any code of its own; what it says must equal the
manifest that the host has read, in both directions. A second opinion of either end about who is
running is how stale installs and half-done upgrades become wrong results (H08, HSK-005).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from purra_bridge.wire.errors import WireError
from purra_bridge.wire.messages import PROTOCOL_VERSIONS, common_version
from purra_hosts.launch import Launch

__all__ = ["check_hello", "check_ready", "own_limits", "welcome"]

_LISTED: Final = 10
"""Names shown of a longer list."""


def check_hello(launch: Launch, body: Mapping[str, Any]) -> WireError | int:
    """The agreed version of the protocol, or why the plugin is refused."""
    version = common_version(body["proto"])
    if version is None:
        return WireError(
            "version_mismatch",
            f"{launch.label} speaks protocol {body['proto'][0]} to {body['proto'][1]}, this host"
            f" {PROTOCOL_VERSIONS[0]} to {PROTOCOL_VERSIONS[1]}",
            detail={"plugin": list(body["proto"]), "host": list(PROTOCOL_VERSIONS)},
        )
    wanted = {
        "plugin": launch.plugin,
        "version": launch.version,
        "manifest_sha256": launch.manifest_sha256,
    }
    for name, due in wanted.items():
        if body[name] != due:
            return WireError(
                "manifest_mismatch",
                f"{launch.label}: HELLO says {name} {body[name][:80]!r}, the manifest that the host"
                f" has read says {due!r}",
                detail={"field": name, "hello": body[name][:80], "manifest": due},
            )
    return version


def own_limits(launch: Launch) -> dict[str, int]:
    """What the host proposes; the session agrees on the smaller of both ends' (HSK-011)."""
    return {"max_frame": launch.limits.max_frame_bytes, "inflight": launch.limits.inflight}


def welcome(
    launch: Launch,
    instance: str,
    generation: int,
    agreed: Mapping[str, Any],
    isolation: Mapping[str, Any],
    ping_s: float,
) -> dict[str, Any]:
    """The body of WELCOME. `agreed`: the version of the protocol and the session's limits.
    `isolation`: the policy that the worker carries out on itself.
    """
    return {
        "proto": agreed["proto"],
        "features": [],
        "instance": instance,
        "generation": generation,
        "limits": {**agreed["limits"], "threads": launch.limits.threads},
        "grants": launch.grants,
        "isolation": isolation,
        "config": launch.config,
        "secrets": launch.secrets,
        "sys_path": list(launch.sys_path),
        "ping_ms": int(ping_s * 1000),
    }


def check_ready(launch: Launch, body: Mapping[str, Any]) -> WireError | None:
    """None if the offers equal the manifest's, both ways; else what is missing or extra."""
    offered: set[tuple[str, str]] = set()
    for offer in body["offers"]:
        if type(offer) is not dict or not {"kind", "name"} <= offer.keys():
            return _offers(launch, "an offer without kind and name", [], [])
        pair = (str(offer["kind"]), str(offer["name"]))
        if pair in offered:
            return _offers(launch, f"{pair[0]} {pair[1]} is offered twice", [], [])
        offered.add(pair)
    missing = sorted(f"{kind} {name}" for kind, name in set(launch.offers) - offered)
    extra = sorted(f"{kind} {name}" for kind, name in offered - set(launch.offers))
    if not missing and not extra:
        return None
    parts = []
    if missing:
        parts.append(f"not offered: {', '.join(missing[:_LISTED])}")
    if extra:
        parts.append(f"not in the manifest: {', '.join(extra[:_LISTED])}")
    return _offers(launch, "; ".join(parts), missing, extra)


def _offers(launch: Launch, what: str, missing: list[str], extra: list[str]) -> WireError:
    return WireError(
        "manifest_mismatch",
        f"{launch.label}: READY does not equal the manifest: {what}",
        detail={"missing": missing[:_LISTED], "extra": extra[:_LISTED]},
    )
