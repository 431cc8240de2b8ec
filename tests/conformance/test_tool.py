"""The tool contract (spec, chapter 15), on every way to reach a tool."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from purra.contracts.call import CallContext, Stop
from purra.contracts.tool import ToolResult
from purra.errors import AdapterError
from purra.values import freeze, thaw
from tests.conformance import puppets
from tests.conformance.subjects import SUBJECTS, Subject

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("subject", SUBJECTS.values(), ids=list(SUBJECTS)),
]


async def call(
    subject: Subject, name: str, context: CallContext | None = None, **arguments: Any
) -> ToolResult:
    async with subject.tools() as tools:
        return await tools.call(name, freeze(arguments), context or CallContext())


async def refused(subject: Subject, name: str, context: CallContext | None = None) -> AdapterError:
    with anyio.fail_after(10), pytest.raises(AdapterError) as caught:
        await call(subject, name, context)
    return caught.value


async def test_the_catalog_lists_every_tool_the_same_each_time(subject: Subject) -> None:
    """TOL-012: names, effects and schemas do not flap."""
    async with subject.tools() as tools:
        first = await tools.catalog()
        assert await tools.catalog() == first
    by_name = {schema.name: schema for schema in first}
    assert set(by_name) == {tool.__name__ for tool in puppets.TOOLS}
    assert by_name["raised"].effect == "world_write"
    assert thaw(by_name["echo"].parameters) == {
        "type": "object",
        "properties": {"value": {}},
        "required": ["value"],
        "additionalProperties": False,
    }
    # What the kernel fills in is never shown to a model.
    assert set(by_name["reporting"].parameters["properties"]) == {"steps"}


@pytest.mark.parametrize("name", ["echo", "echo_async"])
@pytest.mark.parametrize(
    "value", [None, True, 0, -(2**63), 0.5, "", "grüße \U0001f43e\u2028", [], {"a": [{"b": None}]}]
)
async def test_values_come_back_as_they_went(subject: Subject, name: str, value: Any) -> None:
    """TOL-005, JSON-01: the strict value model, types kept."""
    result = await call(subject, name, value=value)
    assert result == ToolResult(freeze({"value": value}))
    assert type(result.value["value"]) is type(freeze(value))


async def test_a_result_is_frozen(subject: Subject) -> None:
    """JSON-08: nobody can change a result that was checked."""
    result = await call(subject, "echo", value={"a": [1]})
    with pytest.raises(TypeError):
        result.value["value"]["a"] = 2
    assert result.value["value"]["a"] == (1,)


async def test_every_field_of_a_result_arrives(subject: Subject) -> None:
    """TOL-005."""
    assert await call(subject, "whole") == ToolResult(
        (1, 2),
        effect_state="committed",
        step="complete",
        planning="replan",
        events=(freeze({"kind": "x"}),),
        artifacts=("sha256:0",),
        display=freeze({"title": "done"}),
    )


async def test_a_told_failure_is_a_coded_result(subject: Subject) -> None:
    """K31, tables (effect states): the model may read it, and nothing happened."""
    assert await call(subject, "told_failure") == ToolResult(
        freeze({"error": "no such file"}),
        is_error=True,
        code="missing_file",
        effect_state="not_started",
    )


async def test_a_told_failure_says_what_is_known_of_its_effect(subject: Subject) -> None:
    """Tables, effect states: `ToolError(effect_state=...)`."""
    result = await call(subject, "told_unknown")
    assert (result.is_error, result.code, result.effect_state) == (True, "tool_failed", "unknown")


@pytest.mark.parametrize("name", ["raised", "raised_async"])
async def test_an_exception_is_executed_and_shows_only_its_type(
    subject: Subject, name: str
) -> None:
    """Invariant 4; K31: a code, a type, no text; nothing is claimed about the effect."""
    error = await refused(subject, name)
    assert (error.code, error.origin, error.executed) == ("internal", "plugin", "yes")
    assert error.effect_state is None
    assert error.detail["type"] == "RuntimeError"
    assert puppets.SECRET not in f"{error} {dict(error.detail)}"


async def test_exiting_ends_a_call_and_not_the_kernel(subject: Subject) -> None:
    """Invariant 4: `SystemExit` in a handler is one failed call."""
    async with subject.tools() as tools:
        with anyio.fail_after(10), pytest.raises(AdapterError) as caught:
            await tools.call("leaves", {}, CallContext())
        assert puppets.SECRET not in str(caught.value)
        if not subject.hosted:
            assert caught.value.detail["type"] == "SystemExit"
            assert (await tools.call("echo", {"value": 1}, CallContext())).value == {"value": 1}


@pytest.mark.parametrize("name", ["not_a_number", "foreign_type"])
async def test_a_value_outside_the_model_is_an_encoding_error(subject: Subject, name: str) -> None:
    """CAP-08, K26, JSON-02, JSON-11: coded at the boundary, never repr or NaN downstream."""
    error = await refused(subject, name)
    assert (error.code, error.executed) == ("tool_result_encoding", "yes")


@pytest.mark.parametrize(
    ("name", "path"),
    [("bad_effect_state", "result.effect_state"), ("failed_without_code", "result")],
)
async def test_a_result_of_the_wrong_shape_is_refused(
    subject: Subject, name: str, path: str
) -> None:
    """Invariant 6: a state that does not exist, a failure without a code."""
    error = await refused(subject, name)
    assert (error.code, error.executed) == ("contract_violation", "yes")
    assert error.message.startswith(f"{path}: ")


async def test_a_tool_that_is_not_offered_never_runs(subject: Subject) -> None:
    """TOL-004."""
    error = await refused(subject, "rm_rf")
    assert (error.code, error.origin, error.executed) == ("unknown_tool", "caller", "no")


async def test_a_stop_that_comes_first_runs_nothing(subject: Subject) -> None:
    """TOL-006, CAN-001: what was given up before it began has not happened."""
    stop = Stop()
    stop.request()
    error = await refused(subject, "hanging", CallContext(stop=stop))
    assert (error.code, error.origin, error.executed) == ("cancelled", "caller", "no")


@pytest.mark.parametrize("name", ["reporting", "reporting_async"])
async def test_progress_arrives_in_order_before_the_result(subject: Subject, name: str) -> None:
    """STR-001: each report once, all of them before the call returns."""
    seen: list[Any] = []
    result = await call(subject, name, CallContext(progress=seen.append), steps=5)
    assert result.value == 5
    assert seen == [{"step": step} for step in range(5)]


async def test_the_time_limit_ends_a_call(subject: Subject) -> None:
    """CAN-008: coded, and whether it ran is not claimed."""
    async with subject.tools() as tools:
        await tools.call("echo", {"value": 1}, CallContext())  # it runs: a start takes time too
        with anyio.fail_after(10), pytest.raises(AdapterError) as caught:
            await tools.call("hanging", {}, CallContext(timeout_s=0.5))
    error = caught.value
    assert (error.code, error.origin) == ("deadline_exceeded", "caller")
    assert error.executed == "maybe"


async def test_cancelling_the_caller_ends_the_call(subject: Subject) -> None:
    """CAN-006, CAN-007: the cancellation stays one, and the tools go on."""
    async with subject.tools() as tools:
        await tools.call("echo", {"value": 1}, CallContext())
        with anyio.fail_after(10):
            with anyio.move_on_after(0.5) as scope:
                await tools.call("hanging", {}, CallContext())
            assert scope.cancelled_caught
            assert (await tools.call("echo", {"value": 1}, CallContext())).value == {"value": 1}


async def test_calls_run_side_by_side(subject: Subject) -> None:
    """TOL-011: results belong to their calls, also when one fails and one hangs."""
    values: dict[int, Any] = {}
    async with subject.tools() as tools, anyio.create_task_group() as tasks:

        async def one(number: int) -> None:
            result = await tools.call("echo_async", {"value": number}, CallContext())
            values[number] = result.value["value"]
            if len(values) == 20:
                tasks.cancel_scope.cancel()

        async def fails() -> None:
            # A read: a write would run alone and wait for the one that hangs.
            with pytest.raises(AdapterError):
                await tools.call("foreign_type", {}, CallContext())

        tasks.cancel_scope.deadline = anyio.current_time() + 10
        tasks.start_soon(tools.call, "hanging", {}, CallContext())
        tasks.start_soon(fails)
        for number in range(20):
            tasks.start_soon(one, number)
    assert values == {number: number for number in range(20)}
