"""The policy contract, on every way to reach a policy: raising and nonsense are errors (CAP-12)."""

from __future__ import annotations

from typing import Any

import pytest

from purra.contracts.call import CallContext
from purra.contracts.policy import PolicyDecision, PolicyRequest
from purra.errors import AdapterError
from purra.values import freeze
from tests.conformance import puppets
from tests.conformance.subjects import SUBJECTS, Subject

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("subject", SUBJECTS.values(), ids=list(SUBJECTS)),
]


async def decide(subject: Subject, name: str, **arguments: Any) -> PolicyDecision:
    request = PolicyRequest(
        "r1", "s1", "docs", "fs.read", "world_read", "fs.read", freeze(arguments)
    )
    async with subject.policy(name) as policy:
        return await policy.decide(request, CallContext())


async def test_a_verdict_comes_with_its_reason(subject: Subject) -> None:
    """Design, contracts: allow, deny, deny and tell, ask."""
    assert await decide(subject, "allows") == PolicyDecision("allow")
    assert await decide(subject, "denies") == PolicyDecision("deny", "no")
    assert await decide(subject, "asks") == PolicyDecision("ask", "a person must look")


async def test_the_request_arrives_whole(subject: Subject) -> None:
    """A policy decides on who asks, for which tool, with which arguments."""
    told = "r1/s1/docs/fs.read/fs.read"
    assert await decide(subject, "reads-arguments", path="a") == PolicyDecision("allow", told)
    assert await decide(subject, "reads-arguments", path="secret") == PolicyDecision("deny", told)


@pytest.mark.parametrize("name", ["nonsense", "bare-text", "true"])
async def test_nonsense_is_never_a_verdict(subject: Subject, name: str) -> None:
    """CAP-006: an unknown word, a bare text, a truth value: contract violation, so denied."""
    with pytest.raises(AdapterError, match="decision") as caught:
        await decide(subject, name)
    assert caught.value.code == "contract_violation"
    assert "perhaps" not in caught.value.message


async def test_an_exception_is_no_verdict(subject: Subject) -> None:
    """CAP-006."""
    with pytest.raises(AdapterError) as caught:
        await decide(subject, "raising")
    assert caught.value.code == "internal"
    assert puppets.SECRET not in f"{caught.value} {dict(caught.value.detail)}"
