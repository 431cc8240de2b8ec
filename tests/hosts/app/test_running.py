"""`purra plugins list` and `show` of kernels that run in other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from purra.runs.kernels import KernelInfo
from purra_hosts.app.running import described, level
from tests.acceptance.stage import PATIENCE_S, QUICKSTART, Stage, objects

PLUGINS = ("agentsmd", "files", "offline", "sqlite")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """The quickstart, in whose plugins isolation is as it is by default."""
    stage = Stage(tmp_path)
    (tmp_path / "docs").mkdir()
    stage.manifest.write_text(QUICKSTART.read_text().replace('"../docs"', '"docs"'))
    return stage


@pytest.fixture
def chat(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    """A kernel with all its plugins started, in a process of its own."""
    argv = [*stage.argv("run", "x")[:1], "chat", str(stage.manifest), "--state", str(stage.state)]
    with subprocess.Popen(
        argv,
        env=stage.environment,
        cwd=stage.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("session "):
                break
        try:
            yield process
        finally:
            process.kill()


def listed(stage: Stage) -> list[dict[str, Any]]:
    done = stage.purra("plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def until(stage: Stage, there: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, Any]:
    """The list by plugin, once it is as wished: a command that looks again is its own wait."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = {item["plugin"]: item for item in listed(stage)}
        if there(found):
            return found
        assert time.monotonic() < end, found


def test_another_process_sees_how_the_plugins_are(
    stage: Stage, chat: subprocess.Popen[str]
) -> None:
    """Issue D 5: pid, generation, state, isolation achieved, calls, restarts, last error."""
    found = {item["plugin"]: item for item in listed(stage)}
    assert sorted(found) == sorted(PLUGINS)
    for name, item in found.items():
        assert (item["kernel_state"], item["kernel_pid"]) == ("running", chat.pid)
        assert (item["agent"], item["state"]) == ("docs-assistant", "ready"), name
        assert (item["generation"], item["restarts"], item["last_error"]) == (1, 0, None)
        parent = Path(f"/proc/{item['pid']}/stat").read_text().rpartition(")")[2].split()[1]
        assert int(parent) == chat.pid
        assert item["level"] == level(item["isolation"]) != ""

    crashed = found["offline"]["pid"]
    os.kill(crashed, signal.SIGKILL)
    found = until(stage, lambda now: now["offline"]["last_error"] is not None)
    assert found["offline"]["last_error"]["code"] in ("crashed", "closed")
    assert (found["offline"]["state"], found["offline"]["pid"]) != ("ready", crashed)
    assert chat.stdin is not None
    chat.stdin.write("what is there?\n")
    chat.stdin.flush()
    found = until(stage, lambda now: now["offline"]["restarts"] == 1)
    assert found["offline"]["generation"] == 2 and found["offline"]["pid"] != crashed
    assert found["offline"]["last_error"]["code"] in ("crashed", "closed")
    assert found["files"]["generation"] == 1

    table = stage.purra("plugins", "list").stdout.splitlines()
    (line,) = [line for line in table if line.split("\t")[1] == "offline"]
    assert "crashed" in line or "closed" in line
    shown = stage.purra("plugins", "show", "offline").stdout
    for text in (
        "offers       model offline/extractive",
        f"running, pid {chat.pid}",
        "1 restart\n",
    ):
        assert text in shown, shown
    axes = [text.split()[0] for text in shown.splitlines() if text.startswith(" " * 13)]
    assert {"fs", "net", "exec", "ipc", "tree", "memory", "cpu", "env"} <= set(axes)
    (told,) = objects(stage.purra("plugins", "show", "offline", "--json").stdout)
    assert [item["kernel_pid"] for item in told["running"]] == [chat.pid]


def test_a_kernel_that_died_is_not_shown_as_running(
    stage: Stage, chat: subprocess.Popen[str]
) -> None:
    """Issue D 5: it left no word, and its process is gone; no lapse need be waited for."""
    before = listed(stage)
    chat.send_signal(signal.SIGKILL)
    chat.wait()
    after = listed(stage)
    assert [item["plugin"] for item in after] == [item["plugin"] for item in before]
    assert {item["state"] for item in after} == {item["kernel_state"] for item in after} == {"gone"}
    rows = [line.split("\t") for line in stage.purra("plugins", "list").stdout.splitlines()]
    assert [(row[3], row[4], row[7]) for row in rows] == [("gone", "", "")] * 4
    shown = stage.purra("plugins", "show", "files").stdout
    assert "gone, pid" in shown and "last seen" in shown and "runs as" not in shown


def test_a_kernel_that_closed_leaves_nothing(stage: Stage, chat: subprocess.Popen[str]) -> None:
    assert chat.stdin is not None
    chat.stdin.close()
    assert chat.wait(PATIENCE_S) == 0
    done = stage.purra("plugins", "list")
    assert (done.stdout, done.stderr) == ("", "note: no kernel runs on this store\n")
    assert "none has it now" in stage.purra("plugins", "show", "files").stdout


def test_what_cannot_be_asked_is_refused(stage: Stage) -> None:
    done = stage.purra("plugins", "list", "--folder", str(stage.folder))
    assert done.returncode == 2 and "--folder" in done.stderr
    text = stage.manifest.read_text()
    stage.manifest.write_text(text.replace('store = "sqlite/journal"', ""))
    for command in (("plugins", "list"), ("plugins", "show", "files"), ("runs", "list")):
        done = stage.purra(*command)
        assert done.returncode == 4 and "agent.store" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("missing", "word"),
    [
        ((), "standard"),
        (("net",), "without net"),
        (("fs", "net", "exec", "ipc"), "none"),
        (("fs", "net", "exec", "ipc", "env"), "none"),
    ],
)
def test_the_level_is_what_was_achieved(missing: tuple[str, ...], word: str) -> None:
    axes = dict.fromkeys(("fs", "net", "exec", "ipc", "env"), "enforced: so")
    axes |= {"net": "granted", "memory": "none", **dict.fromkeys(missing, "best effort: almost")}
    assert level(axes) == word
    assert level({}) == ""


def test_figures_are_told_in_words() -> None:
    """PLG-24: how many calls have ended, how, and how long they took; nothing before the first."""
    kernel = KernelInfo("k", "running", {"pid": 1}, "a", 0, {}, {})
    status = {"version": "1", "state": "ready", "generation": 1, "calls": 0, "queued": 0}
    figures = {"ended": 5, "failed": 1, "mean_ms": 2.5, "longest_ms": 8.0}
    before = [text for _, text in described(kernel, status)]
    told = [text for _, text in described(kernel, status | figures)]
    (line,) = [text for text in told if text not in before]
    assert line == "5 ended, 1 of them with an error; 2.5 ms each, 8 ms the longest"
    assert [text for _, text in described(kernel, status | {"ended": 0})] == before
