"""Stores that public kits call conformant, and what this one says of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from purra.stores.memory import MemoryStore
from purra_tck import suites
from purra_tck.rules import of_suite
from purra_tck.runner import Plan, Report, SubjectInfo, run
from purra_tck.saboteurs.store_memory import (
    IgnoresCursor,
    NeverExpiresAnyoneReleases,
    UnlockedKeys,
)
from purra_tck.subjects.store import MemoryStorage, StoreSubject, alone

Opened = Callable[[], AbstractAsyncContextManager[StoreSubject]]


def _judged(opened: Opened, *only: str) -> Report:
    plan = Plan(
        suite="store",
        subject=SubjectInfo("broken", kind="store"),
        rules=of_suite("store"),
        checks=suites.of("store"),
        open=opened,
        only=only,
    )
    return anyio.run(run, plan)


@pytest.mark.parametrize(
    ("broken", "red"),
    [
        (NeverExpiresAnyoneReleases, {"STO-013", "STO-014"}),
        (IgnoresCursor, {"STO-005", "STO-007"}),
        (UnlockedKeys, {"STO-008"}),
    ],
)
def test_it_is_red(broken: type[MemoryStore], red: set[str]) -> None:
    """TCK, proof worth publishing: a lease store that never expires and lets anybody release, a
    journal that ignores its cursor, an unlocked idempotency store under a race.
    """
    report = _judged(alone(lambda: MemoryStorage(broken)), *sorted(red))
    assert {rule: outcome.status for rule, outcome in report.outcomes.items()} == dict.fromkeys(
        red, "fail"
    )
    assert not report.conclusion.conformant


def test_a_store_that_does_not_open_fails_every_rule() -> None:
    """TCK, universal: whatever is not there is the subject's fault, and never passes."""
    from purra_tck.verdict import SubjectFailed

    @asynccontextmanager
    async def closed() -> AsyncGenerator[Any, None]:
        raise SubjectFailed("a store that starts", "it does not")
        yield

    report = _judged(closed)
    assert {outcome.status for outcome in report.outcomes.values()} == {"fail", "warn"}
