"""What a jail must not get in the way of: the ordinary work of honest plugins."""

from __future__ import annotations

import errno
from typing import Any, Final

import pytest

from tests.hosts.isolation.running import IDENTITIES, arena, findings, need_standard

EVERYBODY: Final = {
    "threads": 9900,
    "many_threads": 16,
    "event_loop": ["hello\n", "slept"],
    "database": {"count": 100, "beside": ["store.db", "store.db-shm", "store.db-wal"]},
    "temporary_files": True,
    "own_folder": [
        "crime_files.py",
        "crime_processes.py",
        "crime_sockets.py",
        "honest.py",
        "villain.py",
    ],
    "granted_folders": "granted",
    "read_is_not_write": errno.EACCES,
    "randomness": 16,
    "null_device": "",
    "signals_to_itself": 3,
    "own_priority": True,
    "own_memory": True,
}
"""Job -> what it gives without any grant but two folders."""


def _gives(told: dict[str, Any]) -> dict[str, Any]:
    assert {job: result for job, result in told.items() if "gives" not in result} == {}
    return {job: result["gives"] for job, result in told.items()}


@pytest.mark.parametrize("who", IDENTITIES)
def test_without_grants(who: str) -> None:
    """Protocol, isolation: threads, loops, SQLite with its files, temporary and granted files."""
    need_standard()
    assert _gives(arena(who, "labour", list(EVERYBODY), "standard", {})) == EVERYBODY


def test_time_zones_and_authorities_are_those_of_the_machine() -> None:
    """Without its files a TLS context trusts nobody, and raises nothing."""
    need_standard()
    jobs = ["time_zone", "secure_context"]
    free = arena("myself", "labour", jobs, "none", {})
    jailed = arena("myself", "labour", jobs, "standard", {})
    for job in jobs:
        assert jailed[job].get("gives") == free[job].get("gives")


@pytest.mark.parametrize("who", IDENTITIES)
def test_granted_programs(who: str) -> None:
    """The grant `subprocess`: programs of the system and its own; it can end them."""
    need_standard()
    jobs = ["program", "program_that_is_ended", "threads"]
    told = arena(who, "labour", jobs, "standard", {"subprocess": True})
    assert _gives(told) == {
        "program": ["Linux", "1"],
        "program_that_is_ended": -15,
        "threads": 9900,
    }
    assert told["program"]["isolation"]["exec"] == "granted: subprocess"
    assert told["program"]["isolation"]["tree"].startswith("best effort")


@pytest.mark.parametrize("who", IDENTITIES)
def test_a_granted_port(who: str) -> None:
    """Network `host:port`: that port of any host, by threads and by event loops, and no other."""
    need_standard()
    jobs = ["connection", "connection_of_a_loop", "other_port"]
    told = arena(who, "labour", jobs, "standard", {"network": ["localhost:PORT"]})
    if findings().landlock < 4:
        assert told["connection"]["isolation"]["net"].startswith("best effort")
        pytest.skip("this kernel's Landlock knows no ports")
    assert _gives(told) == {
        "connection": "welcome",
        "connection_of_a_loop": "welcome",
        "other_port": errno.EACCES,
    }
    assert told["connection"]["isolation"]["net"].startswith("enforced")


@pytest.mark.parametrize("who", IDENTITIES)
def test_any_network(who: str) -> None:
    """Network `any`: clients and servers."""
    need_standard()
    jobs = ["connection", "connection_of_a_loop", "other_port", "server"]
    told = arena(who, "labour", jobs, "standard", {"network": "any"})
    assert _gives(told) == {
        "connection": "welcome",
        "connection_of_a_loop": "welcome",
        "other_port": 0,
        "server": "served",
    }
    assert told["server"]["isolation"]["net"].startswith("granted")
