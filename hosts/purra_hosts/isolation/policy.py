"""What one launch gets on this machine: claims per axis, and the policy behind them. Pure.

A *claim* is what an axis will read if the worker's own trials confirm it. Its first word is the
strength: `enforced` by the kernel; `granted`, so there is nothing to enforce; `best effort`; or
`none`. A worker can only confirm a claim or give it up: what it says beyond that is not believed,
for the plugin's code has run by then.

`standard` demands, where the manifest says `require`, that files, network, programs, other
processes and the environment are enforced or granted. Memory is best effort at that level on any
machine, as shared memory is not counted; a share of the processor is not given at all, only an end
to a whole life of it: more would need a cgroup of the host's own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from purra_hosts.isolation import landlock, seccomp
from purra_hosts.isolation.bpf import assemble
from purra_hosts.isolation.folders import Place, canary, covering, folders, looks_up, network_of
from purra_hosts.isolation.machine import Findings
from purra_hosts.launch import Launch

__all__ = ["AXES", "Jail"]

AXES: Final = ("fs", "net", "exec", "ipc", "memory", "cpu", "tree", "env")
"""What isolation is reported for (protocol, isolation)."""
_DEMANDED: Final = {
    "none": (),
    "standard": ("fs", "net", "exec", "ipc", "env"),
    "strict": ("fs", "net", "exec", "ipc", "tree", "env"),
}
_CONFIRMED: Final = ("fs", "net", "exec", "ipc", "tree")
"""Axes that the worker tries; the others are the host's own doing."""
_KEPT: Final = 0b11111
"""Capabilities that root keeps: those about the owners and modes of files. Without them a host that
is root could give its plugins no file of another user."""
_SIGNALS_SINCE: Final = 6
_COMMAND: Final = "none: only a worker with an entry restricts itself, this one is a command"
_INPROC: Final = "none: it runs in the host's own process"
_FAR_PORTS: Final = (1, 9, 11)
"""Ports to try that nobody grants; three, as two may be."""
_NAMES_PORT: Final = 53
_NAMES_BY_TCP: Final = {"RES_OPTIONS": "use-vc"}
"""Asks the C library to look names up by TCP: there is no UDP where ports are enforced."""
_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class Jail:
    """The jail of one launch on the machine of these findings."""

    launch: Launch
    found: Findings

    @property
    def level(self) -> str:
        """`none`, `standard` or `strict`."""
        return self.launch.isolation.level

    @property
    def claims(self) -> Mapping[str, str]:
        """Per axis, what can be claimed at best."""
        if self.launch.kind == "inproc":
            return MappingProxyType(dict.fromkeys(AXES, _INPROC))
        claims = dict.fromkeys(AXES, "none") | {
            "memory": self._memory(),
            "tree": "best effort: process group",
            "env": "enforced: allow-list",
        }
        if self.level != "none":
            claims |= self._enforced()
        claims["cpu"] = self._cpu(alone=claims["tree"].startswith("enforced"))
        return MappingProxyType(claims)

    def missing(self) -> Mapping[str, str]:
        """Axes that the host manifest demands and this machine does not have, with the reason."""
        if not self.launch.isolation.require and self.level != "strict":
            return {}
        claims = self.claims
        short = {axis: claims[axis] for axis in _DEMANDED[self.level] if not _is_firm(claims[axis])}
        if self.level == "strict":
            short["strict"] = "needs bubblewrap (bwrap), which this version does not start yet"
        return short

    def policy(self, place: Place, pid: int, host: int) -> dict[str, Any]:
        """What WELCOME carries: strict values. `pid`, `host`: the worker and its parent, both as
        the worker sees them.
        """
        required = self.launch.isolation.require
        policy: dict[str, Any] = {"level": self.level, "require": required}
        if self.level == "none" or self.launch.entry is None or self.launch.kind == "inproc":
            return policy
        reachable = folders(self.launch, place)
        claims = dict(self.claims)
        if covered := covering(self.launch, place):
            claims["fs"] = f"best effort: the grant {covered} covers the host's own folder"
        if required:
            policy["demanded"] = [axis for axis in _DEMANDED[self.level] if axis in _CONFIRMED]
        if self.found.landlock:
            ports = self._ports
            policy["landlock"] = landlock.ruleset(self.found.landlock, reachable, ports)
        if self.found.machine is not None:
            wish = self._wish(pid, host)
            policy["seccomp"] = assemble(seccomp.rules(wish), self.found.machine)
            policy["capabilities"] = _KEPT
        if looks_up(self.launch):
            policy["env"] = dict(_NAMES_BY_TCP)
        policy["axes"] = {
            axis: [claims[axis], list(self._mechanisms(axis))]
            for axis in _CONFIRMED
            if not claims[axis].startswith("none")
        }
        policy["canaries"] = [
            trial for trial in self._canaries(canary(reachable)) if trial[0] in policy["axes"]
        ]
        return policy

    def achieved(self, said: Mapping[str, Any]) -> dict[str, str]:
        """What the worker confirmed of the claims, per axis; never more than was claimed."""
        achieved = dict(self.claims)
        if self.level == "none":
            return achieved
        for axis in _CONFIRMED:
            answer = str(said.get(axis, "none"))[:200]
            weaker = answer.startswith(("none", "best effort"))
            if answer != achieved[axis] and not achieved[axis].startswith("none"):
                achieved[axis] = answer if weaker else "none: the worker did not confirm it"
        return achieved

    # What there is to claim.

    def _enforced(self) -> dict[str, str]:
        found, launch = self.found, self.launch
        if launch.entry is None:
            return dict.fromkeys(("fs", "net", "exec", "ipc"), _COMMAND)
        claims = {"fs": f"none: {found.no_landlock}"}
        if found.landlock:
            claims["fs"] = f"enforced: landlock-{found.landlock}"
        if found.machine is None:
            return claims | dict.fromkeys(("net", "exec", "ipc"), f"none: {found.no_seccomp}")
        claims["net"] = self._net()
        claims["ipc"] = self._ipc()
        if launch.grants.get("subprocess"):
            claims["exec"] = "granted: subprocess"
        else:
            claims["exec"] = "enforced: seccomp (no programs)"
            claims["tree"] = "enforced: no processes"
        return claims

    def _net(self) -> str:
        network = network_of(self.launch)
        if network == "none":
            return "enforced: seccomp (no network)"
        if network == "any":
            return "granted: any network (no UNIX sockets)"
        ports = " ".join(map(str, network)) + (
            " (and 53 for names)" if looks_up(self.launch) else ""
        )
        if self.found.landlock < landlock.PORTS_SINCE:
            return f"best effort: seccomp, TCP to any port; landlock-4 is needed for {ports}"
        return f"enforced: seccomp + landlock-{self.found.landlock}, TCP to any host, port {ports}"

    def _ipc(self) -> str:
        if not self.found.landlock:
            return "best effort: seccomp (/proc shows the memory of other processes)"
        if self.launch.grants.get("subprocess") and self.found.landlock < _SIGNALS_SINCE:
            return "best effort: seccomp (before landlock-6 other plugins can be signalled)"
        return f"enforced: seccomp + landlock-{self.found.landlock}"

    def _memory(self) -> str:
        limit = self.launch.limits.memory_bytes
        if limit is None or not self.found.linux:
            return "none"
        return f"best effort: RLIMIT_DATA {limit // _MIB} MiB"

    def _cpu(self, alone: bool) -> str:
        """`alone`: it cannot start another process, which would have the whole time again."""
        limit_s = self.launch.limits.cpu_s
        if limit_s is None or not self.found.linux:
            return "none"
        return f"{'enforced' if alone else 'best effort'}: RLIMIT_CPU {limit_s} s"

    # How it is carried out, and tried.

    @property
    def _ports(self) -> tuple[int, ...] | None:
        network = network_of(self.launch)
        if not isinstance(network, tuple):
            return None
        return (*network, _NAMES_PORT) if looks_up(self.launch) else network

    def _wish(self, pid: int, host: int) -> seccomp.Wish:
        network = network_of(self.launch)
        return seccomp.Wish(
            network="ports"
            if isinstance(network, tuple)
            else "any"
            if network == "any"
            else "none",
            subprocess=bool(self.launch.grants.get("subprocess")),
            pid=pid,
            host=host,
            landlock=self.found.landlock,
        )

    def _mechanisms(self, axis: str) -> tuple[str, ...]:
        if axis == "fs":
            return ("landlock",)
        both = axis == "ipc" or (axis == "net" and self._ports is not None)
        if both and self.found.landlock:
            return ("seccomp", "landlock", "capabilities")
        return ("seccomp", "capabilities")

    def _canaries(self, outside: str) -> list[list[Any]]:
        """[axis, trial, arguments ...] (`purra_hosts.isolation.jail`)."""
        trials: list[list[Any]] = []
        if outside and self.found.landlock:
            trials.append(["fs", "open", outside])
        machine = self.found.machine
        if machine is None:
            return trials
        number = machine.numbers
        trials.append(["ipc", "call", "a signal", seccomp.EPERM, number["kill"], "parent", 0])
        if not self.launch.grants.get("subprocess"):
            trials += [["exec", "fork"], ["tree", "fork"]]
        network = network_of(self.launch)
        inet, datagram, unix, stream = 2, 2, 1, 1
        if network == "any":
            what, family, kind = "a UNIX socket", unix, stream
        else:
            what, family, kind = "a datagram socket", inet, datagram
        trials.append(["net", "call", what, seccomp.EACCES, number["socket"], family, kind, 0])
        if self._ports is not None and self.found.landlock >= landlock.PORTS_SINCE:
            far = next(port for port in _FAR_PORTS if port not in self._ports)
            address = (
                struct.pack("=H", inet) + struct.pack("!H", far) + bytes((127, 0, 0, 1)) + bytes(8)
            )
            what = f"a connection to port {far}"
            trials.append(
                ["net", "connect", what, number["socket"], number["connect"], inet, address]
            )
        return trials


def _is_firm(claim: str) -> bool:
    return claim.startswith(("enforced", "granted"))
