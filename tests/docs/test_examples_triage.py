"""The second host: an agent with a domain of its own, through crashes (S0 second host, TST-05)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.trial

TRIAGE: Final = ROOT / "docs" / "examples" / "triage"
HOST: Final = (sys.executable, "-W", "error", TRIAGE / "host.py")
LIMIT_S: Final = 60.0
PAGED: Final = {"alert": "db-7", "filed": True, "severity": "page"}
NOTED: Final = {"alert": "web-3", "filed": True, "severity": "info"}

DIES_IN_THE_WRITE: Final = """
import os, runpy, signal, sys
move = os.replace
def die(source, target):
    move(source, target)
    if "notes" in str(target):
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = die
sys.path.insert(0, os.path.dirname(sys.argv[1]))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The host, ended by a signal once a note is there and before anybody was told."""


class Host:
    """Calls the host's commands, each in a process of its own, on one state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.run = ""

    def __call__(self, command: str, what: str, *, due: int = 0) -> list[str]:
        """What it printed, having ended with the exit code `due`."""
        ran = subprocess.run(
            [*HOST, command, what, "--state", self.state],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert ran.returncode == due, ran.stdout + ran.stderr
        assert ran.stderr == "" or due == 1
        lines = (ran.stdout + ran.stderr).splitlines()
        self.run = self.run or lines[0].removeprefix("run ")
        return lines

    def killed_at(self, line: str, command: str, what: str) -> None:
        """Ends it, without any warning, when it has printed `line`."""
        host = subprocess.Popen(
            [*HOST, command, what, "--state", self.state], stdout=subprocess.PIPE, text=True
        )
        assert host.stdout is not None
        with host, host.stdout as printed:
            for found in printed:
                self.run = self.run or found.removeprefix("run ").strip()
                if found.startswith(line):
                    break
            else:
                pytest.fail(f"it has never printed {line!r}")
            host.kill()
        assert host.returncode == -signal.SIGKILL

    @property
    def notes(self) -> list[str]:
        return [file.read_text() for file in (self.state / "notes").glob("[!.]*")]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "state")


def test_an_alert_is_looked_at_and_noted(host: Host) -> None:
    """Its own tools in its own process, a model and a store as plugins, a typed verdict."""
    lines = host("triage", "web-3")
    assert json.loads(lines[-1]) == NOTED
    assert [line for line in lines if "wants" in line] == [
        "  wants alerts",
        "  wants runbook",
        "  wants file_note",
        "  wants verdict",
    ]
    (note,) = host.notes
    assert note.startswith("[info] shop: slow-answers since 02:14.\nMostly the cache")
    assert (host.state / "triage.db").exists()


def test_its_policy_wakes_nobody_unless_a_person_agrees(host: Host) -> None:
    """HITL-05: nothing holds the run while it waits; another process decides."""
    lines = host("triage", "db-7", due=3)
    assert lines[-1] == "waiting approval_pending"
    assert lines[-2].startswith('  waits for a person: file_note {"alert": "db-7"')
    assert host.notes == []
    lines = host("approve", host.run)
    assert "  on call: approve" in lines
    assert json.loads(lines[-1]) == PAGED
    (note,) = host.notes
    assert note.startswith("[page] orders-db: disk-full")


def test_a_person_may_refuse(host: Host) -> None:
    host("triage", "db-7", due=3)
    lines = host("reject", host.run)
    assert json.loads(lines[-1]) == {**PAGED, "filed": False}
    assert host.notes == []


@pytest.mark.parametrize("line", ["run ", "  wants runbook"])
def test_it_goes_on_after_a_crash(host: Host, line: str) -> None:
    """RUN-05: what was shown is stored; a resume folds it and goes on."""
    host.killed_at(line, "triage", "db-7")
    assert host("resume", host.run, due=3)[-1] == "waiting approval_pending"
    assert json.loads(host("approve", host.run)[-1]) == PAGED
    assert len(host.notes) == 1


@pytest.mark.parametrize("line", ["  on call: approve", "  runs 3.0"])
def test_a_note_that_was_agreed_to_is_filed_once(host: Host, line: str) -> None:
    """TOOL-17: the decision counts once, and so does its effect, wherever the crash was."""
    host("triage", "db-7", due=3)
    host.killed_at(line, "approve", host.run)
    assert json.loads(host("resume", host.run)[-1]) == PAGED
    assert len(host.notes) == 1


def test_a_crash_in_the_write_makes_no_second_note(host: Host) -> None:
    """The note is there, and nobody knows: its key makes the second try the same note."""
    dying = subprocess.run(
        [
            sys.executable,
            "-c",
            DIES_IN_THE_WRITE,
            *HOST[3:],
            "triage",
            "web-3",
            "--state",
            host.state,
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert dying.returncode == -signal.SIGKILL, dying.stderr
    assert len(host.notes) == 1
    run = dying.stdout.splitlines()[0].removeprefix("run ")
    lines = host("resume", run)
    assert "  runs 3.0" in lines
    assert json.loads(lines[-1]) == NOTED
    assert len(host.notes) == 1


def test_an_alert_that_is_not_open_has_no_verdict(host: Host) -> None:
    """The answer is checked as a whole: a remark is no verdict."""
    last = host("triage", "nothing", due=1)[-1]
    assert last.startswith(f"error: run {host.run}: the answer is not one strict JSON document")
    assert host.notes == []


def test_what_is_not_there_is_one_line(host: Host) -> None:
    host("triage", "web-3")
    (line,) = host("resume", "no-such-run", due=1)
    assert line.startswith("error: run no-such-run")
    assert os.linesep not in line
