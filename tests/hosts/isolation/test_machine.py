"""The probe: what this kernel allows, found by trying, and what a broken machine looks like."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from purra_hosts.isolation import jail, machine
from purra_hosts.isolation.machine import Findings, Prober, probe
from tests.hosts.isolation.running import need_standard


def test_it_finds_what_is_here() -> None:
    """Whatever it finds, it says why the rest is not there."""
    found = probe()
    assert bool(found.landlock) != bool(found.no_landlock)
    assert (found.machine is not None) != bool(found.no_seccomp)


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are not known, so none is guessed."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    found = probe()
    assert (found.machine, found.no_seccomp) == (None, "no table of system calls for riscv64")


def test_a_kernel_that_only_pretends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls succeed and nothing is denied: then there is nothing (H: probe by doing)."""
    need_standard()
    real = machine._policy

    def toothless(*arguments: Any) -> dict[str, Any]:
        return {**real(*arguments), "landlock": None, "seccomp": None}

    monkeypatch.setattr(machine, "_policy", toothless)
    found = probe()
    assert (found.landlock, found.machine) == (0, None)
    assert found.no_landlock == "/ could be opened"
    assert "could be started" in found.no_seccomp or "was possible" in found.no_seccomp


def test_a_probe_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing was shown to work."""

    def broken(policy: dict[str, Any]) -> dict[str, str]:
        raise subprocess.TimeoutExpired("probe", 10)

    monkeypatch.setattr(machine, "_in_a_child", broken)
    found = probe()
    assert (found.landlock, found.machine) == (0, None)
    assert "the probe failed" in found.no_landlock + found.no_seccomp


def test_it_looks_once_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once per host, however many starts wait for it, and whoever of them gives up."""
    looks: list[int] = []
    going = threading.Event()

    def slow() -> Findings:
        looks.append(1)
        assert going.wait(10)
        return Findings(True, 7, None)

    monkeypatch.setattr(machine, "probe", slow)

    async def main() -> None:
        prober = Prober()
        waiting = [asyncio.ensure_future(prober.findings()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        going.set()
        assert [found.landlock for found in await asyncio.gather(*waiting[1:])] == [7, 7]
        assert (await prober.findings()).landlock == 7

    before = set(threading.enumerate())
    asyncio.run(main())
    assert len(looks) == 1
    for thread in set(threading.enumerate()) - before:  # it tells of what it found, and then ends
        thread.join(10)
        assert not thread.is_alive()


def test_a_fault_of_the_probe_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start must not wait for ever."""

    def faulty() -> Findings:
        raise RuntimeError("a bug")

    monkeypatch.setattr(machine, "probe", faulty)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="a bug"):
            await asyncio.wait_for(Prober().findings(), 10)

    asyncio.run(main())


def test_the_jail_is_cheap_to_load() -> None:
    """Start-up budget: it stands in the way of every start, so it loads nothing but `_ctypes`."""
    folder = str(Path(jail.__file__).parent)
    code = (
        "import sys, os; before = set(sys.modules) | {'struct', '_struct'}\n"
        f"sys.path.insert(0, {folder!r}); import jail; jail.Libc()\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert set(ran.stdout.split()) <= {"jail", "_ctypes", "__future__"}
