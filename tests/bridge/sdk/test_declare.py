"""Declarations: marks, names, and how a handler is called."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from purra_sdk import Plugin, PluginError, StoreError, batched, context, model, outcome, store, tool
from purra_sdk.items import content, finish, reasoning, tool_call, usage


def called(function: Any, *, method: str = "call", args: Any = None) -> Any:
    """What one handler of a plugin with that tool gives."""
    handlers, _ = Plugin(tools=[function]).build(SimpleNamespace())  # type: ignore[arg-type]
    (handler,) = handlers.values()
    return handler.invoke(SimpleNamespace(args=args or {"arguments": {"a": 1}}))  # type: ignore[arg-type]


def test_a_decorated_tool_stays_a_function() -> None:
    """pluggy's marker habit: authors call their tools in their own tests."""

    @tool(effect="pure")
    def double(a: int) -> int:
        return a * 2

    assert double(4) == 8
    assert called(double) == 2


def test_only_a_first_parameter_named_call_is_injected() -> None:
    """SDK: never visible to the model, and nothing else is taken for it."""

    @tool(effect="pure")
    def first(call: Any, a: int) -> Any:
        return call.args, a

    @tool(effect="pure")
    def second(a: int, call: Any = "mine") -> Any:
        return a, call

    @tool(effect="pure")
    def keyword(**arguments: Any) -> Any:
        return arguments

    assert called(first) == ({"arguments": {"a": 1}}, 1)
    assert called(second) == (1, "mine")
    assert called(keyword) == {"a": 1}


def test_methods_callables_and_decorated_functions_are_tools_too() -> None:
    """SDK: `call` is found behind `self` and behind wrappers."""

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return ["logged", function(*args, **kwargs)]

        return wrapper

    class Owner:
        @tool(effect="pure")
        def method(self, call: Any, a: int) -> int:
            return a + len(call.args)

    @tool(effect="pure")
    @logged
    def wrapped(call: Any, a: int) -> int:
        return a + len(call.args)

    assert called(Owner().method) == 2
    assert called(wrapped) == ["logged", 2]


def test_a_type_error_inside_a_handler_is_its_own() -> None:
    """TOL-003: only a call that does not fit is an invalid argument."""

    @tool(effect="pure")
    def inside(a: int) -> Any:
        return a + "text"  # type: ignore[operator]

    @tool(effect="pure")
    def deeper(a: int) -> Any:
        def needs_two(one: int, two: int) -> int:
            return one + two

        return needs_two(a)  # type: ignore[call-arg]

    for broken in (inside, deeper):
        with pytest.raises(TypeError):
            called(broken)

    @tool(effect="pure")
    def other(b: int) -> int:
        return b

    with pytest.raises(PluginError) as caught:
        called(other)
    assert caught.value.code == "invalid_argument"


def test_a_name_can_be_offered_once() -> None:
    """design, vocabulary: an adapter's address is plugin-id/name."""

    @tool(effect="pure", name="one")
    def first() -> None: ...

    @model("one")
    class Second: ...

    with pytest.raises(ValueError, match="'one'"):
        Plugin(tools=[first], models=[Second])


def test_what_is_not_marked_is_refused() -> None:
    """Fail closed: at the import, not at the first call."""

    @context("memory")
    class Memory: ...

    with pytest.raises(TypeError, match="@tool"):
        Plugin(tools=[len])
    with pytest.raises(TypeError, match="@store"):
        Plugin(stores=[Memory])
    with pytest.raises(TypeError, match="sets"):
        Plugin(sets=[Memory])  # type: ignore[arg-type]


def test_a_class_is_made_with_the_setup_if_it_takes_it() -> None:
    """SDK: on the thread that will run its handlers, so not before the start."""
    made = []

    @store("plain")
    class Plain:
        def now(self, call: Any) -> None: ...

    @store("alone")
    class Alone:
        def __init__(self) -> None:
            made.append("alone")

    @store("with")
    class With:
        def __init__(self, setup: Any) -> None:
            made.append(setup)

        def close(self) -> None: ...

    ready = store("ready")(type("Ready", (), {"now": lambda self, call: 1}))()
    plugin = Plugin(stores=[Plain, Alone, With, ready])
    assert made == []
    setup: Any = object()
    handlers, closing = plugin.build(setup)
    assert made == ["alone", setup]
    assert set(handlers) == {("plain", "now"), ("ready", "now")}
    assert [type(part).__name__ for part in closing] == ["With"]
    assert [offer["name"] for offer in plugin.offers()] == ["plain", "alone", "with", "ready"]


def test_a_batched_method_is_known_as_such() -> None:
    """design, store: queued calls are taken together."""

    @store("journal")
    class Journal:
        @batched
        def commit(self, calls: Any) -> Any: ...

        async def read(self, call: Any, stream: str, after: int, limit: int) -> Any: ...

        async def watch(self, call: Any, prefix: str) -> Any:
            yield prefix

    handlers, _ = Plugin(stores=[Journal]).build(SimpleNamespace())  # type: ignore[arg-type]
    facts = {method: (h.batched, h.asynchronous) for (_, method), h in handlers.items()}
    assert facts == {"commit": (True, False), "read": (False, True), "watch": (False, True)}


def test_items_have_the_shape_of_the_model_contract() -> None:
    """design, contracts: model; what is not known is None, what is not said is absent."""
    assert reasoning("r") == {"t": "reasoning", "text": "r"}
    assert content("c") == {"t": "content", "text": "c"}
    assert tool_call(1, "i", "n", "{}") == {
        "t": "call",
        "index": 1,
        "id": "i",
        "name": "n",
        "arguments": "{}",
    }
    assert tool_call(1, arguments="x") == {"t": "call", "index": 1, "arguments": "x"}
    assert usage(3) == {"t": "usage", "input_tokens": 3, "output_tokens": None}
    assert finish("length", "MAX") == {"t": "finish", "reason": "length", "native": "MAX"}


def test_outcomes_and_errors_hold_what_they_were_given() -> None:
    """tables, effect states."""
    assert outcome(1).body == {"value": 1}
    assert outcome(1, display={"d": 1}, events=[1]).body == {
        "value": 1,
        "display": {"d": 1},
        "events": [1],
    }
    assert StoreError("conflict", key="k", revision=3).detail == {"key": "k", "revision": 3}
