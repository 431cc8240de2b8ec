"""`purra chat` and `purra worker`, as a person and an operator use them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

from tests.acceptance.stage import PURRA, Stage, objects

BURN = ["hand.burn", {}]


def test_a_chat_is_one_session_and_ends_with_its_input(tmp_path: Path) -> None:
    """Issue D 6, RUN-20: each line is a run of one session; the second sees the first."""
    stage = Stage(tmp_path).puppets()
    lines = [json.dumps([{"text": "one"}]), json.dumps([{"text": "two"}])]
    said = subprocess.run(
        [str(PURRA), "chat", str(stage.manifest), "--state", str(stage.state), "--session", "s"],
        input="\n".join(lines) + "\n\n",
        env=stage.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["one", "two"]
    runs = objects(stage.purra("runs", "list", "--json").stdout)
    assert [(run["session"], run["status"]) for run in runs] == [("s", "completed")] * 2
    second = objects(stage.purra("runs", "events", runs[1]["run"], "--json").stdout)
    (assembled,) = [event for event in second if event["kind"] == "context.assembled"]
    assert assembled["data"]["history"] == 2  # the first prompt and its answer


def test_ctrl_c_at_the_prompt_leaves_and_leaves_nothing(tmp_path: Path) -> None:
    """APP-04: a real terminal, a real interrupt; exit 0, and no process stays."""
    stage = Stage(tmp_path).puppets()
    master, slave = pty.openpty()
    command = [str(PURRA), "chat", str(stage.manifest), "--state", str(stage.state)]
    with subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**stage.environment, "TERM": "dumb"},
        start_new_session=True,
    ) as talk:
        os.close(slave)
        shown = b""
        while b"> " not in shown:
            shown += os.read(master, 1024)
        talk.send_signal(signal.SIGINT)
        assert talk.wait(30) == 0, shown
    os.close(master)
    left = subprocess.run(["pgrep", "-g", str(talk.pid)], capture_output=True, text=True)
    assert left.stdout == ""


def test_a_worker_goes_on_with_what_was_approved(tmp_path: Path) -> None:
    """HITL-05: the decision makes the run due; a worker in another process takes it up and ends."""
    stage = Stage(tmp_path).puppets(["hand.burn"], more='approvals = "inbox"')
    stage.state.mkdir()
    (stage.state / "lines").write_text("kept\n")
    prompt = json.dumps([{"calls": [BURN]}, {"text": "burnt"}])
    waiting = objects(stage.purra("run", prompt, "--json").stdout)[-1]
    assert waiting["status"] == "waiting"
    command = [str(PURRA), "worker", str(stage.manifest), "--state", str(stage.state)]
    with subprocess.Popen(
        command, env=stage.environment, stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stderr is not None
        assert "working" in worker.stderr.readline()
        assert stage.purra("approvals", "approve", waiting["run"], "1.0").returncode == 0
        assert "taken up" in worker.stderr.readline()
        followed = stage.purra("runs", "events", waiting["run"], "--follow", "--json")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert objects(followed.stdout)[-1]["kind"] == "run.completed"
    assert not (stage.state / "lines").exists()
