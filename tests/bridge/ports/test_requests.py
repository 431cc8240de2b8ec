"""What ports ask of a plugin, and what they make of answers that no SDK would give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from purra.contracts.call import CallContext, Stop
from purra.contracts.context import ContextRequest
from purra.contracts.messages import Message
from purra.contracts.model import Content, Finish, ModelRequest
from purra.contracts.policy import PolicyRequest
from purra.contracts.store import (
    Append,
    Commit,
    Delete,
    Document,
    Drop,
    Page,
    Project,
    Put,
    Receipt,
    Scan,
    ScanPage,
    Seal,
    Touch,
)
from purra.contracts.tool import ToolResult, declare
from purra.errors import AdapterError, PurraError, StoreError
from purra_bridge.ports.context import HostedContext
from purra_bridge.ports.model import PROFILE_TIMEOUT_S, HostedModel
from purra_bridge.ports.policy import HostedPolicy
from purra_bridge.ports.store import RAW_WINDOW_BYTES, HostedStore
from purra_bridge.ports.tool import HostedTools
from purra_bridge.wire.errors import WireError
from tests.bridge.ports.scripted import ScriptedChannel

pytestmark = pytest.mark.anyio

STOP = Stop()
CALL = CallContext(timeout_s=7.0, idempotency_key="k1", trace={"run": "r1"}, stop=STOP)
ASK = ModelRequest((Message("user", "hi"),), params={"temperature": 0})
OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}


async def chunks(channel: ScriptedChannel) -> list[Any]:
    return [chunk async for chunk in HostedModel(channel, "m").generate(ASK, CALL)]


async def test_generate_carries_time_key_trace_and_stop() -> None:
    channel = ScriptedChannel(items=({"t": "finish", "reason": "stop"},))
    assert await chunks(channel) == [Finish("stop")]
    [request] = channel.requests
    assert (request.adapter, request.method, request.timeout_s) == ("m", "generate", 7.0)
    assert (request.key, request.trace, request.stop) == ("k1", {"run": "r1"}, STOP)
    assert request.exclusive is False
    assert request.args == {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [],
        "max_tokens": 1024,
        "params": {"temperature": 0},
    }


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ("text", "chunk.t: "),
        ({}, "chunk.t: "),
        ({"t": "audio"}, "chunk.t: "),
        ({"t": ["content"]}, "chunk.t: "),
        ({"t": "content"}, "chunk.text: missing"),
        ({"t": "content", "text": b"a"}, "chunk.text: text expected, found bytes"),
        ({"t": "call"}, "chunk.index: missing"),
        ({"t": "call", "index": True}, "chunk.index: a whole number expected, found bool"),
        ({"t": "finish", "reason": None}, "chunk.reason: not one of"),
        ({"t": "usage", "input_tokens": 1.0}, "chunk.input_tokens: a whole number expected"),
    ],
)
async def test_items_that_are_no_chunks(item: Any, path: str) -> None:
    """Invariant 6; the stream is cancelled where it broke."""
    channel = ScriptedChannel(items=(item,))
    with pytest.raises(AdapterError) as caught:
        await chunks(channel)
    assert caught.value.code == "contract_violation"
    assert caught.value.message.startswith(path)
    assert channel.closed == 1


async def test_absent_and_unknown_fields_of_a_chunk() -> None:
    """Absent ones take the contract's defaults; a newer plugin's extra ones are ignored."""
    items = ({"t": "content", "text": "a", "signature": "x"}, {"t": "finish", "reason": "stop"})
    assert await chunks(ScriptedChannel(items=items)) == [Content("a"), Finish("stop")]


@pytest.mark.parametrize("code", ["crashed", "closed", "unresponsive", "protocol_violation"])
async def test_a_dying_plugin_is_an_interrupted_stream(code: str) -> None:
    """MOD-28: whatever ended it; the cause is kept."""
    channel = ScriptedChannel(WireError(code, "exit 1"), ({"t": "content", "text": "a"},))
    with pytest.raises(AdapterError) as caught:
        await chunks(channel)
    error = caught.value
    assert (error.code, error.origin) == ("upstream_stream_interrupted", "instance")
    assert (error.detail["cause"], error.message) == (code, "exit 1")


@pytest.mark.parametrize("code", ["rate_limited", "upstream", "deadline_exceeded", "overloaded"])
async def test_other_failures_of_a_stream_keep_their_code(code: str) -> None:
    with pytest.raises(AdapterError) as caught:
        await chunks(ScriptedChannel(WireError(code)))
    assert caught.value.code == code


async def test_a_profile_has_its_own_time_limit() -> None:
    channel = ScriptedChannel({"window": 10, "output_limit": 0})
    assert (await HostedModel(channel, "m").profile()).window == 10
    assert channel.requests[0].timeout_s == PROFILE_TIMEOUT_S


@pytest.mark.parametrize(
    ("effect", "fields", "exclusive"),
    [
        ("pure", {}, False),
        ("world_read", {}, False),
        ("external_read", {}, False),
        ("world_write", {}, True),
        ("external_write", {}, True),
        ("irreversible", {}, True),
        ("world_write", {"shared": True}, False),
    ],
)
async def test_writes_run_alone_unless_shared(
    effect: Any, fields: dict[str, Any], exclusive: bool
) -> None:
    """Tables, effect states; protocol, messages, 2."""
    channel = ScriptedChannel({"value": None})
    tools = HostedTools(channel, [declare("t", "", OBJECT, effect, **fields)])
    assert await tools.call("t", {"a": 1}, CALL) == ToolResult(None)
    [request] = channel.requests
    assert request.exclusive is exclusive
    assert (request.adapter, request.method) == ("t", "call")
    assert request.args == {"arguments": {"a": 1}}
    assert (request.timeout_s, request.key, request.stop) == (7.0, "k1", STOP)


@pytest.mark.parametrize(
    ("answer", "code", "path"),
    [
        (None, "contract_violation", "result: ToolResult expected, found NoneType"),
        ({}, "contract_violation", "result.value: missing"),
        ({"value": 1, "is_error": 1}, "contract_violation", "result.is_error: "),
        ({"value": 1, "step": "stop"}, "contract_violation", "result.step: "),
        ({"value": 1, "events": {}}, "contract_violation", "result.events: "),
        ({"value": 1, "events": [b"x"]}, "contract_violation", "result.events[0]: "),
        ({"value": 1, "display": []}, "contract_violation", "result.display: "),
        ({"value": {"a": [b"x"]}}, "tool_result_encoding", "result.value['a'][0]: "),
    ],
)
async def test_results_that_are_none(answer: Any, code: str, path: str) -> None:
    """TOL-005; bytes are strict on the wire and not in the kernel (invariant 8)."""
    tools = HostedTools(ScriptedChannel(answer), [declare("t", "", OBJECT, "pure")])
    with pytest.raises(AdapterError) as caught:
        await tools.call("t", {}, CALL)
    assert (caught.value.code, caught.value.executed) == (code, "yes")
    assert caught.value.message.startswith(path)


async def test_progress_is_frozen_and_bytes_are_dropped() -> None:
    """Progress may be dropped; it never fails the call that reports it."""
    seen: list[Any] = []
    channel = ScriptedChannel({"value": 1}, ({"n": [1]}, {"n": b"x"}, {"n": 2}))
    tools = HostedTools(channel, [declare("t", "", OBJECT, "pure")])
    await tools.call("t", {}, CallContext(progress=seen.append))
    assert seen == [{"n": (1,)}, {"n": 2}]


@pytest.mark.parametrize("code", ["crashed", "deadline_exceeded", "overloaded", "internal"])
async def test_a_failed_call_keeps_code_and_executed(code: str) -> None:
    """CAL-010: what became of the effect is for the gateway to derive."""
    error = WireError(code, executed="maybe")
    tools = HostedTools(ScriptedChannel(error), [declare("t", "", OBJECT, "world_write")])
    with pytest.raises(AdapterError) as caught:
        await tools.call("t", {}, CALL)
    assert (caught.value.code, caught.value.executed) == (code, "maybe")
    assert caught.value.__cause__ is error


async def test_context_and_policy_requests() -> None:
    channel = ScriptedChannel({"minimum": 1, "desired": 2})
    ask = ContextRequest("r1", "", "what?")
    assert (await HostedContext(channel, "c").demand(ask, CALL)).desired == 2
    assert channel.requests[0].args == {"run": "r1", "session": "", "prompt": "what?"}
    channel = ScriptedChannel({"blocks": []})
    await HostedContext(channel, "c").provide(ask, 50, CALL)
    assert channel.requests[0].args["budget"] == 50
    channel = ScriptedChannel({"messages": []})
    assert await HostedContext(channel, "c").compress([Message("user", "a")], 9, CALL) == ()
    assert channel.requests[0].args == {
        "messages": [{"role": "user", "content": "a"}],
        "budget": 9,
    }
    channel = ScriptedChannel({"verdict": "allow"})
    asked = PolicyRequest("r", "s", "a", "t", "pure", "p", {"x": 1})
    await HostedPolicy(channel, "p").decide(asked, CALL)
    assert channel.requests[0].args == {
        "run": "r",
        "session": "s",
        "agent": "a",
        "tool": "t",
        "effect": "pure",
        "permission": "p",
        "arguments": {"x": 1},
    }
    assert [channel.requests[0].timeout_s, channel.requests[0].stop] == [7.0, STOP]


COMMIT = Commit(
    (
        Append("s", 2, ({"a": 1},)),
        Put("k", [1], 0, 500),
        Touch("l", 3, 100),
        Delete("d", 4),
        Seal("s"),
        Drop("o"),
        Project("p", None),
    ),
    ("s", "seq:2"),
    {"l": 3},
    durable=True,
)
RECEIPT = {"heads": {"s": 3}, "revisions": {"k": 1, "l": 3, "d": 0}}


async def test_a_commit_is_spelled_out_once() -> None:
    """Contract `purra.store/1` on the wire."""
    channel = ScriptedChannel(RECEIPT)
    receipt = await HostedStore(channel, "j").commit(COMMIT)
    assert receipt == Receipt({"s": 3}, {"k": 1, "l": 3, "d": 0})
    [request] = channel.requests
    assert (request.adapter, request.method, request.exclusive) == ("j", "commit", False)
    assert request.args == {
        "ops": [
            {"op": "append", "stream": "s", "expect": 2, "records": [{"a": 1}]},
            {"op": "put", "key": "k", "value": [1], "expect": 0, "ttl_ms": 500},
            {"op": "touch", "key": "l", "expect": 3, "ttl_ms": 100},
            {"op": "delete", "key": "d", "expect": 4},
            {"op": "seal", "stream": "s"},
            {"op": "drop", "stream": "o"},
            {"op": "project", "name": "p", "payload": None},
        ],
        "key": ("s", "seq:2"),
        "require": {"l": 3},
        "durable": True,
    }


async def test_reads_are_spelled_out_and_frozen() -> None:
    channel = ScriptedChannel({"records": [{"a": [1]}], "head": 5, "sealed": True})
    page = await HostedStore(channel, "j").read("s", 4, 10)
    assert page == Page(({"a": (1,)},), 5, True)
    assert channel.requests[0].args == {"stream": "s", "after": 4, "limit": 10}
    told = {"key": "k", "value": {"a": 1}, "revision": 2, "lapsed": True, "expires_ms": 9}
    channel = ScriptedChannel({"documents": [told, None]})
    assert await HostedStore(channel, "j").get(("k", "x")) == (
        Document("k", {"a": 1}, 2, True, 9),
        None,
    )
    assert channel.requests[0].args == {"keys": ["k", "x"]}
    channel = ScriptedChannel({"documents": [told], "more": True})
    scan = Scan("k", "", 5, reverse=True, lapsed_only=True)
    found = await HostedStore(channel, "j").scan(scan)
    assert found == ScanPage((Document("k", {"a": 1}, 2, True, 9),), True)
    assert channel.requests[0].args == {
        "prefix": "k",
        "after": "",
        "limit": 5,
        "reverse": True,
        "lapsed_only": True,
    }
    assert await HostedStore(ScriptedChannel({"now_ms": 7}), "j").now() == 7


async def test_watch_hands_on_names_and_closes() -> None:
    channel = ScriptedChannel(items=("", "run/1", "run/2"))
    names = HostedStore(channel, "j").watch("run/")
    assert [await anext(names), await anext(names)] == ["", "run/1"]
    await names.aclose()
    assert channel.closed == 1
    assert channel.requests[0].args == {"prefix": "run/"}
    with pytest.raises(StoreError):
        lost = {"store": {"code": "storage", "errno": 28}}
        broken = ScriptedChannel(WireError("failed_precondition", detail=lost))
        await anext(HostedStore(broken, "j").watch(""))


async def test_blobs_go_and_come_as_raw_bytes() -> None:
    """STO-026: bounded by what was asked for."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    channel = ScriptedChannel({"digest": "sha256:x"})
    assert await HostedStore(channel, "j").blob_put(pieces()) == "sha256:x"
    assert channel.uploaded == b"abc"
    channel = ScriptedChannel(items=(b"ab", bytearray(b"c"), memoryview(b"d")))
    assert await HostedStore(channel, "j").blob_get("sha256:x", 1, 4) == b"abcd"
    assert channel.requests[0].args == {"digest": "sha256:x", "offset": 1, "length": 4}
    assert channel.requests[0].window_bytes == RAW_WINDOW_BYTES
    for items in ((b"ab", b"c"), ("ab",)):
        channel = ScriptedChannel(items=items)
        with pytest.raises(AdapterError, match="blob: ") as caught:
            await HostedStore(channel, "j").blob_get("sha256:x", 0, 2)
        assert caught.value.code == "contract_violation"
        assert channel.closed == 1


@pytest.mark.parametrize("code", ["invalid_argument", "contract_violation"])
async def test_a_refused_call_is_looked_at_to_name_its_fault(code: str) -> None:
    """Values are trusted on the way out; only a refusal is explained here."""
    refusal = WireError(code, "unreadable", executed="no")
    bad = Commit((Append("", 0, (1,)),), ("s", "k"))
    with pytest.raises(PurraError) as caught:
        await HostedStore(ScriptedChannel(refusal), "j").commit(bad)
    assert (caught.value.code, caught.value.where) == ("invalid_argument", "ops[0].stream")
    with pytest.raises(PurraError) as caught:
        await HostedStore(ScriptedChannel(refusal), "j").read("s", -1, 1)
    assert (caught.value.code, caught.value.where) == ("invalid_argument", "after")
    with pytest.raises(PurraError) as caught:
        await HostedStore(ScriptedChannel(refusal), "j").commit(COMMIT)
    assert caught.value.code == code


@pytest.mark.parametrize("value", [float("nan"), b"bytes", {1: 2}, "\ud800", 2**63])
async def test_values_outside_the_model_are_never_sent(value: Any) -> None:
    """Invariant 8: the wire would carry bytes, so the port keeps them in."""
    for op in (Append("s", 0, ({"x": [value]},)), Put("k", value, 0), Project("p", [value])):
        channel = ScriptedChannel(RECEIPT)
        with pytest.raises(PurraError) as caught:
            await HostedStore(channel, "j").commit(Commit((op,), ("s", "k")))
        assert caught.value.code == "invalid_value"
        assert channel.requests == []


async def test_answers_of_the_wrong_wrapping() -> None:
    answers: tuple[Any, ...] = (None, [], {}, {"digest": 5})
    for answer in answers:
        store = HostedStore(ScriptedChannel(answer), "j")
        for asked in (store.get(["k"]), store.now(), store.scan(Scan("")), store.commit(COMMIT)):
            with pytest.raises(AdapterError) as caught:
                await asked
            assert caught.value.code == "contract_violation"
