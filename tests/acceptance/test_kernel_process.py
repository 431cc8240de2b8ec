"""Issue A, done when: the kernel process never has the SQLite file open nor any `purra_plugin_*`
in sys.modules (invariant 1, LIF-008)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio

from purra.manifest.host import Caller
from purra_hosts.app.assembly import open_application
from purra_hosts.app.plan import make_plan
from tests.acceptance.stage import Stage, objects, within_patience


def foreign(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("purra_plugin_") or "sqlite3" in name]


def test_the_kernel_process_never_opens_the_database_nor_loads_a_plugin(tmp_path: Path) -> None:
    """Every open and every import of a whole run is seen, not only what is left at its end."""
    stage = Stage(tmp_path).puppets(["hand.write"])
    steps = [{"calls": [["hand.write", {"line": "x"}]]}, {"text": "done"}]
    arguments = stage.argv("run", json.dumps(steps), "--json")[1:]
    ran, report = stage.witnessed(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert objects(ran.stdout)[-1]["text"] == "done"

    assert stage.lines == ["x"]
    assert (stage.state / "runs.db").stat().st_size > 0
    seen = [*report["opened"], *report["descriptors"]]
    assert not [path for path in seen if "runs.db" in path or path.startswith(str(stage.state))]
    assert not foreign(report["modules"])
    assert not foreign(report["imported"])
    assert not {"puppet", "hand", "fuse"} & {*report["modules"], *report["imported"]}

    # and the witness does see: the manifest, the modules, the channels, the children
    assert str(stage.manifest) in report["opened"]
    assert "purra.kernel" in report["imported"]
    assert any(path.startswith("socket:") for path in report["descriptors"])
    assert report["children"]


def test_it_is_the_store_plugin_that_has_the_database_open(tmp_path: Path) -> None:
    """The journal is written by the store plugin's process, and by no other."""
    stage = Stage(tmp_path).puppets(["hand.look"])

    async def main() -> dict[str, list[str]]:
        plan = make_plan(stage.manifest, Caller(state=stage.state))
        async with within_patience(), open_application(plan) as application:
            for route in application.routes.values():
                await route.start()
            run = await application.kernel.submit(json.dumps([{"text": "hello"}]))
            assert (await run.wait()).status == "completed"
            pids = {name: route.status().pid for name, route in application.routes.items()}
            return {name: open_files(pid) for name, pid in {**pids, "kernel": os.getpid()}.items()}

    holders = {
        name
        for name, files in anyio.run(main).items()
        if any(path.startswith(str(stage.state)) for path in files)
    }
    assert holders == {"sqlite"}


def open_files(pid: int | None) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    return [os.readlink(entry) for entry in folder.iterdir() if os.path.islink(entry)]
