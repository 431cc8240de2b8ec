"""The link that plugin authors test with: real frames, no process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.wire.errors import WireError
from purra_sdk import Plugin, ToolError, model, store, tool
from purra_sdk.items import content, finish
from purra_sdk.testing import connect

SAMPLES = Path(__file__).parent / "samples"


@tool(effect="pure")
def double(call: Any, number: int) -> int:
    call.log("info", "doubling", number=number)
    if number < 0:
        raise ToolError("not negative", code="negative")
    return number * 2


@tool(effect="pure")
async def ask(call: Any, what: str) -> Any:
    return await call.ask("memory", "get", what)


@tool(effect="pure")
def nan() -> float:
    return float("nan")


@model("counter")
class Counter:
    def generate(self, call: Any, request: Any) -> Iterator[Any]:
        for number in range(request["params"]["to"]):
            yield content(str(number))
        yield finish("stop")


@store("blobs")
class Blobs:
    def __init__(self, setup: Any) -> None:
        self.root = setup.config["root"]
        self.thread = threading.get_ident()

    def blob_put(self, call: Any) -> Any:
        assert threading.get_ident() == self.thread
        return {"digest": b"".join(call.chunks()).decode()}

    def blob_get(self, call: Any, digest: str, offset: int, length: int) -> Iterator[bytes]:
        yield self.root.encode()
        yield digest.encode()


plugin = Plugin(tools=[double, ask, nan], models=[Counter], stores=[Blobs])


@pytest.fixture
def link() -> Iterator[Any]:
    services = {"memory.get": lambda what: f"remembered {what}"}
    with connect(plugin, config={"root": "/r"}, services=services) as made:
        yield made


def test_tools(link: Any) -> None:
    """Values, errors and logs as a host would see them."""
    assert link.tool("double", number=4) == 8
    with pytest.raises(ToolError) as caught:
        link.tool("double", number=-1)
    assert caught.value.code == "negative"
    assert link.logs[0]["fields"] == {"number": 4}


def test_values_are_checked(link: Any) -> None:
    """K26: an author finds out before a user does."""
    with pytest.raises(WireError) as caught:
        link.tool("nan")
    assert caught.value.code == "contract_violation"


def test_streams_and_their_cancel(link: Any) -> None:
    """STR-001, CAN-002."""
    args = {"messages": [], "params": {"to": 5000}}
    items = link.stream("counter", "generate", args)
    assert len(list(items)) == 5001
    assert items.result is None
    endless = {"messages": [], "params": {"to": 1 << 40}}
    items = link.stream("counter", "generate", endless)
    assert next(items)["text"] == "0"
    items.cancel()
    with pytest.raises(WireError, match="cancelled"):
        list(items)


def test_uploads_and_raw_streams(link: Any) -> None:
    """protocol, frame: RAW."""
    assert link.upload("blobs", "blob_put", [b"a", b"b" * 2_000_000])["digest"].endswith("b")
    args = {"digest": "d", "offset": 0, "length": 1}
    assert list(link.stream("blobs", "blob_get", args)) == [b"/r", b"d"]


def test_services_answer_callbacks(link: Any) -> None:
    """CAL-009: what the host would do."""
    assert link.tool("ask", what="me") == "remembered me"


def test_a_plugin_that_cannot_start_raises_its_own_error() -> None:
    """The author sees the exception itself, not a code."""
    with pytest.raises(KeyError, match="root"), connect(plugin):
        pass


def test_the_same_answers_as_in_a_process(launch: Any) -> None:
    """One worker, two ways to reach it."""
    sys.path.insert(0, str(SAMPLES))
    try:
        import sample
    finally:
        sys.path.remove(str(SAMPLES))
    worker = launch()
    with connect(sample.plugin) as link:
        for name, arguments in (("add", {"left": 1}), ("generated", {"count": 5})):
            there = worker.result(worker.tool(name, **arguments))
            assert link.call(name, "call", {"arguments": arguments}) == there
