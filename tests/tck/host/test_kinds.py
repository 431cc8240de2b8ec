"""Kinds of hosts: which rules are theirs, and what the kit leaves in a host's process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from purra_tck.command import app
from purra_tck.drivers.host import PluginSpec
from purra_tck.drivers.inproc import InprocDriver
from purra_tck.drivers.process import ProcessDriver
from purra_tck.drivers.specs import from_text, to_text
from purra_tck.puppets import frames
from purra_tck.puppets.threaded import NO_PROCESS
from purra_tck.rules import of_suite
from purra_tck.subjects.host import subject_of

pytestmark = pytest.mark.trial


def test_hosts_in_threads_are_judged_by_all_that_applies_to_them() -> None:
    """FRM-018, PLG-21: a life, values, isolation, an end that cannot be forced."""
    rules = ("LIF-001", "FRM-018", "CAP-008", "CAN-005", "SUP-013", "SHD-004", "LIM-008")
    only = [word for rule in rules for word in ("--only", rule)]
    found = CliRunner().invoke(app, ["host", "inproc", "--once", *only])
    assert found.exit_code == 0, found.output
    assert all(f"✓ {rule}" in found.output for rule in rules)


def test_what_needs_a_hello_of_the_plugin_is_not_asked_of_threads() -> None:
    """The table leaves it out: a host that says HELLO for its plugins has nothing to refuse."""
    own = {rule.id for rule in of_suite("host", "inproc")}
    assert not own & {"HSK-001", "HSK-002", "HSK-003", "HSK-004", "HSK-010", "HSK-011"}
    assert {"FRM-018", "CAP-008", "HSK-005", "LIF-008", "SHD-001"} <= own
    assert InprocDriver.declares < ProcessDriver.declares


def test_a_puppet_in_a_thread_leaves_nothing_and_is_no_process() -> None:
    """Its number must never be one that a signal could reach: the process is the kit's own."""

    async def main() -> None:
        async with subject_of(InprocDriver()) as subject:
            act = await subject.act()
            puppet = await act.begin()
            assert puppet.pid >= NO_PROCESS
            with pytest.raises(ProcessLookupError):
                os.kill(puppet.pid, 0)
            asked, call = await act.asked(puppet, {"x": 1})
            await puppet.write(frames.result(call.id, call.args))
            assert await asked.value() == {"x": 1}
            with pytest.raises(TypeError, match="no say in HELLO"):
                puppet.hello(version="9")

    path = list(sys.path)
    asyncio.run(main())
    assert not [each.name for each in threading.enumerate() if each.name.startswith("purra:")]
    assert sys.path == path


def test_a_spec_travels_as_text(tmp_path: Path) -> None:
    spec = PluginSpec(
        tmp_path,
        command=("{python}", "x"),
        offers=(("tool", "é"), ("store", "s")),
        limits={"inflight": 2},
        services=("lights",),
    )
    assert from_text(to_text(spec)) == spec
