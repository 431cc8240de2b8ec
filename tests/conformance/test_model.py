"""The model contract (spec, chapter 14), on every way to reach a model."""

from __future__ import annotations

import json

import anyio
import pytest

from purra.contracts.call import CallContext
from purra.contracts.messages import Message, ToolCall
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    Model,
    ModelProfile,
    ModelRequest,
    Reasoning,
    ToolCallFragment,
    ToolOffer,
    Usage,
)
from purra.errors import AdapterError
from purra.values import freeze
from tests.conformance import puppets
from tests.conformance.subjects import SUBJECTS, Subject

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("subject", SUBJECTS.values(), ids=list(SUBJECTS)),
]

ASK = ModelRequest((Message("user", "hello"),))


async def stream(model: Model, into: list[Chunk], request: ModelRequest = ASK) -> None:
    async for chunk in model.generate(request, CallContext()):
        into.append(chunk)


async def collect(subject: Subject, name: str, request: ModelRequest = ASK) -> list[Chunk]:
    chunks: list[Chunk] = []
    async with subject.model(name) as model:
        await stream(model, chunks, request)
    return chunks


async def refused(subject: Subject, name: str) -> tuple[AdapterError, list[Chunk]]:
    """The error that ends the stream, and what came before it."""
    chunks: list[Chunk] = []
    async with subject.model(name) as model:
        with pytest.raises(AdapterError) as caught:
            await stream(model, chunks)
    return caught.value, chunks


async def test_chunks_arrive_as_they_were_made(subject: Subject) -> None:
    """MOD-002, MOD-008, K16, K17: text byte for byte, usage and native reason kept."""
    assert await collect(subject, "plain") == [
        Reasoning("thinking"),
        Content("Hello, "),
        Content("wörld \U0001f43e\u2028\u0085"),
        Usage(3, 2),
        Finish("stop", "end_turn"),
    ]


async def test_usage_may_trail_the_finish_and_unknown_stays_unknown(subject: Subject) -> None:
    """MOD-08, MOD-13: a usage trailer is allowed; what was not said is None, zero is zero."""
    assert await collect(subject, "trailer") == [Content("a"), Finish("stop"), Usage(None, 0)]


async def test_fragments_keep_index_id_and_order(subject: Subject) -> None:
    """MOD-005, K10: fragments of interleaved calls are handed on as they are."""
    assert await collect(subject, "calls") == [
        ToolCallFragment(0, "a", "fs.read", '{"pa'),
        ToolCallFragment(1, "b", "fs.list", ""),
        ToolCallFragment(0, "", "", 'th":"x"}'),
        ToolCallFragment(1, "", "", "{}"),
        Finish("tool_calls"),
    ]


async def test_an_unknown_native_reason_is_other(subject: Subject) -> None:
    """MOD-03, K14: `other` with the native word, never `stop`."""
    assert await collect(subject, "unknown-finish") == [
        Content("a"),
        Finish("other", "MALFORMED_X"),
    ]


async def test_a_finish_alone_is_a_whole_stream(subject: Subject) -> None:
    """STR-006: that an empty answer is of no use is for the kernel to say."""
    assert await collect(subject, "empty") == [Finish("stop")]


@pytest.mark.parametrize("name", ["no-finish", "nothing"])
async def test_a_stream_without_a_finish_was_interrupted(subject: Subject, name: str) -> None:
    """MOD-07, MOD-013: after its last chunk, never as a normal end."""
    error, chunks = await refused(subject, name)
    assert (error.code, error.executed) == ("upstream_stream_interrupted", "yes")
    assert len(chunks) == len(puppets.SCRIPTS[name])


@pytest.mark.parametrize(
    ("name", "before"),
    [("two-finishes", 2), ("content-after", 2), ("call-after", 1), ("reasoning-after", 1)],
)
async def test_nothing_but_usage_may_follow_the_finish(
    subject: Subject, name: str, before: int
) -> None:
    """MOD-08, MOD-003, K11, K13: the stream fails at the chunk that came too late."""
    error, chunks = await refused(subject, name)
    assert (error.code, error.origin, error.executed) == ("contract_violation", "plugin", "yes")
    assert len(chunks) == before


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("number-as-text", "chunk.text"),
        ("invented-reason", "chunk.reason"),
        ("flag-as-tokens", "chunk.input_tokens"),
        ("negative-tokens", "chunk.input_tokens"),
        ("huge-index", "chunk.index"),
    ],
)
async def test_a_wrong_shape_is_named_by_its_path(subject: Subject, name: str, path: str) -> None:
    """Invariant 6: nothing is coerced, and the value is not echoed."""
    error, _ = await refused(subject, name)
    assert error.code == "contract_violation"
    assert error.message.startswith(f"{path}: ")
    assert "MALFORMED_X" not in error.message


async def test_an_exception_costs_its_call_and_shows_only_its_type(subject: Subject) -> None:
    """Invariant 4; MOD-016: no text of an exception leaves the adapter."""
    error, chunks = await refused(subject, "raises")
    assert (error.code, error.origin, error.executed) == ("internal", "plugin", "yes")
    assert error.detail["type"] == "RuntimeError"
    assert puppets.SECRET not in f"{error} {dict(error.detail)}"
    assert chunks == [Content("a")]


async def test_a_provider_code_and_its_wait_are_kept(subject: Subject) -> None:
    """MOD-24, MOD-009: `rate_limited` with the provider's own delay."""
    error, _ = await refused(subject, "rate-limited")
    assert (error.code, error.retry_after_ms) == ("rate_limited", 1500)


async def test_a_deadline_ends_a_silent_stream(subject: Subject) -> None:
    """MOD-012: the caller's time is kept although the model says nothing."""
    chunks: list[Chunk] = []
    with anyio.fail_after(10):
        async with subject.model("hangs") as model:
            await model.profile()  # it runs: starting a process would use the time up
            with pytest.raises(AdapterError) as caught:
                async for chunk in model.generate(ASK, CallContext(timeout_s=0.5)):
                    chunks.append(chunk)
    assert (caught.value.code, caught.value.origin) == ("deadline_exceeded", "caller")
    assert chunks == [Content("a")]


async def test_closing_the_stream_closes_the_model(subject: Subject) -> None:
    """MOD-011, STR-006: the generator in the adapter is closed, not left behind."""
    puppets.closed.clear()
    async with subject.model("endless") as model:
        chunks = model.generate(ASK, CallContext())
        assert await anext(chunks) == Content("x" * 1000)
        await chunks.aclose()  # type: ignore[attr-defined]
        if not subject.hosted:
            assert puppets.closed == ["endless"]
        # The same model still serves.
        again = model.generate(ASK, CallContext())
        assert await anext(again) == Content("x" * 1000)
        await again.aclose()  # type: ignore[attr-defined]


async def test_cancelling_the_reader_is_no_error_value(subject: Subject) -> None:
    """CAN-006: the task's own cancellation passes through as itself."""
    seen: list[Chunk] = []
    with anyio.fail_after(10):
        async with subject.model("hangs") as model:
            await model.profile()
            with anyio.move_on_after(0.5) as scope:
                await stream(model, seen)
            assert scope.cancelled_caught
            assert seen == [Content("a")]


async def test_a_slow_reader_gets_everything(subject: Subject) -> None:
    """STR-001: far more than a window, in order and complete."""
    count = 0
    async with subject.model("endless") as model:
        with pytest.raises(AdapterError) as caught:
            async for chunk in model.generate(ASK, CallContext()):
                assert chunk == Content("x" * 1000)
                count += 1
                if count % 5000 == 0:
                    await anyio.lowlevel.checkpoint()
    assert count == len(puppets.SCRIPTS["endless"])
    assert caught.value.code == "upstream_stream_interrupted"


async def test_the_request_arrives_whole(subject: Subject) -> None:
    """MOD-001, MOD-002: roles, order, calls, results, schemas, parameters; frozen values too."""
    schema = freeze({"type": "object", "properties": {"päth": {"type": "string"}}})
    request = ModelRequest(
        (
            Message("system", ""),
            Message("user", "grüße \U0001f43e"),
            Message("assistant", "", (ToolCall("c1", "fs.read", '{"päth": 1}'),)),
            Message("tool", "text", call_id="c1", name="fs.read"),
        ),
        (ToolOffer("fs.read", "Reads", schema),),
        77,
        freeze({"temperature": 0.5}),
    )
    chunks = await collect(subject, "mirror", request)
    assert isinstance(chunks[0], Content)
    assert json.loads(chunks[0].text) == {
        "messages": [
            {"role": "system", "content": ""},
            {"role": "user", "content": "grüße \U0001f43e"},
            {
                "role": "assistant",
                "content": "",
                "calls": [{"id": "c1", "name": "fs.read", "arguments": '{"päth": 1}'}],
            },
            {"role": "tool", "content": "text", "call_id": "c1", "name": "fs.read"},
        ],
        "tools": [
            {
                "name": "fs.read",
                "description": "Reads",
                "parameters": {"type": "object", "properties": {"päth": {"type": "string"}}},
            }
        ],
        "max_tokens": 77,
        "params": {"temperature": 0.5},
    }


async def test_many_streams_of_one_model_do_not_mix(subject: Subject) -> None:
    """MOD-015: 32 at once, each gets its own."""
    answers: dict[int, str] = {}
    async with subject.model("mirror") as model:

        async def ask(number: int) -> None:
            chunks: list[Chunk] = []
            await stream(model, chunks, ModelRequest((Message("user", f"nonce {number}"),)))
            assert isinstance(chunks[0], Content)
            answers[number] = json.loads(chunks[0].text)["messages"][0]["content"]

        async with anyio.create_task_group() as tasks:
            for number in range(32):
                tasks.start_soon(ask, number)
    assert answers == {number: f"nonce {number}" for number in range(32)}


async def test_the_profile_says_sizes_and_features(subject: Subject) -> None:
    """MOD-12, MOD-19: an output limit of 0 is "not known"; features are a set."""
    async with subject.model("plain") as model:
        assert await model.profile() == ModelProfile(8000, 1000, frozenset({"tools"}))
    async with subject.model("trailer") as model:
        assert await model.profile() == ModelProfile(8000, 0)


@pytest.mark.parametrize("name", ["empty", "nothing"])
async def test_a_profile_that_is_none_is_refused(subject: Subject, name: str) -> None:
    """A window of 0 or of text is no window."""
    async with subject.model(name) as model:
        with pytest.raises(AdapterError, match=r"profile\.window: ") as caught:
            await model.profile()
    assert caught.value.code == "contract_violation"
