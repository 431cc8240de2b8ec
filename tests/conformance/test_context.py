"""The context contract (spec, chapters 16 and 17), on every way to reach a provider."""

from __future__ import annotations

import pytest

from purra.contracts.call import CallContext
from purra.contracts.context import ContextBlock, ContextBundle, ContextClaim, ContextRequest
from purra.contracts.messages import Message, ToolCall
from purra.errors import AdapterError
from tests.conformance import puppets
from tests.conformance.subjects import SUBJECTS, Subject

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("subject", SUBJECTS.values(), ids=list(SUBJECTS)),
]

ASK = ContextRequest("r1", "s1", "what?")


async def provide(subject: Subject, name: str, budget: int = 100) -> ContextBundle:
    async with subject.context(name) as context:
        return await context.provide(ASK, budget, CallContext())


async def test_blocks_keep_name_content_source_digest_and_marker(subject: Subject) -> None:
    """CTX-05, CTX-004: in order, untrusted unless it says otherwise."""
    assert await provide(subject, "memory") == ContextBundle(
        (
            ContextBlock(**puppets.block("one", "Ähm")),
            ContextBlock(**puppets.block("two", "", untrusted=False)),
        ),
        "2 of 2",
    )


async def test_no_block_is_an_answer(subject: Subject) -> None:
    """CTX-002: budget 0, or nothing to say, is no error."""
    assert await provide(subject, "nothing") == ContextBundle()
    assert await provide(subject, "memory", budget=0) == ContextBundle()


async def test_the_request_arrives_whole(subject: Subject) -> None:
    """CTX-007: run, session, prompt and budget."""
    bundle = await provide(subject, "compressing", budget=7)
    assert bundle.blocks[0].content == "r1|s1|what?|7"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("stale-digest", "bundle.blocks[1]: "),
        ("number-as-content", "bundle.blocks[0].content: "),
        ("flag-as-text", "bundle.blocks[0].untrusted: "),
        ("text-as-blocks", "bundle.blocks: "),
    ],
)
async def test_a_bundle_of_the_wrong_shape_is_refused_whole(
    subject: Subject, name: str, path: str
) -> None:
    """CTX-004, CTX-009: a stale digest or a wrong type is never a partial answer."""
    with pytest.raises(AdapterError) as caught:
        await provide(subject, name)
    assert (caught.value.code, caught.value.executed) == ("contract_violation", "yes")
    assert caught.value.message.startswith(path)


async def test_a_claim_says_minimum_desired_and_priority(subject: Subject) -> None:
    """CTX-02."""
    async with subject.context("memory") as context:
        assert await context.demand(ASK, CallContext()) == ContextClaim(10, 20, -1)


@pytest.mark.parametrize("name", ["stale-digest", "flag-as-text"])
async def test_a_claim_that_is_none_is_refused(subject: Subject, name: str) -> None:
    """CTX-02: a minimum above what is desired; text for a number."""
    async with subject.context(name) as context:
        with pytest.raises(AdapterError, match="claim") as caught:
            await context.demand(ASK, CallContext())
    assert caught.value.code == "contract_violation"


async def test_an_exception_shows_only_its_type(subject: Subject) -> None:
    """CTX-009, invariant 4."""
    async with subject.context("compressing") as context:
        with pytest.raises(AdapterError) as caught:
            await context.demand(ASK, CallContext())
    assert (caught.value.code, caught.value.executed) == ("internal", "yes")
    assert puppets.SECRET not in f"{caught.value} {dict(caught.value.detail)}"


async def test_messages_survive_compression(subject: Subject) -> None:
    """CMP-003, CMP-004: roles, calls and ids intact."""
    last = Message("assistant", "é", (ToolCall("c1", "fs.read", "{}"),))
    async with subject.context("compressing") as context:
        kept = await context.compress((Message("user", "a"), last), 10, CallContext())
    assert kept == (last,)


async def test_an_invented_role_is_refused(subject: Subject) -> None:
    """CMP-004, CTX-003: no provider can promote text to a new role."""
    async with subject.context("inventing") as context:
        with pytest.raises(AdapterError, match=r"messages\[0\]\.role: ") as caught:
            await context.compress((Message("user", "a"),), 10, CallContext())
    assert caught.value.code == "contract_violation"
    assert "developer" not in caught.value.message


async def test_a_provider_need_not_compress(subject: Subject) -> None:
    """The contract: `unimplemented`, and nothing ran."""
    async with subject.context("memory") as context:
        with pytest.raises(AdapterError) as caught:
            await context.compress((), 10, CallContext())
    assert (caught.value.code, caught.value.executed) == ("unimplemented", "no")
