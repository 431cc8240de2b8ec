"""The examples of embedding run as their first lines say, with warnings as errors."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest
import uvicorn

import purra
from purra.contracts.model import Content, Finish, ModelProfile
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "docs" / "examples"


def example(name: str) -> ModuleType:
    """An example as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script(tmp_path: Path) -> None:
    """Typed tools from plain functions, `run_sync`, a typed answer."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("1.65 EUR\n", "", 0)


# The notebook.


async def cells(path: Path) -> None:
    """Runs them as a notebook does: one loop, a task of its own for each, one name space."""
    space: dict[str, Any] = {}
    for number, cell in enumerate(path.read_text().split("# %%")):
        code = compile(f"#{cell}", f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

        async def run(code: Any = code) -> None:
            made = eval(code, space)
            if inspect.isawaitable(made):
                await made

        await asyncio.create_task(run())


@pytest.mark.anyio
async def test_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events, cancel, a kernel over several cells, several kernels in one process (API-08)."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "manifests"):
        (tmp_path / name).symlink_to(ROOT / name)
    before = children()
    await cells(EXAMPLES / "notebook.py")
    printed = capsys.readouterr().out
    assert printed.startswith("1 run.started")
    assert "run.completed" in printed
    assert "completed\ncompleted\n['What is in a HELLO?', 'What is a credit?'" in printed
    assert "canceled run_canceled True" in printed
    assert "['left: Who are you?', 'right: Who are you?']\n1 1\n" in printed
    assert children() <= before


def children() -> set[str]:
    """Processes that this one has started."""
    tasks = Path("/proc/self/task").iterdir()
    return {child for task in tasks for child in (task / "children").read_text().split()}


# The web service.


class Slow:
    """A model that says one word and no more, until it is cancelled; the first message counts."""

    def __init__(self) -> None:
        self.cancelled = anyio.Event()

    async def profile(self) -> ModelProfile:
        return ModelProfile(window=8000, output_limit=500)

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield Content("Well… ")
        if request.messages[-1].content == "Think.":
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
        yield Content(" ".join(message.content for message in request.messages[:-1]))
        yield Finish("stop")


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A real server on a free port, for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        # The listening socket takes connections before the server is up, so nobody has to wait.
        serving = asyncio.create_task(server.serve([listening]))
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                yield client
        finally:
            server.should_exit = True
            await serving


async def frames(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    kind = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


async def answered(client: httpx.AsyncClient, prompt: str, session: str) -> dict[str, Any]:
    asked = {"prompt": prompt, "session": session}
    async with client.stream("POST", "/ask", json=asked, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        told = [item async for item in frames(response)]
    drafts, (kind, result) = told[:-1], told[-1]
    assert kind == "result"
    assert "".join(data["text"] for kind, data in drafts if kind == "draft") == result["text"]
    return result


@pytest.mark.anyio
async def test_the_web_service_streams_and_goes_on_with_a_session() -> None:
    app = example("web").create_app(purra.Kernel(model=Slow()))
    async with served(app) as client:
        first = await answered(client, "One.", "s")
        assert (first["status"], first["text"]) == ("completed", "Well… ")
        second = await answered(client, "Two.", "s")
        assert second["text"] == "Well… One. Well… "
        assert (await answered(client, "Two.", "other"))["text"] == "Well… "


@pytest.mark.anyio
async def test_a_client_that_leaves_cancels_its_run() -> None:
    model = Slow()
    app = example("web").create_app(purra.Kernel(model=model))
    async with served(app) as client:
        asked = {"prompt": "Think.", "session": "s"}
        async with client.stream("POST", "/ask", json=asked, timeout=30) as response:
            assert await anext(frames(response)) == ("draft", {"attempt": 1, "text": "Well… "})
            run = response.headers["x-run"]
        with anyio.fail_after(10):
            await model.cancelled.wait()
            kinds = [e.kind async for e in app.state.kernel.runs.events(run, follow=True)]
        assert kinds[-1] == "run.canceled"
        # The session goes on.
        assert (await answered(client, "Two.", "s"))["status"] == "completed"


@pytest.mark.anyio
async def test_what_cannot_be_asked_is_refused_with_a_code() -> None:
    kernel = purra.Kernel(model=Slow(), agent=purra.Agent("a", "1", session_policy="refuse"))
    async with served(example("web").create_app(kernel)) as client:
        empty = await client.post("/ask", json={"prompt": " "})
        assert (empty.status_code, empty.json()["code"]) == (400, "invalid_argument")
        asked = {"prompt": "Think.", "session": "s"}
        async with client.stream("POST", "/ask", json=asked, timeout=30) as response:
            assert response.status_code == 200
            busy = await client.post("/ask", json=asked)
        assert (busy.status_code, busy.json()["code"]) == (409, "session_busy")


@pytest.mark.anyio
async def test_the_web_service_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the manifest of the quickstart: plugins in processes behind it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    async with served(example("web").app) as client:
        result = await answered(client, "What is in a HELLO?", "s1")
    assert (result["status"], result["error"]) == ("completed", None)
    assert "HELLO" in result["text"]
