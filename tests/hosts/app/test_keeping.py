"""`purra runs prune` and `purra runs export`, as an operator uses them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.acceptance.stage import QUICKSTART, Stage, objects


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A store with one completed run in a session, and one failed."""
    stage = Stage(tmp_path_factory.mktemp("keeping"))
    (stage.folder / "docs").mkdir()
    (stage.folder / "docs" / "a.md").write_text("Cancel works by one frame.\n")
    (stage.folder / "AGENTS.md").write_text("Be brief.\n")
    text = QUICKSTART.read_text().replace('"../docs"', '"docs"')
    stage.manifest.write_text(text)
    assert stage.purra("run", "Does cancel work?", "--session", "desk").returncode == 0
    stage.manifest.write_text(text.replace("max_rounds = 8", "max_rounds = 1"))
    assert stage.purra("run", "Does cancel fail?", "--session", "desk").returncode == 1
    stage.manifest.write_text(text)
    return stage


def runs(stage: Stage) -> dict[str, str]:
    """Ids by status."""
    return {
        item["status"]: item["run"]
        for item in objects(stage.purra("runs", "list", "--json").stdout)
    }


def test_an_export_is_lines_or_a_folder(stage: Stage) -> None:
    """Issue D 5: with its blobs, byte for byte, by their digests; nobody else may read it."""
    run = runs(stage)["completed"]
    printed = stage.purra("runs", "export", run)
    assert printed.returncode == 0, printed.stderr
    values = objects(printed.stdout)
    assert [values[0]["kind"], values[-1]["kind"]] == ["export", "end"]
    journal = objects(stage.purra("runs", "events", run, "--json").stdout)
    assert [value["record"] for value in values if value["kind"] == "journal"] == journal
    folder = stage.folder / "kept"
    done = stage.purra("runs", "export", run, "--to", str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "run.jsonl").read_text() == printed.stdout
    named = {value["digest"] for value in values if value["kind"] == "blob"}
    files = {path.name: path.read_bytes() for path in (folder / "blobs").iterdir()}
    assert (
        {f"sha256:{hashlib.sha256(body).hexdigest()}" for body in files.values()} == named != set()
    )
    assert {f"sha256:{name}" for name in files} == named
    assert folder.stat().st_mode & 0o077 == 0
    assert done.stdout == f"{run}: {len(journal)} events, {len(named)} blobs in {folder}\n"
    again = stage.purra("runs", "export", run, "--to", str(folder))
    assert again.returncode == 2 and "--to" in again.stderr
    missing = stage.purra("runs", "export", "none", "--to", str(stage.folder / "other"))
    assert missing.returncode == 2 and "run_not_found" in missing.stderr
    assert not (stage.folder / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("which runs?", "--older-than 30d")),
        (("--older-than", "soon"), ("--older-than", "'soon' is no length of time", "12h")),
        (("--older-than", "-1d"), ("no length of time",)),
        (("--status", "running"), ("--status", "'running'", "completed, failed, canceled")),
        (("--status", "waiting", "--yes"), ("--status", "'waiting'")),
    ],
)
def test_what_is_not_clear_removes_nothing(
    stage: Stage, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    before = runs(stage)
    done = stage.purra("runs", "prune", *(arguments or ("--json",)))
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert runs(stage) == before


def test_prune_shows_first_and_removes_when_told(stage: Stage, tmp_path: Path) -> None:
    """Issue D 5: a dry run by default; then what was shown is gone, and the rest is as it was."""
    before = runs(stage)
    young = stage.purra("runs", "prune", "--older-than", "1d", "--yes", "--json")
    assert objects(young.stdout)[-1]["removed"]["runs"] == 0
    shown = stage.purra("runs", "prune", "--status", "failed")
    assert shown.stdout.split("\t")[:2] == [before["failed"], "failed"]
    assert shown.stderr == "note: 1 would be removed; --yes removes them\n"
    assert runs(stage) == before
    done = stage.purra("runs", "prune", "--status", "failed", "--yes")
    assert done.stdout == "removed: 1 run, 0 sessions, 0 kernels\n"
    assert done.stderr == "note: other runs of desk still see what these said\n"
    assert runs(stage) == {"completed": before["completed"]}
    assert stage.purra("runs", "show", before["failed"]).returncode == 2
    assert stage.purra("runs", "show", before["completed"]).returncode == 0
    done = stage.purra("runs", "prune", "--older-than", "0s", "--yes", "--json")
    (run, summary) = objects(done.stdout)
    assert run["run"] == before["completed"]
    assert summary["removed"] == {"runs": 1, "sessions": 1, "sessions_kept": [], "kernels": 0}
    assert runs(stage) == {}
