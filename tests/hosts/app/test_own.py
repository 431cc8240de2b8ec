"""Objects of the embedding program beside the plugins of a manifest; `run_sync` of either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import purra
from purra.adapters import local_model
from purra.agent import Agent
from purra.contracts.policy import PolicyDecision
from purra.kernel import Kernel
from purra.runs.bindings import Adapters
from purra.stores.memory import MemoryStore
from tests.kernel.parts import ScriptModel, ask, say

HOST = """
schema = "purra.host/1"
name = "own"
[agent]
id = "own"
revision = "1"
model = "scripted/script"
store = "sqlite/journal"
[plugins.scripted.config]
match = "round"
steps = [
  { calls = [{ name = "double", arguments = { n = 21 } }] },
  { expect = { last_contains = "42" }, content = "It is 42." },
]
[plugins.sqlite]
config = { path = "{state}/own.db" }
grants = { fs.write = ["{state}"] }
[isolation]
level = "none"
"""


@purra.tool(effect="pure")
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


@purra.tool(effect="pure", approval="required", name="double")
def held(n: int) -> int:
    """Twice a number, if a person agrees."""
    return 2 * n


class Deny:
    async def decide(self, request: Any, context: Any) -> PolicyDecision:
        return PolicyDecision("deny", f"no {request.tool} here")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(HOST)
    return path


@pytest.mark.anyio
async def test_tools_of_the_program_stand_beside_plugins(host: Path) -> None:
    opened = purra.open_kernel(host, tools=[double], state=host.parent / "state")
    async with opened as kernel:
        run = await kernel.submit("What is twice 21?")
        result = await run.wait()
    assert (result.status, result.text) == ("completed", "It is 42."), result.error


@pytest.mark.anyio
async def test_a_policy_of_the_program_decides(host: Path) -> None:
    opened = purra.open_kernel(host, tools=[double], policy=Deny(), state=host.parent / "state")
    async with opened as kernel:
        result = await (await kernel.submit("What is twice 21?")).wait()
    assert result.error is not None
    assert (result.status, result.error["code"]) == ("failed", "policy_denied")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("parts", "drift"),
    [
        ({"tools": [held]}, "policy"),
        ({"policy": Deny()}, "tools"),
        ({"tools": [double], "policy": Deny()}, "tools"),
    ],
)
async def test_a_run_is_not_resumed_without_them(
    host: Path, parts: dict[str, Any], drift: str
) -> None:
    """Invariant 5: the tools by what they declare, the policy by its place (PRE-09)."""

    class Ask:
        async def decide(self, request: Any, context: Any) -> PolicyDecision:
            return PolicyDecision("ask")

    host.write_text(HOST.replace('store = "', 'approvals = "inbox"\nstore = "'))
    state = host.parent / "state"
    async with purra.open_kernel(host, tools=[held], policy=Ask(), state=state) as kernel:
        run = await kernel.submit("What is twice 21?")
        assert (await run.wait()).status == "waiting"
    async with purra.open_kernel(host, state=state, **parts) as kernel:
        with pytest.raises(purra.PurraError, match=drift) as caught:
            await kernel.resume(run.id)
    assert caught.value.code == "preset_mismatch"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"tools": [len]}, "invalid_argument"),
        ({"tools": [double, double]}, "duplicate_tool"),
        ({"policy": object()}, "invalid_argument"),
    ],
)
async def test_what_is_no_adapter_is_refused_before_anything_starts(
    host: Path, parts: dict[str, Any], code: str
) -> None:
    started: list[str] = []
    watchers = purra.Watchers(events=lambda kind, data: started.append(kind))
    state = host.parent / "state"
    with pytest.raises(purra.PurraError) as caught:
        async with purra.open_kernel(host, state=state, watchers=watchers, **parts):
            pass
    assert (caught.value.code, started, state.exists()) == (code, [], False)


@pytest.mark.anyio
async def test_two_policies_are_refused(host: Path) -> None:
    plugins = Path(__file__).parent / "plugins"
    text = HOST.replace('store = "', 'policy = "parrot/strict"\nstore = "')
    host.write_text(f'{text}\n[plugins.parrot]\n[discovery]\nfolders = ["{plugins}"]\n')
    with pytest.raises(purra.PurraError, match="parrot/strict") as caught:
        async with purra.open_kernel(host, policy=Deny(), state=host.parent / "state"):
            pass
    assert caught.value.code == "invalid_argument"


def test_a_script_runs_a_kernel_of_its_own(host: Path) -> None:
    model = ScriptModel(ask(("double", '{"n": 21}')), say("It is 42."), say("As I said."))
    kernel = purra.Kernel(model=model, tools=[double])
    assert purra.run_sync(kernel, "What is twice 21?", session="s").text == "It is 42."
    assert purra.run_sync(kernel, "Sure?", session="s").text == "As I said."
    assert [message.content for message in model.requests[2].messages] == [
        "What is twice 21?",
        "It is 42.",
        "Sure?",
    ]
    with pytest.raises(purra.PurraError, match="manifest"):
        purra.run_sync(kernel, "Sure?", params={"a": "b"})


@pytest.mark.anyio
async def test_a_path_may_be_a_parameter(host: Path) -> None:
    text = HOST.replace("[agent]", '[params]\nplace = "x"\n[agent]')
    host.write_text(text.replace("{state}/own.db", "{params.place}/own.db"))
    state = host.parent / "state"
    async with purra.open_kernel(host, params={"place": state}, state=state, tools=[double]):
        assert (state / "own.db").exists()


def test_it_says_what_to_do_where_a_loop_runs_already() -> None:
    async def cell() -> None:
        purra.run_sync(purra.Kernel(model=ScriptModel()), "Well?")

    with pytest.raises(purra.PurraError, match="event loop") as caught:
        anyio.run(cell)
    assert (caught.value.code, "async with" in caught.value.hint) == ("invalid_argument", True)


@pytest.mark.anyio
async def test_they_stay_when_plugins_are_bound_anew() -> None:
    before, after = ScriptModel(), ScriptModel(ask(("double", '{"n": 21}')), say("Done."))
    ports = Adapters(model=local_model(before))
    async with Kernel.of(ports, MemoryStore(), Agent("own", "1"), tools=[double]) as kernel:
        released: list[str] = []
        await kernel.rebind(Adapters(model=local_model(after)), lambda: released.append("before"))
        result = await (await kernel.submit("What is twice 21?")).wait()
    assert (result.text, before.requests, released) == ("Done.", [], ["before"])
    assert after.requests[1].messages[-1].content == "42"


@pytest.mark.anyio
async def test_whoever_decides_without_them_does_not_go_on_with_the_run(host: Path) -> None:
    """A decision is for whoever has what the run was started with."""
    host.write_text(HOST.replace('store = "', 'approvals = "inbox"\nstore = "'))
    state = host.parent / "state"
    async with purra.open_kernel(host, tools=[held], state=state) as kernel:
        run = await kernel.submit("What is twice 21?")
        assert (await run.wait()).status == "waiting"
    async with purra.open_kernel(host, tools=[double], state=state) as kernel:
        assert await kernel.decide(run.id, "1.0", "approve", by="ada")
        info = await kernel.runs.show(run.id)
        assert (info.owner, info.status) == ("", "waiting")
    async with purra.open_kernel(host, tools=[held], state=state) as kernel:
        result = await (await kernel.resume(run.id)).wait()
    assert result.text == "It is 42."
