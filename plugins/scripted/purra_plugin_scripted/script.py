"""The form of a script: tables from TOML, JSON or the host manifest, checked once, when loaded.

A test that misspells a key would otherwise pass for the wrong reason, so everything unknown is an
error that names the step and the key.
"""

from __future__ import annotations

import builtins
import json
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = [
    "ACTIONS",
    "EXPECTATIONS",
    "FINISHES",
    "Action",
    "Script",
    "ScriptError",
    "Step",
    "load_script",
    "parse_script",
]

MAX_SCRIPT_BYTES = 4 * 1024 * 1024
FINISHES = frozenset({"stop", "tool_calls", "length", "filtered", "other"})
DEFAULT_PROFILE = {
    "window": 32_768,
    "output_limit": 4_096,
    "features": ["tools", "parallel_tools"],
}

EXPECTATIONS: Mapping[str, tuple[type, ...]] = {
    "messages": (int,),
    "roles": (list,),
    "last_role": (str,),
    "last_equals": (str,),
    "last_contains": (str, list),
    "contains": (str, list),
    "lacks": (str, list),
    "tools": (list,),
    "tools_include": (list,),
    "max_tokens": (int,),
    "params": (dict,),
}
"""What a step may expect, and the types of it."""

ACTIONS: Mapping[str, tuple[type, ...]] = {
    "content": (str,),
    "reasoning": (str,),
    "call": (dict,),
    "fragment": (dict,),
    "usage": (dict,),
    "finish": (str, dict),
    "item": (object,),
    "delay_ms": (int,),
    "hang": (str,),
    "raise": (dict,),
    "exit": (int,),
    "signal": (int,),
    "print": (str,),
    "garbage": (int,),
}
"""What a step may do, and the types of it."""

_SHORT_KEYS = frozenset({"content", "calls", "usage", "finish"})
_STEP_KEYS = frozenset({"name", "expect", "emit", "split", *_SHORT_KEYS})
_FIELDS: Mapping[str, frozenset[str]] = {
    "call": frozenset({"index", "id", "name", "arguments"}),
    "fragment": frozenset({"index", "id", "name", "arguments"}),
    "usage": frozenset({"input_tokens", "output_tokens"}),
    "finish": frozenset({"reason", "native"}),
    "raise": frozenset({"code", "message", "after_ms", "detail", "exception"}),
}
HANGS = frozenset({"until_cancelled", "for_ever"})


class ScriptError(Exception):
    """A script that cannot be played; the message names the place and what is allowed."""


class Action(NamedTuple):
    """One thing that a step does: a key of `ACTIONS` and its value."""

    kind: str
    value: Any


class Step(NamedTuple):
    """The answer to one request. `split`: text goes in pieces of so many characters; 0 = whole."""

    name: str
    expect: Mapping[str, Any]
    actions: tuple[Action, ...]
    split: int


class Script(NamedTuple):
    """A whole script. `match`: how a request finds its step, `order` or `round`."""

    steps: tuple[Step, ...]
    match: str
    profile: Mapping[str, Any]


def load_script(path: str) -> Script:
    """The script in a `.json` or `.toml` file. Raises `ScriptError`."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{path}: more than {MAX_SCRIPT_BYTES} bytes")
    try:
        text = data.decode()
        table = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"{path}: {error}") from None
    return parse_script(table)


def parse_script(table: Any) -> Script:
    """The script that a table `{steps, match, profile}` describes. Raises `ScriptError`."""
    _check_keys("script", table, frozenset({"steps", "match", "profile"}))
    match = table.get("match", "order")
    if match not in ("order", "round"):
        raise ScriptError(f"match: {match!r} is neither 'order' nor 'round'")
    profile = table.get("profile", {})
    _check_keys("profile", profile, frozenset(DEFAULT_PROFILE))
    steps = table.get("steps", [])
    if not isinstance(steps, list):
        raise ScriptError("steps: must be a list of tables")
    return Script(
        tuple(_step(number, step) for number, step in enumerate(steps, 1)),
        match,
        {**DEFAULT_PROFILE, **profile},
    )


def _check_keys(place: str, table: Any, known: frozenset[str]) -> None:
    if not isinstance(table, dict):
        raise ScriptError(f"{place}: must be a table")
    for key in table:
        if key not in known:
            raise ScriptError(f"{place}: {key!r} is not one of {', '.join(sorted(known))}")


def _check_type(place: str, value: Any, types: tuple[type, ...]) -> None:
    if object in types:
        return
    wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
    if wrong or (isinstance(value, int) and not isinstance(value, bool) and value < 0):
        allowed = " or ".join(kind.__name__ for kind in types)
        raise ScriptError(f"{place}: must be {allowed}, not {value!r}")


def _step(number: int, table: Any) -> Step:
    place = f"step {number}"
    _check_keys(place, table, _STEP_KEYS)
    name = table.get("name", "")
    _check_type(f"{place}: name", name, (str,))
    split = table.get("split", 0)
    _check_type(f"{place}: split", split, (int,))
    expect = table.get("expect", {})
    _check_keys(f"{place}: expect", expect, frozenset(EXPECTATIONS))
    for key, value in expect.items():
        _check_type(f"{place}: expect.{key}", value, EXPECTATIONS[key])
    if "emit" in table and not _SHORT_KEYS.isdisjoint(table):
        raise ScriptError(f"{place}: 'emit' stands alone; put everything into it")
    actions = _emitted(place, table["emit"]) if "emit" in table else _shorthand(place, table)
    return Step(name, expect, tuple(actions), split)


def _emitted(place: str, emit: Any) -> list[Action]:
    _check_type(f"{place}: emit", emit, (list,))
    actions = []
    for position, table in enumerate(emit, 1):
        where = f"{place}: emit {position}"
        _check_keys(where, table, frozenset(ACTIONS))
        if len(table) != 1:
            raise ScriptError(f"{where}: must have exactly one key")
        ((kind, value),) = table.items()
        actions.append(_action(where, kind, value))
    return actions


def _action(where: str, kind: str, value: Any) -> Action:
    where = f"{where}: {kind}"
    _check_type(where, value, ACTIONS[kind])
    if kind == "hang" and value not in HANGS:
        raise ScriptError(f"{where}: {value!r} is not one of {', '.join(sorted(HANGS))}")
    if kind == "finish" and isinstance(value, str):
        if value not in FINISHES:
            raise ScriptError(f"{where}: {value!r} is not one of {', '.join(sorted(FINISHES))}")
        value = {"reason": value}
    if kind in _FIELDS:
        _check_keys(where, value, _FIELDS[kind])
    if kind == "raise" and ("code" in value) == ("exception" in value):
        raise ScriptError(f"{where}: must have exactly one of 'code' and 'exception'")
    if kind == "raise" and "exception" in value and not _is_exception(value["exception"]):
        raise ScriptError(f"{where}: {value['exception']!r} is not a built-in exception")
    if kind == "call" and "name" not in value:
        raise ScriptError(f"{where}: 'name' is missing")
    return Action(kind, value)


def _is_exception(name: Any) -> bool:
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    return isinstance(kind, type) and issubclass(kind, Exception)


def _shorthand(place: str, table: dict[str, Any]) -> list[Action]:
    """A whole, well-formed answer: content, calls, usage, and the finish that fits them."""
    actions = [_action(place, "content", table["content"])] if "content" in table else []
    calls = table.get("calls", [])
    _check_type(f"{place}: calls", calls, (list,))
    actions += [_action(f"{place}: calls", "call", call) for call in calls]
    if "usage" in table:
        actions.append(_action(place, "usage", table["usage"]))
    finish = table.get("finish", "tool_calls" if calls else "stop")
    actions.append(_action(place, "finish", finish))
    return actions
