"""Jailed workers under the real host: what they report, what errors say, what is refused."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from purra_bridge.wire.errors import WireError
from purra_hosts.isolation import machine
from purra_hosts.isolation.machine import Findings
from purra_hosts.isolation.policy import AXES
from purra_hosts.launch import Isolation, Launch
from purra_hosts.process.logs import Record
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from tests.hosts.isolation.arena import TIMINGS, ask, villain
from tests.hosts.isolation.running import need, need_standard
from tests.hosts.process.rig import failing, puppet, until

BOUND_S: Final = 60.0


@asynccontextmanager
async def started(launch: Launch) -> AsyncIterator[tuple[Route, list[Record]]]:
    """One worker, ready, and its log."""
    logs: list[Record] = []
    async with ProcessHost(timings=TIMINGS, logs=logs.append) as host:
        route = host.add(launch)
        await route.start()
        yield route, logs


def standard(**grants: Any) -> Launch:
    named = {name.replace("fs_", "fs."): value for name, value in grants.items()}
    return villain("villain", "standard", named)


def running(main: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(BOUND_S):
            return await main()

    return asyncio.run(bounded())


def test_what_standard_reports() -> None:
    """Protocol, isolation: each axis, by which mechanism."""
    need_standard()

    async def main() -> Mapping[str, str]:
        async with started(standard()) as (route, _):
            return route.status().isolation

    achieved = running(main)
    assert achieved.keys() == set(AXES)
    assert achieved["fs"].startswith("enforced: landlock-")
    assert achieved["net"] == "enforced: seccomp (no network)"
    assert achieved["exec"] == "enforced: seccomp (no programs)"
    assert achieved["ipc"].startswith("enforced: seccomp + landlock-")
    assert achieved["tree"] == "enforced: no processes"
    assert achieved["env"] == "enforced: allow-list"
    assert achieved["memory"] == "best effort: RLIMIT_DATA 256 MiB"
    assert achieved["cpu"] == "none"


def test_a_machine_without_anything_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not required: it starts, and every axis that is missing says why."""
    nothing = Findings(True, 0, None, "no Landlock", "no seccomp")
    monkeypatch.setattr(machine, "probe", lambda: nothing)

    async def main() -> Mapping[str, str]:
        launch = replace(standard(), isolation=Isolation("standard", require=False))
        async with started(launch) as (route, _):
            return route.status().isolation

    achieved = running(main)
    assert achieved["fs"] == "none: no Landlock"
    assert achieved["net"] == achieved["exec"] == achieved["ipc"] == "none: no seccomp"
    assert achieved["tree"] == "best effort: process group"


def test_each_half_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without Landlock still gets the filter, and the reverse (gVisor, old containers)."""
    need_standard()
    real = machine.probe()
    halves = {
        "fs": replace(real, machine=None, no_seccomp="forbidden"),
        "net": replace(real, landlock=0, no_landlock="forbidden"),
    }

    async def main() -> Mapping[str, str]:
        launch = replace(standard(), isolation=Isolation("standard", require=False))
        async with started(launch) as (route, _):
            return route.status().isolation

    for axis, found in halves.items():
        monkeypatch.setattr(machine, "probe", lambda found=found: found)
        achieved = running(main)
        assert achieved[axis].startswith("enforced"), axis
        assert achieved["ipc"].startswith("none" if axis == "fs" else "best effort")


def test_strict_is_refused_where_it_is_missing() -> None:
    """Protocol, isolation: strict never degrades; it names what it lacks."""

    async def main() -> WireError:
        async with ProcessHost(timings=TIMINGS) as host:
            return await failing(host.add(villain("villain", "strict", {})).start())

    error = running(main)
    assert (error.code, error.executed) == ("isolation_unavailable", "no")
    assert "bubblewrap" in error.message and "strict" in error.detail["axes"]


def test_a_command_is_not_believed(tmp_path: Path) -> None:
    """It was not restricted by us, so what it says of itself counts for nothing."""
    code = """
hello()
welcomed()
claims = {"fs": "enforced: magic", "net": "enforced: magic", "memory": "enforced: magic"}
session.ready({"offers": [{"kind": "tool", "name": "t"}], "isolation": claims})
flush()
while True:
    events()
"""

    async def main() -> Mapping[str, str]:
        async with started(puppet(tmp_path, code)) as (route, _):
            return route.status().isolation

    achieved = running(main)
    assert achieved["fs"].startswith("none: ") and achieved["net"].startswith("none: ")
    assert achieved["memory"] == "none"


def test_a_command_is_refused_where_isolation_is_required(tmp_path: Path) -> None:
    """Named per axis."""
    launch = replace(puppet(tmp_path, ""), isolation=Isolation("standard", require=True))

    async def main() -> WireError:
        async with ProcessHost(timings=TIMINGS) as host:
            return await failing(host.add(launch).start())

    error = running(main)
    assert error.code == "isolation_unavailable"
    assert error.detail["axes"].keys() == {"fs", "net", "exec", "ipc"}


@pytest.mark.parametrize(
    ("tool", "arguments", "denied"),
    [
        (
            "open_path",
            {"path": "/etc/hostname", "mode": "r"},
            {"axis": "fs", "what": "/etc/hostname", "grant": 'fs.read = ["/etc/hostname"]'},
        ),
        (
            "open_path",
            {"path": "/purra-made", "mode": "w"},
            {"axis": "fs", "what": "/purra-made", "grant": 'fs.write = ["/purra-made"]'},
        ),
        (
            "look_up",
            {"host": "127.0.0.1", "port": 9},
            {"axis": "net", "what": "127.0.0.1:9", "grant": 'network = ["127.0.0.1:9"]'},
        ),
    ],
)
def test_denials_name_the_grant(tool: str, arguments: dict[str, Any], denied: Any) -> None:
    """Isolation: an author sees what was denied and what would allow it; the instance stays up."""
    need_standard()

    async def main() -> None:
        async with started(standard()) as (route, logs):
            error = await failing(ask(route, tool, **arguments))
            assert (error.code, error.detail["denied"]) == ("internal", denied)
            assert error.detail["type"] == "PermissionError"
            said = f"this would grant it: [plugins.villain] grants = {{ {denied['grant']} }}"
            await until(lambda: any(said in record["text"] for record in logs))
            assert await ask(route, "names")
            assert route.status().generation == 1

    running(main)


def test_the_resolver_is_told_before_the_plugin_runs() -> None:
    """The C library reads it at the first look-up."""
    need_standard()

    async def main() -> str:
        launch = standard(network=["api.example:443"], fs_read=["/proc"])
        async with started(launch) as (route, _):
            assert route.status().isolation["net"].endswith("(and 53 for names)")
            told: str = await ask(route, "variable", name="RES_OPTIONS")
            return told

    assert running(main) == "use-vc"


def test_a_denial_behind_an_ordinary_failure_is_logged() -> None:
    """A tool that foresees it tells the model its own words, and the operator the grant."""
    need("exec")

    async def main() -> None:
        async with started(standard()) as (route, logs):
            assert await ask(route, "start", program="true") == {"error": "true cannot be started"}
            await until(lambda: any("subprocess = true" in record["text"] for record in logs))

    running(main)


def test_a_foreign_call_ends_the_worker() -> None:
    """Protocol, isolation: the other architecture's numbers would pass by every rule."""
    need("exec")
    if platform.machine() != "x86_64":
        pytest.skip("only x86_64 has a second architecture to call")

    async def main() -> WireError:
        async with started(standard()) as (route, _):
            return await failing(ask(route, "foreign"))

    error = running(main)
    if error.detail["signal"] == 11:
        pytest.skip("this kernel has no 32-bit calls")
    assert (error.code, error.detail["signal"]) == ("crashed", 31)
    assert error.detail["limit"] == "system call"


def test_a_grant_that_names_nothing(tmp_path: Path) -> None:
    """It is none until the next start, and the log says so; the host makes nothing."""
    need("fs")
    wanted = tmp_path / "later"

    async def main() -> None:
        async with started(standard(fs_write=[str(wanted)])) as (route, logs):
            assert any(f"fs.write {wanted} names nothing" in record["text"] for record in logs)
            assert not wanted.exists()
            wanted.write_text("")
            error = await failing(ask(route, "open_path", path=str(wanted), mode="w"))
            assert error.detail["type"] == "PermissionError"
            await route.stop()
            await route.start()
            assert await ask(route, "open_path", path=str(wanted), mode="w") == 1

    running(main)


def test_a_grant_over_the_host_s_own_folder() -> None:
    """Such a plugin could rewrite what workers import: that is no jail, and is told."""
    need_standard()

    async def main() -> tuple[str, WireError]:
        everything = replace(standard(fs_write=["/"]), isolation=Isolation("standard"))
        async with started(everything) as (route, _):
            told = route.status().isolation["fs"]
        required = replace(everything, isolation=Isolation("standard", require=True))
        async with ProcessHost(timings=TIMINGS) as host:
            return told, await failing(host.add(required).start())

    told, error = running(main)
    assert told == "best effort: the grant / covers the host's own folder"
    assert error.code == "isolation_unavailable" and "covers" in error.message


def test_a_link_in_the_place_of_a_grant_grants_nothing(tmp_path: Path) -> None:
    """Who may write beside a granted folder cannot turn it into a larger one."""
    need("fs")
    secret, granted = tmp_path / "secret", tmp_path / "granted"
    secret.mkdir()
    (secret / "file").write_text("secret")
    granted.symlink_to(secret)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "way").symlink_to(secret)

    async def main() -> None:
        grants = [str(granted), str(inner / "way")]
        async with started(standard(fs_read=grants, fs_write=[str(inner)])) as (route, _):
            for path in (granted / "file", inner / "way" / "file", secret / "file"):
                error = await failing(ask(route, "open_path", path=str(path), mode="r"))
                assert error.detail["type"] == "PermissionError"

    running(main)


def test_root_keeps_only_what_is_about_files() -> None:
    """A worker of root cannot raise its limits, trace, or listen to packets: checked by the
    attacks; here, that nothing came back in a program that it starts.
    """
    need_standard()

    async def main() -> list[str]:
        launch = standard(subprocess=True, fs_read=["/proc"])
        async with started(launch) as (route, _):
            text = await ask(route, "open_path", path="/proc/self/status", mode="r")
            return [line.split()[1] for line in text.splitlines() if line.startswith("Cap")]

    inherited, permitted, effective, _, ambient = (int(text, 16) for text in running(main))
    assert (permitted | effective) & ~0b11111 == 0
    assert inherited == ambient == 0
