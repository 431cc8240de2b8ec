"""The model contract: one finish, honest usage, allowances kept, no state (MOD-003 to 015)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.context import budget
from purra_plugin_offline.answering import Answer
from purra_plugin_offline.plugin import OUTPUT_TOKENS, WINDOW_TOKENS, Extractive
from purra_plugin_offline.streaming import estimate, estimate_request, stream
from purra_sdk import CallCancelled, PluginError
from tests.plugins.offline.talking import (
    TOOLS,
    calls_of,
    converse,
    file_tools,
    quotes_in,
    request,
    respond,
    text_of,
)

USER = {"role": "user", "content": "How does a caller cancel a running tool?"}


def test_the_profile_is_complete() -> None:
    call: Any = None
    assert Extractive().profile(call) == {
        "window": 32_768,
        "output_limit": 4_096,
        "features": ["tools", "parallel_tools"],
    }


def test_calls_are_whole_and_admitted_by_the_offered_schemas() -> None:
    """Fragments join to JSON that the tool's schema accepts; ids are distinct (MOD-005)."""
    items = respond(request([USER]))
    calls = calls_of(items)
    assert len(calls) == 5
    assert len({call["id"] for call in calls}) == len(calls)
    schemas = {tool["name"]: tool["parameters"] for tool in TOOLS}
    for call in calls:
        jsonschema.validate(json.loads(call["arguments"]), schemas[call["name"]])
    assert len([item for item in items if item["t"] == "call"]) > len(calls), "in fragments"
    assert items[-1] == {"t": "finish", "reason": "tool_calls", "native": "tool_calls"}


def test_calls_stay_within_the_bounds_of_stricter_tools() -> None:
    """Another plugin's grep: literal only, few matches, no size bound."""
    tool: dict[str, Any] = {
        "name": "search_code",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "pattern": {"type": "string"},
                "max_matches": {"type": "integer", "minimum": 1, "maximum": 10},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
    }
    for call in calls_of(respond(request([USER], [tool]))):
        arguments = json.loads(call["arguments"])
        jsonschema.validate(arguments, tool["parameters"])
        assert arguments["pattern"].isalpha(), "literal where no regular expression is known"


def test_a_tool_that_needs_more_is_left_alone() -> None:
    """A tool that replaces is not taken for one that searches, one that writes not for a read."""
    tools = [
        {
            "name": name,
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
                "required": keys,
            },
        }
        for name, keys in (("grep_replace", ["pattern", "text"]), ("read_write", ["path", "data"]))
    ]
    assert calls_of(respond(request([USER], tools))) == []


@given(st.integers(0, 700), st.lists(st.text(alphabet="ab é字\n", max_size=300), max_size=4))
def test_no_answer_is_longer_than_allowed(max_tokens: int, parts: list[str]) -> None:
    """Whole passages are dropped first; a text that is cut says `length` (MOD-007)."""
    answer = Answer("Found:", tuple(parts), "The end.")
    items = list(stream(answer, request([USER], max_tokens=max_tokens)))
    text, end = text_of(items), items[-1]
    assert estimate(text) <= max_tokens
    assert [item["t"] for item in items].count("finish") == 1
    if end["reason"] == "stop":
        assert text in [answer.text(count) for count in range(len(parts) + 1)]
        assert text.endswith("The end.")
    else:
        assert end["reason"] == "length"
        assert estimate(answer.text(min(1, len(parts)))) > max_tokens


def test_calls_that_do_not_fit_are_left_out_whole_and_say_so() -> None:
    items = respond(request([USER], max_tokens=300))
    assert items[-1]["reason"] == "length"
    assert all(json.loads(call["arguments"]) for call in calls_of(items))
    used = items[-2]["output_tokens"]
    assert 0 < used <= 300


@given(st.text())
def test_the_estimate_is_the_kernels(text: str) -> None:
    """CTX-03, for text and for JSON."""
    assert estimate(text) == budget.estimate(text)
    assert estimate(text, as_json=True) == budget.estimate(text, json=True)


def test_usage_is_reported_once_before_the_finish() -> None:
    """MOD-008: never negative, never missing."""
    body = request([USER], [])
    items = respond(body)
    assert [item["t"] for item in items][-2:] == ["usage", "finish"]
    (usage,) = [item for item in items if item["t"] == "usage"]
    assert usage["input_tokens"] == estimate_request(body) > 0
    assert usage["output_tokens"] == estimate(text_of(items)) > 0


def test_the_same_request_gives_the_same_stream(tmp_path: Path) -> None:
    """No state: ten times, and with other requests in between (MOD-015)."""
    (tmp_path / "a.md").write_text("to cancel a tool, call cancel\n\ncancel again\n" * 5)
    _, messages = converse("cancel a tool", file_tools(tmp_path))
    model, call = Extractive(), SimpleNamespace(cancelled=False)
    streams = []
    for _ in range(10):
        streams.append(list(model.generate(call, request(messages))))  # type: ignore[arg-type]
        list(model.generate(call, request([USER])))  # type: ignore[arg-type]
    assert all(stream == streams[0] for stream in streams)


def test_a_cancelled_call_sends_nothing_more() -> None:
    call: Any = SimpleNamespace(cancelled=False)
    items = Extractive().generate(call, request([USER]))
    next(items)
    call.cancelled = True
    with pytest.raises(CallCancelled):
        next(items)


def test_parameters_are_refused_and_not_ignored() -> None:
    """MOD-014."""
    with pytest.raises(PluginError, match="temperature") as caught:
        respond({**request([USER]), "params": {"temperature": 0.5}})
    assert caught.value.code == "unimplemented"


def test_results_never_overfill_the_window(tmp_path: Path) -> None:
    """Long lines everywhere: what the model asks for still fits beside its answer."""
    for number in range(30):
        line = "caller cancel running tool " * 140
        (tmp_path / f"{number}.txt").write_text(f"{line}\n" * 20)
    answer, messages = converse(str(USER["content"]), file_tools(tmp_path))
    assert estimate_request(request(messages)) + OUTPUT_TOKENS <= WINDOW_TOKENS
    assert quotes_in(answer)


def test_a_full_window_means_no_further_search() -> None:
    long = {"role": "user", "content": "x " * 55_000}
    messages = [long, {"role": "assistant", "content": "ok"}, USER]
    items = respond(request(messages))
    assert calls_of(items) == []
    assert items[-1]["reason"] == "stop"
