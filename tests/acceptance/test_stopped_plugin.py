"""Issue A, done when: at the ports, SIGSTOP of a plugin stalls only its kind of call (invariant
4)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.contracts.call import CallContext
from purra.contracts.context import ContextRequest
from purra.contracts.messages import Message
from purra.contracts.model import Finish, ModelRequest
from purra.journal.events import Event
from purra.manifest.host import Caller
from purra.runs.result import Result
from purra_bridge.ports.context import HostedContext
from purra_bridge.ports.model import HostedModel
from purra_bridge.ports.tool import HostedTools
from purra_hosts.app.assembly import Application, open_application
from purra_hosts.app.plan import make_plan
from tests.acceptance.stage import Stage, within_patience

SAY = json.dumps([{"text": "said"}])
LOOK = json.dumps([{"calls": [["hand.look", {}]]}, {"text": "looked"}])

Ask = Callable[[], Awaitable[Any]]


async def finish_of(application: Application) -> Finish:
    model = HostedModel(application.routes["puppet"], "strings")
    request = ModelRequest((Message("user", SAY),), (), 100)
    chunks = [chunk async for chunk in model.generate(request, CallContext())]
    assert isinstance(chunks[-1], Finish)
    return chunks[-1]


def ports(application: Application) -> Mapping[str, Ask]:
    """One call to each plugin, through the port that the kernel uses."""
    routes, match = application.routes, application.plan.match
    schemas = [tool.offer.tool for tool in match.tools if tool.offer.tool is not None]
    tools = HostedTools(routes["hand"], schemas)
    context = HostedContext(routes["agentsmd"], "memory")
    request = ContextRequest("r", "", "hello")
    return {
        "puppet": lambda: finish_of(application),
        "hand": lambda: tools.call("hand.look", {}, CallContext()),
        "agentsmd": lambda: context.provide(request, 1000, CallContext()),
        "sqlite": application.kernel.store.now,
    }


@contextmanager
def stopped(application: Application, plugin: str) -> Iterator[Callable[[], None]]:
    """The plugin's process stands still until the given function is called."""
    pid = application.routes[plugin].status().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield lambda: os.kill(pid, signal.SIGCONT)
    finally:
        os.kill(pid, signal.SIGCONT)


def staged(tmp_path: Path, body: Callable[[Application], Awaitable[None]]) -> None:
    """Runs `body` with all plugins started."""
    stage = Stage(tmp_path).puppets(["hand.look"]).with_memory("Be brief.\n")
    plan = make_plan(stage.manifest, Caller(state=stage.state))

    async def main() -> None:
        async with within_patience(), open_application(plan) as application:
            for route in application.routes.values():
                await route.start()
            await body(application)

    anyio.run(main)


@pytest.mark.parametrize("plugin", ["puppet", "hand", "agentsmd", "sqlite"])
def test_only_the_stopped_plugins_kind_of_call_stalls(tmp_path: Path, plugin: str) -> None:
    """The others answer, one after the other, while the stopped one's call stays open."""

    async def body(application: Application) -> None:
        asks = ports(application)
        ended: list[str] = []

        async def call(name: str) -> None:
            await asks[name]()
            ended.append(name)

        others = [name for name in asks if name != plugin]
        with stopped(application, plugin) as go_on:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, plugin)
                for _ in range(5):
                    for name in others:
                        await call(name)
                assert ended == others * 5
                go_on()
        assert ended == [*others * 5, plugin]

    staged(tmp_path, body)


def test_a_run_without_tools_completes_beside_one_that_waits_for_a_stopped_tool(
    tmp_path: Path,
) -> None:
    """Stalled is one run, at one call; it goes on where it was when the tool does."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        with stopped(application, "hand") as go_on:
            waits = await kernel.submit(LOOK)
            kinds = []
            async for event in waits.events():
                kinds.append(event.kind)
                if event.kind == "tool.call.claimed":
                    break
            for _ in range(3):
                other = await kernel.submit(SAY)
                assert (await other.wait()).text == "said"
            assert (await kernel.runs.state(waits.id)).batch.open  # type: ignore[union-attr]
            go_on()
            assert_completed(await waits.wait(), "looked")
        state = await kernel.runs.state(waits.id)
        assert (state.attempts, state.calls_used, state.recovered) == (2, 1, {})

    staged(tmp_path, body)


def test_a_stopped_model_leaves_runs_to_be_listed_looked_at_and_cancelled(tmp_path: Path) -> None:
    """Model stopped: the store and the inbox go on; another run is ended meanwhile (RUN-10)."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        before = await kernel.submit(SAY)
        await before.wait()
        with stopped(application, "puppet") as go_on:
            waits, dies = await kernel.submit(SAY), await kernel.submit(SAY)
            for run in (waits, dies):
                async for event in run.events():
                    if event.kind == "run.owned":
                        break
            listed = {info.run: info.status for info in await kernel.runs.list()}
            assert listed == {before.id: "completed", waits.id: "running", dies.id: "running"}
            again = [event async for event in kernel.runs.events(before.id, follow=False)]
            assert again[-1].kind == "run.completed"
            await dies.cancel()
            assert (await dies.wait()).status == "canceled"
            go_on()
            assert_completed(await waits.wait(), "said")

    staged(tmp_path, body)


def test_a_stopped_store_lets_nothing_be_shown_and_nothing_be_lost(tmp_path: Path) -> None:
    """Persist before publish (invariant 3): what the store has not taken, nobody sees."""

    async def body(application: Application) -> None:
        kernel = application.kernel
        waits = await kernel.submit(LOOK)
        seen: list[Event] = []

        async def follow() -> None:
            async for event in waits.events():
                seen.append(event)

        asks = ports(application)
        async with anyio.create_task_group() as tasks:
            with stopped(application, "sqlite") as go_on:
                tasks.start_soon(follow)
                for _ in range(5):
                    await asks["puppet"]()
                    await asks["hand"]()
                assert [event.kind for event in seen] == ["run.started", "run.owned"]
                go_on()
                assert_completed(await waits.wait(), "looked")
        stored = [event async for event in kernel.runs.events(waits.id, follow=False)]
        assert stored == seen

    staged(tmp_path, body)


def assert_completed(result: Result, text: str) -> None:
    assert (result.status, result.text, result.error) == ("completed", text, None)
