"""The examples of using it (design, using it; APP-05): scripts in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.stage import QUICKSTART, Stage

OPEN_KERNEL = """
import asyncio

import purra


async def main():
    async with purra.open_kernel("purra.toml") as kernel:
        run = await kernel.submit("What does the protocol say about cancel?", session="s1")
        kinds = []
        async for event in run.events():
            kinds.append(event.kind)
        result = await run.wait()
        print(result.status, result.error, kinds[0], kinds[-1], sep=" | ")
        print(result.text)
        print([event.seq async for event in run.events(after=len(kinds) - 2)] == [
            len(kinds) - 1, len(kinds)])
        print(result.usage["input_tokens"] > 0, result.effects)
        try:
            await kernel.submit("")
        except purra.PurraError as error:
            print(error.code)


asyncio.run(main())
"""
RUN_SYNC = """
import purra

print(purra.run_sync("purra.toml", "What does the protocol say about cancel?").text)
"""
OWN_PARTS = """
import asyncio

import purra
from purra.contracts.model import Content, Finish, ModelProfile, ToolCallFragment, Usage


class Model:
    async def profile(self):
        return ModelProfile(8192, 512, frozenset({"tools"}))

    async def generate(self, request, context):
        if request.messages[-1].role == "tool":
            yield Content("The answer is " + request.messages[-1].content)
            yield Finish("stop", "")
        else:
            yield ToolCallFragment(0, "c", "double", '{"n": 21}')
            yield Finish("tool_calls", "")
        yield Usage(1, 1)


@purra.tool(effect="pure")
def double(n: int) -> int:
    \"\"\"Twice a number.\"\"\"
    return 2 * n


async def main():
    async with purra.Kernel(model=Model(), tools=[double]) as kernel:
        run = await kernel.submit("What is twice 21?")
        print((await run.wait()).text)


asyncio.run(main())
import sys
print([name for name in sys.modules if name.startswith("purra_hosts")])
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A folder with the quickstart's manifest, and documents of its own beside it."""
    stage = Stage(tmp_path)
    text = QUICKSTART.read_text()
    assert 'root = "../docs"' in text
    stage.manifest.write_text(text.replace('root = "../docs"', 'root = "docs"'))
    docs = stage.folder / "docs"
    docs.mkdir()
    (docs / "protocol.md").write_text("# Protocol\n\nA caller may cancel a call with CANCEL.\n")
    return stage


def script(stage: Stage, text: str) -> list[str]:
    """Runs `text` as a script in the folder, warnings being errors; what it printed."""
    (stage.folder / "script.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=stage.folder,
        env=stage.environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def test_a_kernel_from_a_manifest(stage: Stage) -> None:
    """`open_kernel`: committed events, replay from a cursor, the result; state below HOME."""
    first, *text, replayed, used, refused = script(stage, OPEN_KERNEL)
    assert first == "completed | None | run.started | run.completed"
    assert "protocol.md:3  > A caller may cancel a call with CANCEL." in text
    assert (replayed, used, refused) == ("True", "True ()", "invalid_argument")
    kept = stage.folder / "home" / ".local" / "state" / "purra" / "quickstart"
    assert (kept / "quickstart.db").stat().st_size > 0


def test_one_run_in_one_line(stage: Stage) -> None:
    """`run_sync`, from a script; and nothing is left behind but the state."""
    text = script(stage, RUN_SYNC)
    assert "protocol.md:3  > A caller may cancel a call with CANCEL." in text
    assert list((stage.folder / "tmp").iterdir()) == []


def test_a_kernel_without_manifest_or_plugin(stage: Stage) -> None:
    """APP-05: objects that satisfy the ports and a plain function; no host is even loaded."""
    assert script(stage, OWN_PARTS) == ["The answer is 42", "[]"]
