"""Faults from the field that are about the machine around a host."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.hosts.process.rig import hosting, running, tool, workbench


def test_a_long_temporary_folder_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H05: no socket has a path, so no path can be too long for one."""
    long = tmp_path / ("t" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr("tempfile.tempdir", None)

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            assert await tool(route, "echo", value=1) == 1

    running(main)


def test_a_plugin_cannot_change_how_the_hosts_own_output_behaves(tmp_path: Path) -> None:
    """H59: the pipes are the plugin's; the host's descriptors share no description with them."""
    launch = workbench()
    folder = tmp_path / "plugin"
    folder.mkdir()
    code = (launch.folder / "workbench.py").read_text()
    unblock = "for fd in (0, 1, 2): os.set_blocking(fd, False)\n"
    (folder / "workbench.py").write_text(code.replace("\n\n\n@tool", f"\n\n{unblock}\n\n@tool", 1))

    async def main() -> list[bool]:
        async with hosting() as watched:
            route = watched.host.add(workbench(sys_path=(str(folder),)))
            assert await tool(route, "echo", value=1) == 1
            return [os.get_blocking(stream.fileno()) for stream in (sys.__stdout__, sys.__stderr__)]

    before = [os.get_blocking(stream.fileno()) for stream in (sys.__stdout__, sys.__stderr__)]
    assert running(main) == before
