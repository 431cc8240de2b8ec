"""A kernel that slept while another took its run writes nothing any more (invariant 13, RUN-17)."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import anyio

import purra
from purra.contracts.store import Commit, Delete
from purra.kernel import Kernel
from purra.runs import keys
from tests.acceptance.stage import Stage, parse, within_patience

PROMPT = json.dumps([{"gate": True, "text": "I have looked.", "hang": "heed"}])
"""Its text is stored as a draft while the round goes on: an append that only the lease fences."""


def gated(stage: Stage, name: str) -> tuple[Path, Path]:
    """A manifest whose model waits for a gate of its own, and the gate."""
    gate = stage.folder / f"{name}.gate"
    manifest = stage.folder / f"{name}.toml"
    text = stage.manifest.read_text()
    assert "[plugins.puppet]\n" in text
    told = f'[plugins.puppet]\nconfig = {{ gate = "{gate}" }}\n'
    manifest.write_text(text.replace("[plugins.puppet]\n", told))
    return manifest, gate


async def declare_gone(kernel: Kernel, run: str) -> str:
    """Removes the document of the run's owner, as it is when a kernel has closed; the owner."""
    owner = str((await kernel.runs.lease(run)).value["owner"])
    (document,) = await kernel.store.get([keys.kernel(owner)])
    assert document is not None
    await kernel.store.commit(Commit((Delete(document.key, document.revision),)))
    return owner


def test_an_owner_that_slept_through_a_takeover_writes_nothing(tmp_path: Path) -> None:
    """Neither an event nor a draft of it gets into the run, and it says why it stopped."""
    stage = Stage(tmp_path).puppets(["hand.look"])
    first_manifest, first_gate = gated(stage, "first")
    second_manifest, second_gate = gated(stage, "second")

    async def take_over(run: str, first: subprocess.Popen[str]) -> None:
        async with (
            within_patience(),
            purra.open_kernel(second_manifest, state=stage.state) as kernel,
        ):
            owner = await declare_gone(kernel, run)
            second = await kernel.resume(run)
            async for event in second.events():
                if event.kind == "stream.opened" and event.data["attempt"] == 2:
                    break
            first_gate.touch()
            first.send_signal(signal.SIGCONT)
            await anyio.to_thread.run_sync(first.wait)
            second_gate.touch()
            async for draft in second.output():
                assert draft["attempt"] == 2
                break
            await second.cancel()
            assert (await second.wait()).status == "canceled"
            assert {draft["attempt"] async for draft in second.output()} == {2}
            events = [event async for event in kernel.runs.events(run, follow=False)]
            owned = [event for event in events if event.kind == "run.owned"]
            assert [event.data["kernel"] for event in owned] == [owner, kernel.id]
            assert events[-1].kind == "run.canceled"
            opened = [event.data["attempt"] for event in events if event.kind == "stream.opened"]
            assert opened == [1, 2]

    stage.manifest.write_text(first_manifest.read_text())
    with stage.started("run", PROMPT, "--json") as first:
        assert first.stdout is not None and first.stderr is not None
        for line in first.stdout:
            if parse(line)["kind"] == "stream.opened":
                break
        first.send_signal(signal.SIGSTOP)
        anyio.run(take_over, parse(line)["run"], first)
        assert first.returncode == 1
        assert "[ownership_lost]" in first.stderr.read()
