"""The gateway end to end in one process: what a model's calls come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

import purra
from purra.contracts.call import CallContext
from purra.contracts.policy import PolicyDecision, PolicyRequest
from purra.contracts.tool import ToolResult, ToolSchema, declare
from purra.errors import AdapterError
from purra.journal.events import Event
from purra.runs.result import Result
from tests.kernel.parts import ScriptModel, ask, kinds, say

OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


class Box:
    """Tools that count what happens to them. `behaviour`: name -> what a call does."""

    def __init__(self, **tools: Any) -> None:
        self.behaviour = tools
        self.ran: list[str] = []

    async def catalog(self) -> Sequence[ToolSchema]:
        effects = {"write": "external_write", "burn": "irreversible"}
        return [
            declare(name, name, OBJECT, effects.get(name.rstrip("0123456789"), "world_read"))  # type: ignore[arg-type]
            for name in self.behaviour
        ]

    async def call(self, name: str, arguments: Any, context: CallContext) -> ToolResult:
        self.ran.append(name)
        act = self.behaviour[name]
        if isinstance(act, BaseException):
            raise act
        if callable(act):
            act = await act(context)
        return act if isinstance(act, ToolResult) else ToolResult(act)


async def play(model: ScriptModel, box: Box, **parts: Any) -> tuple[list[Event], Result]:
    async with purra.Kernel(model=model, tools=[box], **parts) as kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
        return events, await run.wait()


def results(events: list[Event]) -> list[tuple[str, str, str]]:
    return [
        (event.data["name"], event.data["code"], event.data["effect_state"])
        for event in events
        if event.kind == "tool.call.completed"
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("{", "invalid_tool_arguments_json"),
        ("[]", "invalid_tool_arguments_shape"),
        ('{"x": 1}', "invalid_tool_arguments_shape"),
        ('{"a": 1, "a": 2}', "invalid_tool_arguments_json"),
    ],
)
async def test_one_bad_call_of_a_batch_starts_no_handler(arguments: str, code: str) -> None:
    """JSON-04, TOOL-06, TOOL-09, K01, K02: the bad call is told its own code, the others were
    aborted."""
    box = Box(read="r", read2="r2")
    model = ScriptModel(ask(("read", "{}"), ("read2", arguments)), say("sorry"))
    events, result = await play(model, box)
    assert box.ran == []
    assert results(events) == [
        ("read", "tool_batch_aborted", "not_started"),
        ("read2", code, "not_started"),
    ]
    assert result.status == "completed"
    promoted = [event.data["as"] for event in events if event.kind == "output.promoted"]
    assert promoted == ["none", "final"]  # OUT-03: refused calls make no commentary


@pytest.mark.anyio
async def test_unknown_tools_are_told_until_the_budget_is_used() -> None:
    """TOOL-10, K23, K34, REC-03: bounded by cause, and the run fails with that cause."""
    box = Box(read="r")
    model = ScriptModel(*[ask(("zzz", "{}"))] * 4)
    events, result = await play(model, box)
    assert result.status == "failed"
    assert result.error is not None and result.error["code"] == "unknown_tool"
    decisions = [event.data["allowed"] for event in events if event.kind == "recovery.decided"]
    assert decisions == [True, True, True, False]
    assert "read" in model.requests[1].messages[-1].content


@pytest.mark.anyio
async def test_a_failed_read_is_told_and_the_loop_goes_on() -> None:
    """TOOL-22, TOOL-19: type only, no message text; a read that failed is not_started."""
    box = Box(read=ValueError("secret text"))
    model = ScriptModel(ask(("read", "{}")), say("ok"))
    events, result = await play(model, box)
    assert results(events) == [("read", "internal", "not_started")]
    assert result.status == "completed"
    told = model.requests[1].messages[-1].content
    assert "ValueError" in told and "secret" not in told


@pytest.mark.anyio
async def test_a_write_that_raises_blocks_the_run_by_name_until_reconciled() -> None:
    """TOOL-19, TOOL-20, REC-06: unknown blocks; a person's evidence lets the run go on."""
    box = Box(write=RuntimeError("?"))
    model = ScriptModel(ask(("write", "{}")), say("done"))
    async with purra.Kernel(model=model, tools=[box]) as kernel:
        run = await kernel.submit("go")
        result = await run.wait()
        assert result.status == "blocked"
        assert [effect["effect_state"] for effect in result.effects] == ["unknown"]
        blocked = [e async for e in kernel.runs.events(run.id, follow=False)][-1]
        assert blocked.kind == "run.blocked" and "write" in blocked.data["message"]
        assert await kernel.reconcile(run.id, "1.0", "committed", "seen in the log")
        state = await wait_ended(kernel, run.id)
    assert state.status == "completed"
    assert state.effects[0]["effect_state"] == "committed"
    assert box.ran == ["write"]


async def wait_ended(kernel: purra.Kernel, run: str) -> Any:
    async for event in kernel.runs.events(run, follow=True):
        if event.kind.startswith(("run.completed", "run.failed", "run.canceled")):
            break
    return await kernel.runs.state(run)


@pytest.mark.anyio
async def test_a_tool_error_of_a_write_says_what_is_known() -> None:
    """Tables, effect states: ToolError(effect_state) of a write that did nothing does not block."""
    box = Box(
        write=ToolResult(
            {"error": "full"}, is_error=True, code="tool_failed", effect_state="not_started"
        )
    )
    model = ScriptModel(ask(("write", "{}")), say("full"))
    events, result = await play(model, box)
    assert results(events) == [("write", "tool_failed", "not_started")]
    assert (result.status, result.effects) == ("completed", ())


@pytest.mark.anyio
async def test_a_committed_write_stands_in_the_result() -> None:
    """Invariant 7: results keep the committed effects."""
    _, result = await play(ScriptModel(ask(("write", "{}")), say("ok")), Box(write="w"))
    assert [(e["tool"], e["effect_state"]) for e in result.effects] == [("write", "committed")]


@pytest.mark.anyio
async def test_several_writes_in_one_batch_are_refused_by_default() -> None:
    """TOOL-24: refuse with split advice; nothing runs."""
    box = Box(write="w", write2="w2")
    model = ScriptModel(ask(("write", "{}"), ("write2", "{}")), say("ok"))
    events, _ = await play(model, box)
    assert box.ran == []
    assert {code for _, code, _ in results(events)} == {"write_batch_refused"}


@pytest.mark.anyio
async def test_serial_writes_run_in_order_and_the_first_failure_aborts_the_rest() -> None:
    """TOOL-24 `serial`, TOOL-25: nothing is started after a failure, results keep the order."""
    failed = ToolResult("no", is_error=True, code="tool_failed", effect_state="not_started")
    box = Box(write="a", write2=failed, write3="c")
    model = ScriptModel(ask(("write", "{}"), ("write2", "{}"), ("write3", "{}")), say("ok"))
    limits = purra.RunLimits(write_batch="serial")
    events, _ = await play(model, box, agent=purra.Agent("a", "1", limits=limits))
    assert box.ran == ["write", "write2"]
    assert [code for _, code, _ in results(events)] == ["", "tool_failed", "tool_batch_aborted"]


@pytest.mark.anyio
async def test_parallel_reads_overlap_and_results_stand_in_call_order() -> None:
    """TOOL-25, TOOL-26: the first call ends last, and is still the first result."""
    second_ran = anyio.Event()

    async def first(_: CallContext) -> str:
        await second_ran.wait()
        return "one"

    async def second(_: CallContext) -> str:
        second_ran.set()
        return "two"

    box = Box(read=first, read2=second)
    model = ScriptModel(ask(("read", "{}"), ("read2", "{}")), say("ok"))
    await play(model, box)
    said = [m.content for m in model.requests[1].messages if m.role == "tool"]
    assert said == ["one", "two"]


@pytest.mark.anyio
async def test_a_call_that_needs_approval_without_a_decider_is_never_dispatched() -> None:
    """TOOL-13, issue A: `approval_unavailable`, nothing dispatched."""
    box = Box(burn="b", read="r")
    model = ScriptModel(ask(("burn", "{}"), ("read", "{}")))
    events, result = await play(model, box)
    assert box.ran == []
    assert results(events)[0] == ("burn", "approval_unavailable", "not_started")
    assert result.error is not None and result.error["code"] == "approval_unavailable"
    assert "tool.call.claimed" not in kinds(events)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("decision", "told", "ran", "content"),
    [
        ("approve", {}, ["burn"], "b"),
        ("reject", {}, [], "rejected by a person"),
        ("respond", {"text": "use less"}, [], "use less"),
    ],
)
async def test_a_persons_decision_is_what_happens(
    decision: str, told: dict[str, str], ran: list[str], content: str
) -> None:
    """HITL-01, HITL-03, HITL-05, TOOL-15: the run waits unowned; a decision is one-shot."""
    box = Box(burn="b")
    model = ScriptModel(ask(("burn", "{}")), say("ok"))
    agent = purra.Agent("a", "1", approvals="inbox")
    async with purra.Kernel(model=model, tools=[box], agent=agent) as kernel:
        run = await kernel.submit("go")
        assert (await run.wait()).status == "waiting"
        assert (await kernel.runs.show(run.id)).owner == ""
        for _ in range(2):
            assert await kernel.decide(run.id, "1.0", decision, by="eve", **told)
        state = await wait_ended(kernel, run.id)
        other = "respond" if decision != "respond" else "reject"
        with pytest.raises(purra.PurraError, match="conflict"):
            await kernel.decide(run.id, "1.0", other, by="eve")
    assert state.status == "completed"
    assert box.ran == ran
    assert content in model.requests[1].messages[-1].content


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verdict", "status", "code"),
    [
        ("deny", "failed", "policy_denied"),
        ("deny_and_tell", "completed", "permission_denied"),
        ("raise", "failed", "policy_denied"),
        ("allow", "completed", ""),
    ],
)
async def test_policy_decides_and_fails_closed(verdict: str, status: str, code: str) -> None:
    """CAP-07, RUN-23, CAP-12, invariant 6: a policy that raises denies; its reason is journaled."""

    class Rule:
        async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision:
            if verdict == "raise":
                raise RuntimeError("broken")
            return PolicyDecision(verdict, "because")  # type: ignore[arg-type]

    box = Box(read="r")
    model = ScriptModel(ask(("read", "{}")), say("ok"))
    events, result = await play(model, box, policy=Rule())
    assert result.status == status
    assert results(events)[0][1] == code
    assert box.ran == (["read"] if verdict == "allow" else [])


@pytest.mark.anyio
async def test_a_large_result_goes_to_a_blob_and_the_model_sees_its_beginning() -> None:
    """TOOL-23, K37: never a failure, never in the journal whole."""
    box = Box(read="é" * 100_000)
    model = ScriptModel(ask(("read", "{}")), say("ok"), window=8192)
    events, result = await play(model, box)
    (done,) = [event for event in events if event.kind == "tool.call.completed"]
    assert result.status == "completed"
    assert done.data["bytes"] > 200_000 and done.data["blob"].startswith("sha256:")
    assert len(done.data["value"]) == 8192 // 4  # a quarter of the window, é counts one token
    assert "\ufffd" not in done.data["value"]


@pytest.mark.anyio
async def test_a_result_outside_the_value_model_is_a_coded_error() -> None:
    """K26, JSON-11, TOOL-21: NaN never reaches a journal."""
    box = Box(read=float("nan"))
    events, _ = await play(ScriptModel(ask(("read", "{}")), say("ok")), box)
    assert results(events)[0][1] == "tool_result_encoding"


@pytest.mark.anyio
async def test_an_id_used_again_in_a_later_round_still_runs_once_each() -> None:
    """MOD-10, K08: the kernel's identity is (run, attempt, ordinal)."""
    box = Box(read="r")
    model = ScriptModel(ask(("read", "{}")), ask(("read", "{}")), say("ok"))
    events, _ = await play(model, box)
    assert box.ran == ["read", "read"]
    calls = [event.data["call"] for event in events if event.kind == "tool.call.completed"]
    assert calls == ["1.0", "2.0"]


@pytest.mark.anyio
async def test_a_crash_of_the_tools_process_is_told_with_what_is_known() -> None:
    """PLG-13: the model sees a coded error with `executed`."""
    crash = AdapterError("crashed", "exit 9", origin="instance", executed="maybe")
    model = ScriptModel(ask(("read", "{}")), say("ok"))
    events, _ = await play(model, Box(read=crash))
    assert results(events) == [("read", "crashed", "not_started")]
    assert '"executed":"maybe"' in model.requests[1].messages[-1].content


@pytest.mark.anyio
async def test_a_result_that_completes_the_step_ends_the_run() -> None:
    """TOOL-30: `complete` is the tool's word, and costs no further model call."""
    box = Box(read=ToolResult("all done", step="complete"))
    model = ScriptModel(ask(("read", "{}")))
    _, result = await play(model, box)
    assert (result.status, result.text) == ("completed", "all done")


@pytest.mark.anyio
async def test_an_edit_is_checked_again_and_what_runs_is_what_was_edited() -> None:
    """HITL-02: schema and digest are those of the edited arguments; a bad edit changes nothing."""
    ran: list[int] = []

    @purra.tool(effect="irreversible")
    async def spend(amount: int) -> str:
        """Spends."""
        ran.append(amount)
        return "spent"

    model = ScriptModel(ask(("spend", '{"amount": 100}')), say("ok"))
    agent = purra.Agent("a", "1", approvals="inbox")
    async with purra.Kernel(model=model, tools=[spend], agent=agent) as kernel:
        run = await kernel.submit("go")
        assert (await run.wait()).status == "waiting"
        with pytest.raises(purra.PurraError) as caught:
            await kernel.decide(run.id, "1.0", "edit", arguments={"amount": "much"})
        assert caught.value.code == "invalid_tool_arguments_shape"
        await kernel.decide(run.id, "1.0", "edit", arguments={"amount": 5})
        assert (await wait_ended(kernel, run.id)).status == "completed"
    assert ran == [5]


@pytest.mark.anyio
async def test_what_plugins_do_rides_on_the_next_commit() -> None:
    """Tables, events: `plugin.*` never causes a commit and stands in the journal all the same."""
    from purra.journal.events import Fact

    kernel: purra.Kernel

    async def noted(_: CallContext) -> str:
        kernel.note(Fact("plugin.stopped", {"plugin": "p", "generation": 1}))
        return "r"

    kernel = purra.Kernel(
        model=ScriptModel(ask(("read", "{}")), say("ok")), tools=[Box(read=noted)]
    )
    async with kernel:
        run = await kernel.submit("go")
        events = [event async for event in run.events()]
    order = kinds(events)
    assert order.index("plugin.stopped") == order.index("tool.call.completed") - 1


@pytest.mark.anyio
@pytest.mark.parametrize("levels", [48, 49])
async def test_a_deep_result_is_kept_or_refused_and_never_stops_a_run(levels: int) -> None:
    """K62: what no store could take is a coded result of its call, not a run that cannot go on."""
    deep: Any = "x"
    for _ in range(levels):
        deep = [deep]
    events, result = await play(ScriptModel(ask(("read", "{}")), say("ok")), Box(read=deep))
    assert result.status == "completed"
    assert results(events)[0][1] == ("" if levels == 48 else "tool_result_encoding")
