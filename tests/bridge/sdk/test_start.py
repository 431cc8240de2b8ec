"""From the spawn to READY: what the bootstrap says, and what a start that fails says."""

from __future__ import annotations

import hashlib
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.wire import events as wire
from purra_hosts.bootstrap import AXES
from purra_sdk.worker import EXIT_START_FAILED


def test_hello_says_who_runs_which_manifest(launch: Any, tmp_path: Path) -> None:
    """HSK-005: identity and the digest of the file as it lies on the disk."""
    worker = launch()
    manifest = (tmp_path / "purra-plugin.toml").read_bytes()
    assert worker.hello["plugin"] == "sample"
    assert worker.hello["version"] == "1.2.3"
    assert worker.hello["manifest_sha256"] == hashlib.sha256(manifest).hexdigest()
    assert worker.hello["proto"] == [1, 1]
    assert worker.hello["pid"] == worker.process.pid
    assert worker.hello["nonce"] == "nonce"


def test_ready_lists_what_is_offered_and_claims_no_isolation(launch: Any) -> None:
    """protocol, READY: the real offers; every axis is honest about having nothing."""
    ready = launch().ready
    kinds = {(offer["kind"], offer["name"]) for offer in ready["offers"]}
    assert {("tool", "add"), ("tool", "sample.facts"), ("model", "voice")} <= kinds
    assert {("context", "memory"), ("store", "journal"), ("policy", "guard")} <= kinds
    assert ready["isolation"] == dict.fromkeys(AXES, "none")


def test_the_worker_keeps_the_host_s_names_out_of_its_environment(launch: Any) -> None:
    """protocol, transport: PURRA_* are for the bootstrap; granted names stay."""
    environment = launch().run("sample.facts", asked="env")
    assert environment["GRANTED"] == "yes"
    assert not [name for name in environment if name.startswith("PURRA_")]


def test_imports_come_from_the_staged_folder_first(launch: Any, tmp_path: Path) -> None:
    """tables, worker paths: staged first, then the standard library, the plugin's folders last."""
    path = launch().run("sample.facts", asked="path")
    assert path[0] == str(tmp_path / "staged")
    assert path[-1].endswith("samples")
    assert not [entry for entry in path if "site-packages" in entry]


def test_setup_gets_config_secrets_and_grants(launch: Any) -> None:
    """design, invariant 14: secrets come by the channel."""
    worker = launch(config={"a": [1, 2.5, None]}, secrets={"KEY": "s3"}, grants={"fs.read": ["/x"]})
    assert worker.run("sample.facts", asked="setup") == {
        "config": {"a": [1, 2.5, None]},
        "secrets": {"KEY": "s3"},
        "grants": {"fs.read": ["/x"]},
        "plugin": "sample@1.2.3",
        "generation": 7,
        "state": {"warm": True},
    }


def test_setup_may_log_and_tell_how_it_gets_on(launch: Any) -> None:
    """protocol, STATUS: before READY."""
    worker = launch()
    assert worker.wait(wire.Log).body["msg"] == "setting up"
    assert worker.wait(wire.Status).body["phase"] == "warming"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("broken:plugin", "RuntimeError: no database\nat the usual place"),
        ("leaving:plugin", "SystemExit: bye"),
        ("missing:plugin", "No module named 'missing'"),
        ("sample:nothing", "has no attribute 'nothing'"),
        ("sample:not_a_plugin", "is a int, not a purra_sdk.Plugin"),
    ],
)
def test_a_start_that_fails_says_why(launch: Any, entry: str, told: str) -> None:
    """LIF-003: the plugin's own last line in the error, the traceback in the log, exit 1."""
    worker = launch(entry, ready=False)
    error = worker.wait(wire.Refused).error
    assert (error.code, error.origin) == ("internal", "plugin")
    assert told in error.message
    status, _, log = worker.finish()
    assert status == EXIT_START_FAILED
    assert "Traceback" in log


def test_required_isolation_is_refused_before_any_import(launch: Any, tmp_path: Path) -> None:
    """protocol, isolation: `require` and no way to achieve it: `isolation_unavailable`."""
    worker = launch("marking:plugin", ready=False, isolation={"level": "standard", "require": True})
    error = worker.wait(wire.Refused).error
    assert (error.code, error.origin, error.executed) == ("isolation_unavailable", "host", "no")
    assert worker.finish()[0] == EXIT_START_FAILED
    assert not (tmp_path / "staged" / "imported").exists()


def test_what_is_required_and_there_is_enough(launch: Any) -> None:
    """protocol, isolation: level none can be required."""
    assert launch("marking:plugin", isolation={"level": "none", "require": True}).ready


def test_no_plugin_code_runs_before_the_gate(launch: Any, tmp_path: Path) -> None:
    """protocol, instance states: WELCOME is the gate. Without it the worker just ends."""
    worker = launch("marking:plugin", ready=False)
    worker.wait(wire.Ready)
    mark = tmp_path / "staged" / "imported"
    assert mark.exists()
    mark.unlink()

    held = launch("marking:plugin", ready=False, gate="closed")
    held.half_close()
    assert held.finish()[0] == EXIT_START_FAILED
    assert not mark.exists()


def test_a_host_that_refuses_is_understood(launch: Any, tmp_path: Path) -> None:
    """protocol, WELCOME: or ERROR on id 0."""
    worker = launch("marking:plugin", ready=False, gate="refuse")
    status, _, log = worker.finish()
    assert status == EXIT_START_FAILED
    assert "the wrong manifest" in log
    assert not (tmp_path / "staged" / "imported").exists()


def test_stray_bytes_at_the_gate_end_the_start(launch: Any, tmp_path: Path) -> None:
    """HSK-009: on the descriptor any stray byte is a violation."""
    worker = launch("marking:plugin", ready=False, gate="stray")
    status, _, log = worker.finish()
    assert status == EXIT_START_FAILED
    assert "protocol_violation" in log
    assert not (tmp_path / "staged" / "imported").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="PDEATHSIG")
def test_a_worker_dies_with_the_process_that_spawned_it(launch: Any) -> None:
    """SUP-015: also in a handler that notices nothing, and with the channel still open."""
    between = (
        "import subprocess, sys, os\n"
        "fd = int(os.environ['PURRA_FD'])\n"
        "subprocess.run(sys.argv[1:], pass_fds=(fd,))\n"
    )
    worker = launch(wrap=[sys.executable, "-c", between])
    assert worker.hello["pid"] != worker.process.pid
    worker.tool("nap", seconds=600)
    worker.process.send_signal(signal.SIGKILL)
    while not worker.ended:
        assert worker.pump(2.0), "the worker outlived its parent"
