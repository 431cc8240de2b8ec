"""From a launch and what a machine allows to rules and claims: pure, for any machine."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from purra_bridge.wire.codec import decode, encode
from purra_hosts.isolation import landlock
from purra_hosts.isolation.folders import Folder, Place, covering, folders, network_of, unused
from purra_hosts.isolation.machine import Findings
from purra_hosts.isolation.policy import AXES, Jail
from purra_hosts.isolation.syscalls import MACHINES
from purra_hosts.launch import Isolation, Launch, LaunchLimits

PLACE: Final = Place("/tmp/host", "/tmp/host/staged", "/tmp/host/home")
FOUND: Final = Findings(True, 7, MACHINES["x86_64"])
PROGRAMS: Final = {"subprocess": True}
READ, WRITE_FILE, EXECUTE, MAKE_REG, TRUNCATE, REFER = 4 | 8, 2, 1, 1 << 8, 1 << 14, 1 << 13
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11


def launch(level: str = "standard", require: bool = False, **grants: Any) -> Launch:
    named = {name.replace("fs_", "fs."): value for name, value in grants.items()}
    return Launch(
        plugin="p",
        version="1",
        folder=Path("/plugins/p"),
        manifest_path=Path("/plugins/p/purra-plugin.toml"),
        manifest_sha256="0" * 64,
        offers=(),
        python="/opt/python/bin/python3",
        entry="p:plugin",
        grants=named,
        sys_path=("/plugins", "/site"),
        limits=LaunchLimits(memory_bytes=128 * 1024**2),
        isolation=Isolation(level, require),
    )


def reach(**grants: Any) -> dict[str, Folder]:
    return {folder.path: folder for folder in folders(launch(**grants), PLACE)}


def policy(jail: Jail) -> dict[str, Any]:
    return jail.policy(PLACE, 4711, 4000)


def test_what_every_worker_reaches() -> None:
    """Protocol, isolation: interpreter, libraries, TLS, time zones, its code, a private home."""
    found = reach()
    for path in ("/opt/python/lib", "/usr/lib", "/plugins/p", "/plugins", "/site", PLACE.staged):
        assert not found[path].write and not found[path].execute
    assert "/etc/ssl/certs" in found and "/usr/share/zoneinfo" in found
    assert {path for path, folder in found.items() if folder.write} == {PLACE.home, "/dev/null"}
    for path in ("/", "/etc", "/etc/ssl", "/etc/passwd", "/etc/resolv.conf", "/tmp", PLACE.root):
        assert path not in found
    assert not any(path.startswith(("/root", "/home", "/dev/shm")) for path in found)


def test_grants_add_to_it() -> None:
    """Grants are followed exactly: a link in their place grants nothing."""
    found = reach(fs_read=["/data"], fs_write=["/state"])
    assert found["/data"] == Folder("/data", follow=False)
    assert found["/state"] == Folder("/state", write=True, follow=False)
    assert "/etc/resolv.conf" in reach(network="any")
    assert "/etc/resolv.conf" in reach(network=["a:1"])
    programs = reach(subprocess=True, fs_read=["/data"])
    for path in ("/usr", "/bin", "/opt/python", "/plugins/p", "/data"):
        assert programs[path].execute, path
    assert not programs[PLACE.home].execute


def test_a_grant_inside_a_writable_one_is_dropped() -> None:
    """Else the plugin could put a link there and have a larger grant at its next start."""
    found = reach(fs_read=["/state/in", "/statement"], fs_write=["/state", "/state/deep"])
    assert "/state/in" not in found and "/state/deep" not in found
    assert "/state" in found and "/statement" in found


def test_grants_that_name_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    wanted = [str(tmp_path / "there"), str(tmp_path / "missing")]
    assert unused(launch(fs_write=wanted)) == (wanted[1],)
    assert unused(launch(fs_write=[str(tmp_path), wanted[1]])) == ()
    assert unused(launch(fs_read=[wanted[1]])) == ()


def test_a_grant_that_covers_the_host_is_no_enforcement() -> None:
    """Who may write what workers import of ours is in no jail, and the report says so."""
    for path in ("/", "/tmp", "/tmp/host"):
        assert covering(launch(fs_write=[path]), PLACE) == path
        claim = policy(Jail(launch(fs_write=[path]), FOUND))["axes"]["fs"][0]
        assert claim.startswith("best effort") and path in claim
    assert covering(launch(fs_write=["/tmp/hosts", "/var"]), PLACE) == ""


@pytest.mark.parametrize(
    ("granted", "network"),
    [
        ("none", "none"),
        ("any", "any"),
        ([], "none"),
        (["a:443", "b:80", "c:443", "[::1]:8080"], (80, 443, 8080)),
    ],
)
def test_networks(granted: Any, network: Any) -> None:
    assert network_of(launch(network=granted)) == network


def test_rights_by_version() -> None:
    """A right that a version does not know cannot be asked for: the kernel would refuse it all."""
    several = (Folder("/r"), Folder("/w", write=True), Folder("/x", execute=True))
    known = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
    for version in range(1, 12):
        rules = landlock.ruleset(version, several, (443,))
        assert rules["abi"] == min(version, 7)
        assert rules["fs"] == known[max(since for since in known if since <= version)]
        assert rules["net"] == (3 if version >= 4 else 0)
        assert rules["ports"] == ([[443, 2]] if version >= 4 else [])
        assert rules["scoped"] == (3 if version >= 6 else 0)
        for _, rights, file_rights, _ in rules["paths"]:
            assert rights & ~rules["fs"] == 0 and file_rights & ~rights == 0
    (_, read, _, _), (_, write, file, _), (_, execute, _, _) = rules["paths"]
    assert (read, execute) == (READ, READ | EXECUTE)
    assert (
        write & (WRITE_FILE | MAKE_REG | TRUNCATE | REFER)
        == WRITE_FILE | MAKE_REG | TRUNCATE | REFER
    )
    assert write & (EXECUTE | MAKE_CHAR | MAKE_SOCK | MAKE_BLOCK) == 0
    assert file == 4 | WRITE_FILE | TRUNCATE
    assert landlock.ruleset(7, (), None)["net"] == 0


def test_claims_at_level_none() -> None:
    """Nothing is claimed that is not the host's own doing."""
    claims = Jail(launch("none"), FOUND).claims
    assert claims.keys() == set(AXES)
    assert {axis for axis, claim in claims.items() if claim == "none"} == {
        *("fs", "net", "exec", "ipc", "cpu")
    }
    assert policy(Jail(launch("none"), FOUND)) == {"level": "none", "require": False}


def test_processor_time() -> None:
    """A limit per process is a limit only where there is one process."""
    timed = replace(launch(), limits=LaunchLimits(cpu_s=60))
    assert Jail(timed, FOUND).claims["cpu"] == "enforced: RLIMIT_CPU 60 s"
    for loose in (replace(timed, isolation=Isolation("none")), replace(timed, grants=PROGRAMS)):
        assert Jail(loose, FOUND).claims["cpu"] == "best effort: RLIMIT_CPU 60 s"
    assert Jail(launch(), FOUND).claims["cpu"] == "none"


def test_claims_by_grant() -> None:
    claims = Jail(launch(network="any", subprocess=True), FOUND).claims
    assert claims["net"].startswith("granted: any network")
    assert claims["exec"] == "granted: subprocess"
    assert claims["tree"].startswith("best effort")
    ports = Jail(launch(network=["a:80", "b:443"]), FOUND).claims["net"]
    start = "enforced: seccomp + landlock-7, TCP to any host, port 80 443"
    assert ports == f"{start} (and 53 for names)"
    assert Jail(launch(network=["127.0.0.1:80", "localhost:443"]), FOUND).claims["net"] == start


@pytest.mark.parametrize(
    ("found", "grants", "short"),
    [
        (FOUND, {}, set()),
        (FOUND, {"network": "any", "subprocess": True}, set()),
        (replace(FOUND, landlock=1), {}, set()),
        (replace(FOUND, landlock=0, no_landlock="off"), {}, {"fs", "ipc"}),
        (replace(FOUND, machine=None, no_seccomp="off"), {}, {"net", "exec", "ipc"}),
        (replace(FOUND, landlock=3), {"network": ["a:1"]}, {"net"}),
        (replace(FOUND, landlock=5), {"subprocess": True}, {"ipc"}),
        (Findings(False, 0, None, "macOS", "macOS"), {}, {"fs", "net", "exec", "ipc"}),
    ],
)
def test_what_is_missing_for_a_required_level(
    found: Findings, grants: dict[str, Any], short: set[str]
) -> None:
    """Protocol, isolation: a start is refused on exactly the axes that are not enforced."""
    assert Jail(launch(require=True, **grants), found).missing().keys() == short
    assert Jail(launch(require=False, **grants), found).missing() == {}
    assert Jail(launch("none", require=True, **grants), found).missing() == {}


def test_the_policy_is_a_strict_value_and_complete() -> None:
    """It travels in WELCOME; every claim of the worker's axes is tried."""
    told = policy(Jail(launch(require=True, network=["a:9"]), FOUND))
    assert decode(encode(told)) == told
    assert told["demanded"] == ["fs", "net", "exec", "ipc"]
    assert {trial[0] for trial in told["canaries"]} == set(told["axes"])
    assert ["fs", "open", "/"] in told["canaries"]
    (connect,) = [trial for trial in told["canaries"] if trial[1] == "connect"]
    assert "port 1" in connect[2]  # 9 is granted, so it is no canary
    (_, _, _, number, *_) = next(trial for trial in told["canaries"] if "datagram" in str(trial))
    assert number == errno.EACCES


def test_names_are_looked_up_by_tcp() -> None:
    """Where ports are enforced there is no UDP, so the resolver is told, and its port granted."""
    named = policy(Jail(launch(network=["api.example:443"]), FOUND))
    assert named["env"] == {"RES_OPTIONS": "use-vc"}
    assert [port for port, _ in named["landlock"]["ports"]] == [53, 443]
    for other in (["127.0.0.1:443"], ["[::1]:443", "localhost:443"], "any", "none"):
        told = policy(Jail(launch(network=other), FOUND))
        assert "env" not in told
        assert 53 not in [port for port, _ in told["landlock"]["ports"]]


def test_a_canary_is_never_something_granted() -> None:
    told = policy(Jail(launch(fs_read=["/"]), FOUND))
    assert not [trial for trial in told["canaries"] if trial[0] == "fs"]
    told = policy(Jail(launch(network="any", subprocess=True), FOUND))
    assert not [trial for trial in told["canaries"] if trial[1] == "fork"]
    (sockets,) = [trial for trial in told["canaries"] if trial[0] == "net"]
    assert sockets[2] == "a UNIX socket"


def test_a_worker_can_give_up_a_claim_and_not_make_one() -> None:
    """At READY the plugin's code has run: what it says beyond the claim is not believed."""
    jail = Jail(launch(), FOUND)
    said = dict(jail.claims)
    assert jail.achieved(said) == said
    lies = {
        **said,
        "fs": "enforced: by magic",
        "cpu": "enforced: by magic",
        "net": "none: it failed",
    }
    achieved = jail.achieved(lies)
    assert achieved["fs"] == "none: the worker did not confirm it"
    assert achieved["cpu"] == "none"
    assert achieved["net"] == "none: it failed"
    assert jail.achieved({})["exec"] == "none"
    assert Jail(launch("none"), FOUND).achieved(lies)["fs"] == "none"
