"""The verdict on a whole batch: every call may run, or none does."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.agent import RunLimits
from purra.contracts.tool import ToolSchema, declare
from purra.errors import CODES, PurraError
from purra.gateway.preflight import Admitted, Preflight, Refused, compile_catalog
from purra.limits import ARGUMENT_CHARS, ERROR_TEXT_CHARS, MAX_CALLS_PER_BATCH, MAX_TOOL_CALLS
from purra.values import digest

PATH: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "tags": {"type": "array"}},
    "required": ["path"],
    "additionalProperties": False,
}
READ = declare("fs.read", "Read", PATH, "world_read")
GREP = declare("fs.grep", "Find", PATH, "world_read")
WRITE = declare("fs.write", "Write", PATH, "world_write")
NOTHING = declare("now", "The time", {"type": "object"}, "pure")
CATALOG = compile_catalog([READ, GREP, WRITE, NOTHING])
GOOD = '{"path": "a"}'
SHAPE = "invalid_tool_arguments_shape"


@dataclass(frozen=True)
class Call:
    id: str
    alias: str
    name: str
    text: str = GOOD


def batch(*named: str | tuple[str, str]) -> list[Call]:
    calls = [(one, GOOD) if isinstance(one, str) else one for one in named]
    return [Call(f"1.{n}", f"call_{n}", name, text) for n, (name, text) in enumerate(calls)]


def judge(calls: list[Call], used: int = 0, **limits: Any) -> Admitted | Refused:
    return Preflight(CATALOG, RunLimits(**limits)).check(calls, used)


def codes(verdict: Admitted | Refused) -> dict[str, str]:
    assert isinstance(verdict, Refused)
    assert all(code in CODES for code, _ in verdict.results.values())
    assert all(0 < len(text) <= ERROR_TEXT_CHARS for _, text in verdict.results.values())
    assert verdict.code in {code for code, _ in verdict.results.values()}
    return {call: code for call, (code, _) in verdict.results.items()}


def text_of(verdict: Admitted | Refused, call: str = "1.0") -> str:
    assert isinstance(verdict, Refused)
    return verdict.results[call][1]


def test_admitted_calls_carry_all_that_dispatch_needs() -> None:
    """TOOL-09: schema, frozen arguments, their digest, what was unquoted; in the batch's order."""
    text = '{ "tags": "[1]", "path": "a" }'
    verdict = judge(batch(("fs.read", text), ("now", ""), "fs.write"))
    assert isinstance(verdict, Admitted)
    first, second, third = verdict.calls
    assert (first.call, first.schema, first.recovered) == ("1.0", READ, ("/tags",))
    assert first.arguments == {"path": "a", "tags": (1,)}
    assert first.digest == digest({"path": "a", "tags": [1]})
    assert (second.call, second.arguments, second.recovered) == ("1.1", {}, ())
    assert (third.call, third.schema) == ("1.2", WRITE)
    with pytest.raises(TypeError):
        first.arguments["path"] = "b"  # type: ignore[index]


def test_an_empty_batch_is_admitted() -> None:
    assert judge([]) == Admitted(())


def test_one_failure_runs_nothing_and_names_only_the_failed() -> None:
    """TOOL-09: three good calls and a bad one; the good ones are not in the results."""
    verdict = judge(batch("fs.read", ("fs.grep", "{"), "fs.read", "now"))
    assert codes(verdict) == {"1.1": "invalid_tool_arguments_json"}


def test_every_slip_of_a_batch_is_reported_at_once() -> None:
    """TOOL-06, TOOL-10, K34: one code per failed call; the batch has that of the first."""
    verdict = judge(
        batch(
            ("fs.read", '{"path": 1}'),
            "zzz",
            ("fs.grep", "[]"),
            ("fs.grep", "x" * (ARGUMENT_CHARS + 1)),
            ("fs.grep", '{"path": "a'),
        ),
    )
    assert codes(verdict) == {
        "1.0": SHAPE,
        "1.1": "unknown_tool",
        "1.2": SHAPE,
        "1.3": "tool_arguments_too_large",
        "1.4": "invalid_tool_arguments_json",
    }
    assert isinstance(verdict, Refused)
    assert verdict.code == SHAPE


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    """TOOL-10, K23: what the model may call instead, and not what it wrote."""
    verdict = judge(batch("hunter2"))
    assert text_of(verdict) == "no tool of that name; there are: fs.grep, fs.read, fs.write, now"


def test_only_the_allowed_names_are_known() -> None:
    """TOOL-11: a tool outside the step's set is as unknown as one that does not exist."""
    preflight = Preflight(CATALOG, RunLimits())
    calls = batch("fs.write", "now")
    verdict = preflight.check(calls, 0, frozenset({"now", "fs.read", "not.there"}))
    assert codes(verdict) == {"1.0": "unknown_tool"}
    assert text_of(verdict) == "no tool of that name; there are: fs.read, now"
    nothing = preflight.check(batch("now"), 0, frozenset())
    assert text_of(nothing) == "no tool of that name; there are no tools now"


def test_the_list_of_names_is_bounded() -> None:
    """K23: hundreds of tools, or a few with long names, give a short text with a count."""
    for length in (5, 100):
        names = [f"t{n:0{length}}" for n in range(200)]
        tools = [declare(name, "", {"type": "object"}, "pure") for name in names]
        preflight = Preflight(compile_catalog(tools), RunLimits())
        verdict = preflight.check(batch("zzz"))
        codes(verdict)
        shown = text_of(verdict).split(": ")[1].split(" and ")
        listed = shown[0].split(", ")
        assert listed == names[: len(listed)]
        assert shown[1] == f"{200 - len(listed)} more"


def test_names_are_compared_exactly() -> None:
    """Invariant 6: no trimming, no case folding, no nearest match."""
    for name in ("FS.READ", "fs.read ", "fs\u2024read", "fs_read", ""):
        assert codes(judge(batch(name))) == {"1.0": "unknown_tool"}


class Unread:
    """A call whose text must not be looked at."""

    id = "1.0"
    name = "fs.read"

    def __init__(self, number: int) -> None:
        self.id = f"1.{number}"
        self.alias = self.id

    @property
    def text(self) -> str:
        raise AssertionError("read")


def test_too_many_calls_are_counted_and_not_read() -> None:
    """OBS-07, TOOL-09: the bound itself is inside; over it every call has the code."""
    assert isinstance(judge(batch(*["fs.read"] * MAX_CALLS_PER_BATCH)), Admitted)
    calls = [Unread(number) for number in range(MAX_CALLS_PER_BATCH + 1)]
    verdict = Preflight(CATALOG, RunLimits()).check(calls)
    assert codes(verdict) == {call.id: "too_many_calls" for call in calls}
    assert "at most 32" in text_of(verdict)


def test_a_run_has_only_so_many_calls() -> None:
    """RUN limits: the batch that would pass the bound does not start at all."""
    assert isinstance(judge(batch("fs.read", "now"), MAX_TOOL_CALLS - 1), Refused)
    assert isinstance(judge(batch("fs.read"), MAX_TOOL_CALLS - 1), Admitted)
    verdict = judge(batch("fs.read", "fs.grep"), 3, max_tool_calls=4)
    assert codes(verdict) == {
        "1.0": "max_tool_calls_exceeded",
        "1.1": "max_tool_calls_exceeded",
    }


def test_two_calls_of_one_provider_id_are_no_batch() -> None:
    """MOD-09, K07: whoever assembled it, results could not be told apart."""
    first, second = batch("fs.read", "fs.grep")
    verdict = judge([first, replace(second, alias=first.alias)])
    assert codes(verdict) == {"1.0": "malformed_tool_batch", "1.1": "malformed_tool_batch"}


def test_an_id_may_come_again_in_a_later_batch() -> None:
    """MOD-10, K08: identity is the kernel's; nothing is remembered between batches."""
    preflight = Preflight(CATALOG, RunLimits())
    for attempt in (1, 2):
        verdict = preflight.check([Call(f"{attempt}.0", "call_0", "fs.read")])
        assert isinstance(verdict, Admitted)
        assert verdict.calls[0].call == f"{attempt}.0"


def test_several_writes_are_refused_with_advice() -> None:
    """TOOL-24: the writes have the code, a read beside them did nothing wrong."""
    verdict = judge(batch("fs.write", "fs.read", "fs.write"))
    assert codes(verdict) == {"1.0": "write_batch_refused", "1.2": "write_batch_refused"}
    assert text_of(verdict) == (
        "2 writes in one batch (fs.write); send one, wait for its result, go on"
    )


def test_one_write_among_reads_is_admitted() -> None:
    """TOOL-24: only several writes are a question of order."""
    assert isinstance(judge(batch("fs.read", "fs.write", "fs.read")), Admitted)


def test_serial_write_batches_are_let_in() -> None:
    """TOOL-24: `limits.write_batch = serial`."""
    verdict = judge(batch("fs.write", "fs.write"), write_batch="serial")
    assert isinstance(verdict, Admitted)


def test_write_advice_is_bounded() -> None:
    """ERROR text bound: many long names are left out."""
    names = ["w" * 100 + str(n) for n in range(20)]
    tools = [declare(name, "", PATH, "external_write") for name in names]
    verdict = Preflight(compile_catalog(tools), RunLimits()).check(batch(*names))
    assert set(codes(verdict).values()) == {"write_batch_refused"}


calls_of_all_kinds = st.lists(
    st.tuples(
        st.sampled_from(["fs.read", "fs.grep", "fs.write", "now", "zzz"]),
        st.sampled_from([GOOD, "", "{", "[]", '{"path": "a", "tags": "[]"}']) | st.text(max_size=9),
    ),
    max_size=6,
)


@given(calls_of_all_kinds, st.integers(0, MAX_TOOL_CALLS), st.sampled_from(["refuse", "serial"]))
def test_a_batch_is_admitted_whole_or_refused_for_reasons(
    named: list[tuple[str, str]], used: int, write_batch: Any
) -> None:
    """TOOL-09: never part of a batch; the same batch alone decides; verdicts repeat."""
    calls = batch(*named)
    verdict = judge(calls, used, write_batch=write_batch)
    assert judge(calls, used, write_batch=write_batch) == verdict
    if isinstance(verdict, Admitted):
        assert [call.call for call in verdict.calls] == [call.id for call in calls]
        assert all(isinstance(judge([call]), Admitted) for call in calls)
        return
    assert verdict.results
    assert set(codes(verdict)) <= {call.id for call in calls}


# --- the catalog --------------------------------------------------------------------------------


def broken(schema: ToolSchema) -> PurraError:
    with pytest.raises(PurraError) as caught:
        compile_catalog([READ, schema])
    return caught.value


def test_two_tools_of_one_name_are_refused() -> None:
    """TOOL-35."""
    error = broken(replace(GREP, name="fs.read"))
    assert error.code == "duplicate_tool"
    assert "'fs.read'" in error.message


def test_bad_schemas_name_tool_and_path() -> None:
    """TOOL-01, TOOL-02."""
    inner = {"type": "object", "properties": {"p": {"pattern": "a"}}}
    error = broken(replace(GREP, parameters=inner))
    assert (error.code, error.where) == ("unsupported_schema", "tool fs.grep/properties/p")
    wide = {"type": "object", "properties": {str(n): {} for n in range(10_000)}}
    assert broken(replace(GREP, parameters=wide)).code == "schema_too_large"


@pytest.mark.parametrize(
    "fields",
    [
        {"effect": "banana"},
        {"effect": None},
        {"concurrency": "sometimes"},
        {"idempotency": "yes"},
        {"approval": ""},
        {"timeout_s": 0.0},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"name": ""},
        {"name": "n" * 129},
    ],
)
def test_other_fields_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    """CAP-02, CAP-03: an effect, a mode or a time that the kernel does not know."""
    error = broken(replace(GREP, **fields))
    assert error.code == "contract_violation"
    assert error.where.startswith("tool ")


def test_a_catalog_is_frozen_and_detached() -> None:
    """JSON-08, CAP-11: later changes of the declaration do not reach it."""
    parameters = json.loads(json.dumps(PATH))
    catalog = compile_catalog([replace(GREP, parameters=parameters)])
    parameters["required"].append("more")
    verdict = Preflight(catalog, RunLimits()).check(batch("fs.grep"))
    assert isinstance(verdict, Admitted)
    with pytest.raises(TypeError):
        catalog["x"] = catalog["fs.grep"]  # type: ignore[index]
