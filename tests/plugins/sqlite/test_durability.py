"""What is flushed, and when: observed below SQLite, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import purra_plugin_sqlite


def test_durable_commits_are_flushed_before_anyone_sees_them(tmp_path: Path) -> None:
    """STO-027, STO-028, invariant 3: one flush of the log for a batch with a durable commit in it,
    and while it runs nobody sees the batch; none for a batch without; the file itself is left to
    checkpoints.
    """
    script = Path(__file__).parent / "flushes.py"
    root = Path(__file__).parents[3]
    path = [str(Path(purra_plugin_sqlite.__file__).parent.parent), str(root)]
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    observations = json.loads(ran.stdout)
    assert len(observations) == 7
    for seen in observations:
        if seen["durable"]:
            # The first flush after a new log also flushes its header.
            assert seen["log"] == 1 or (seen["head"] == 0 and seen["log"] == 2), seen
        else:
            assert seen["log"] == 0, seen
        assert seen["file"] == 0, seen
        assert set(seen["visible"]) <= {seen["head"]}, seen
        assert len(seen["visible"]) == seen["log"]
