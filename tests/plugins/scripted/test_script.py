"""A script is checked in full when it is loaded: a slip in a test must not pass for a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_scripted.expect import _CHECKS
from purra_plugin_scripted.script import (
    EXPECTATIONS,
    Action,
    ScriptError,
    load_script,
    parse_script,
)


def test_the_short_form_is_a_whole_answer() -> None:
    script = parse_script(
        {
            "steps": [
                {"content": "let me see", "calls": [{"name": "t", "arguments": {}}]},
                {"content": "done", "usage": {"input_tokens": 1}, "finish": "length"},
                {},
            ]
        }
    )
    assert [[action.kind for action in step.actions] for step in script.steps] == [
        ["content", "call", "finish"],
        ["content", "usage", "finish"],
        ["finish"],
    ]
    finishes = [step.actions[-1] for step in script.steps]
    assert finishes == [
        Action("finish", {"reason": "tool_calls"}),
        Action("finish", {"reason": "length"}),
        Action("finish", {"reason": "stop"}),
    ]


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ([], "script"),
        ({"step": []}, "script"),
        ({"match": "any"}, "match"),
        ({"steps": {}}, "steps"),
        ({"profile": {"windows": 1}}, "profile"),
        ({"steps": [{"contnet": "x"}]}, "step 1"),
        ({"steps": [{}, {"content": 1}]}, "step 2: content"),
        ({"steps": [{"split": -1}]}, "step 1: split"),
        ({"steps": [{"split": True}]}, "step 1: split"),
        ({"steps": [{"expect": {"last": "x"}}]}, "step 1: expect"),
        ({"steps": [{"expect": {"messages": "2"}}]}, "step 1: expect.messages"),
        ({"steps": [{"content": "x", "emit": []}]}, "step 1"),
        ({"steps": [{"emit": [{"content": "x", "finish": "stop"}]}]}, "step 1: emit 1"),
        ({"steps": [{"emit": [{"finish": "stop"}, {"finish": "end"}]}]}, "step 1: emit 2"),
        ({"steps": [{"emit": [{"hang": "a bit"}]}]}, "step 1: emit 1: hang"),
        ({"steps": [{"emit": [{"usage": {"tokens": 1}}]}]}, "step 1: emit 1: usage"),
        ({"steps": [{"emit": [{"raise": {}}]}]}, "step 1: emit 1: raise"),
        ({"steps": [{"emit": [{"raise": {"exception": "os"}}]}]}, "step 1: emit 1: raise"),
        ({"steps": [{"calls": [{"arguments": {}}]}]}, "step 1: calls: call"),
        ({"steps": [{"calls": {"name": "x"}}]}, "step 1: calls"),
    ],
)
def test_what_is_unknown_or_misshapen_is_refused_by_place(table: Any, place: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(table)
    assert str(caught.value).startswith(place)


def test_files_in_both_languages_say_the_same(tmp_path: Path) -> None:
    steps = [{"name": "one", "expect": {"tools": ["a"]}, "content": "é"}]
    (tmp_path / "s.json").write_text(json.dumps({"match": "round", "steps": steps}))
    (tmp_path / "s.toml").write_text(
        'match = "round"\n[[steps]]\nname = "one"\nexpect = { tools = ["a"] }\ncontent = "é"\n'
    )
    loaded = load_script(str(tmp_path / "s.json"))
    assert loaded == load_script(str(tmp_path / "s.toml"))
    assert loaded.match == "round"


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '"\udc80"', "steps = 1"])
def test_broken_files_are_script_errors(tmp_path: Path, text: str) -> None:
    for name in ("s.json", "s.toml"):
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(ScriptError):
            load_script(str(tmp_path / name))
    with pytest.raises(ScriptError, match="none"):
        load_script(str(tmp_path / "none.json"))


def test_every_expectation_has_a_check() -> None:
    assert set(_CHECKS) == set(EXPECTATIONS)
