"""Whatever is done to both: the engine does what the executable specification does (TST-04).

Drawn sequences of commits, alone and in batches, with the clock going on, the file reopened and
written through two openings. After each step both have given the same receipt or refusal, and at
the end both hold the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from purra.contracts.store import (
    ANY,
    Append,
    Commit,
    Delete,
    Drop,
    Op,
    Put,
    Receipt,
    Scan,
    Seal,
    Touch,
    op_to_value,
)
from purra.errors import StoreError
from purra.stores.memory import MemoryStore
from purra.values import thaw
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.plugins.sqlite.engine_channel import FakeClock

NAMES = ["a", "a/b", "é", "😀"]
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 1, 1.0, -0.0, "x", [], {"b": 1, "a": [True, 0.5]}, "é😀"]
)
MISSES = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])
"""How far an expectation is off what holds when the commit is made."""
TTLS_MS = st.sampled_from([0, 1, 5, 50])
NAME = st.sampled_from(NAMES)
RECORDS = st.lists(VALUES, min_size=1, max_size=3).map(tuple)

OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Append, NAME, st.one_of(st.just(ANY), MISSES), RECORDS),
    st.builds(Append, NAME, st.just(ANY), RECORDS),
    st.builds(Put, NAME, VALUES, MISSES, TTLS_MS),
    st.builds(Touch, NAME, MISSES, TTLS_MS),
    st.builds(Delete, NAME, MISSES),
    st.builds(Drop, NAME),
    st.builds(Seal, st.sampled_from([*NAMES, "b", "c", "d"])),
)
KEYS = st.tuples(NAME, st.sampled_from([f"{number}" for number in range(40)]))
COMMITS = st.builds(
    Commit,
    st.lists(OPS, max_size=3).map(tuple),
    KEYS,
    st.dictionaries(NAME, MISSES, max_size=1),
    st.sampled_from([False] * 7 + [True]),
)


def _now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


class Twins(RuleBasedStateMachine):
    """The specification and the engine, treated alike."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self.folder.name) / "store.db")
        self.memory = MemoryStore(self.clock)
        self.engine, self.other = self._open(), self._open()

    def _open(self) -> Engine:
        return Engine(self.path, clock_ms=self.clock)

    def teardown(self) -> None:
        self.engine.close()
        self.other.close()
        self.folder.cleanup()

    def _aimed(self, commit: Commit) -> Commit:
        """`commit` with its misses turned into numbers that hold, or just miss."""

        def revision(key: str, miss: int, least: int) -> int:
            (found,) = _now(self.memory.get([key]))
            return max(least, (found.revision if found else 0) + miss)

        ops: list[Op] = []
        for op in commit.ops:
            match op:
                case Append() if op.expect != ANY:
                    head = _now(self.memory.read(op.stream, 0, 1)).head
                    ops.append(replace(op, expect=max(0, head + op.expect)))
                case Put():
                    ops.append(replace(op, expect=revision(op.key, op.expect, 0)))
                case Touch() | Delete():
                    ops.append(replace(op, expect=revision(op.key, op.expect, 1)))
                case _:
                    ops.append(op)
        require = {key: revision(key, miss, 0) for key, miss in commit.require.items()}
        return replace(commit, ops=tuple(ops), require=require)

    def _specified(self, commit: Commit) -> Any:
        try:
            receipt: Receipt = _now(self.memory.commit(commit))
        except StoreError as error:
            return error.code, dict(error.detail)
        return {"heads": dict(receipt.heads), "revisions": dict(receipt.revisions)}

    @staticmethod
    def _request(commit: Commit) -> dict[str, Any]:
        return {
            "ops": [op_to_value(op) for op in commit.ops],
            "key": commit.key,
            "require": dict(commit.require),
            "durable": commit.durable,
        }

    @rule(commits=st.lists(COMMITS, min_size=1, max_size=5), through_other=st.booleans())
    def commit(self, commits: list[Commit], through_other: bool) -> None:
        engine = self.other if through_other else self.engine
        expected = []
        for index, commit in enumerate(commits):
            commits[index] = self._aimed(commit)
            expected.append(self._specified(commits[index]))
        outcomes = engine.commit_together([self._request(commit) for commit in commits])
        assert [_told(outcome) for outcome in outcomes] == expected

    @rule(commit=COMMITS, times=st.integers(1, 2))
    def commit_again(self, commit: Commit, times: int) -> None:
        """The same commit once more, as after a lost answer; perhaps with other ops."""
        commit = self._aimed(commit)
        for _ in range(times):
            expected = [self._specified(commit), self._specified(replace(commit, ops=()))]
            found = self.engine.commit_together(
                [self._request(commit), self._request(replace(commit, ops=()))]
            )
            assert [_told(outcome) for outcome in found] == expected

    @rule(ms=st.sampled_from([1, 4, 5, 50]))
    def time_passes(self, ms: int) -> None:
        self.clock.now_ms += ms

    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = self._open()

    @rule(after=st.integers(0, 8), limit=st.integers(1, 4), name=NAME)
    def read(self, after: int, limit: int, name: str) -> None:
        page = _now(self.memory.read(name, after, limit))
        assert self.engine.read(name, after, limit) == {
            "records": thaw(page.records),
            "head": page.head,
            "sealed": page.sealed,
        }

    @rule(
        scan=st.builds(
            Scan,
            st.sampled_from(["", "a", "a/", "é"]),
            st.sampled_from(["", *NAMES, "b"]),
            st.integers(1, 3),
            st.booleans(),
            st.booleans(),
        )
    )
    def scan(self, scan: Scan) -> None:
        page = _now(self.memory.scan(scan))
        arguments = {name: getattr(scan, name) for name in Scan.__slots__}
        assert self.engine.scan(arguments) == {
            "documents": [_document(document) for document in page.documents],
            "more": page.more,
        }

    @invariant()
    def documents_are_the_same(self) -> None:
        found = _now(self.memory.get(NAMES))
        assert self.engine.get(NAMES)["documents"] == [_document(document) for document in found]


def _told(outcome: Any) -> Any:
    return (outcome.code, outcome.detail) if isinstance(outcome, EngineError) else outcome


def _document(document: Any) -> dict[str, Any] | None:
    if document is None:
        return None
    return {
        "key": document.key,
        "value": thaw(document.value),
        "revision": document.revision,
        "lapsed": document.lapsed,
        "expires_ms": document.expires_ms,
    }


Twins.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTwins = Twins.TestCase
