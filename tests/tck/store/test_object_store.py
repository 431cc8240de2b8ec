"""A store that an author hands over as a function: opened in processes that the kit may kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.contracts.store import Append, Commit, Delete, Drop, Project, Put, Seal, Touch
from purra.errors import AdapterError, PurraError, StoreError
from purra_tck import suites
from purra_tck.rules import of_suite
from purra_tck.runner import Plan, Report, SubjectInfo, run
from purra_tck.subjects import store_lines as lines
from purra_tck.subjects.store import subject_of
from purra_tck.subjects.store_object import ObjectStorage

pytestmark = pytest.mark.trial

OPENED = "tests.tck.store.opened"


def _judged(function: str, folder: Path, *only: str) -> Report:
    storage = ObjectStorage(f"{OPENED}:{function}", folder)
    plan = Plan(
        suite="store",
        subject=SubjectInfo(function, kind="store"),
        rules=of_suite("store"),
        checks=suites.of("store"),
        open=lambda: subject_of(storage),
        only=only,
        twice=False,
    )
    return anyio.run(run, plan)


def test_a_good_one_passes(tmp_path: Path) -> None:
    """STO-002, 005, 015, 020: killed, paused, watched from another process."""
    report = _judged("on_file", tmp_path, "STO-002", "STO-005", "STO-015", "STO-020")
    verdicts = {rule: (o.status, o.expected, o.observed) for rule, o in report.outcomes.items()}
    assert verdicts == dict.fromkeys(verdicts, ("pass", "", ""))
    assert len(verdicts) == 4


def test_one_that_forgets_is_red(tmp_path: Path) -> None:
    """STO-002, 012: what one process has committed is nowhere else."""
    report = _judged("in_memory", tmp_path, "STO-002", "STO-012")
    assert {o.status for o in report.outcomes.values()} == {"fail"}
    assert "SIGKILL of the writer" in report.outcomes["STO-002"].expected


def test_one_that_does_not_open_tells_why(tmp_path: Path) -> None:
    outcome = _judged("not_at_all", tmp_path, "STO-005").outcomes["STO-005"]
    assert (outcome.status, outcome.observed) == ("fail", "OSError: no disk")


def test_a_child_that_is_killed_fails_its_calls(tmp_path: Path) -> None:
    """Also a call that is under way, and every one after it."""

    async def main() -> None:
        async with ObjectStorage(f"{OPENED}:on_file", tmp_path).open() as opening:
            assert await opening.store.now() > 0
            opening.pause()
            async with anyio.create_task_group() as tasks:

                async def late() -> None:
                    with pytest.raises(AdapterError, match="has ended"):
                        await opening.store.now()

                tasks.start_soon(late)
                await anyio.lowlevel.checkpoint()
                await opening.kill()
            assert not opening.alive()
            with pytest.raises(AdapterError, match="has ended"):
                await opening.store.get(["x"])

    anyio.run(main)


OPS: list[Any] = [
    Append("s", -1, ({"a": [1, 1.0, True, None, "é\ud800"]},)),
    Put("k", 2**63, 0, 5),
    Put("k", float("inf"), 0),
    Touch("k", 1, 5),
    Delete("k", 1),
    Seal("s"),
    Drop("s"),
    Project("p", {"x": "$strange"}),
]


def test_a_commit_arrives_as_it_was_sent() -> None:
    for commit in (Commit(tuple(OPS), ("s", "k"), {"k": 3}, True), Commit(())):
        sent = json.loads(lines.line(lines.commit_value(commit)))
        assert lines.commit_of(lines.unpacked(sent)) == commit


def test_what_no_store_may_take_arrives_too() -> None:
    """So that the store refuses it, and not the kit."""
    outside = {"value": [b"x", {1, 2}, {1: 2}, object(), {"k": b"y"}]}
    found = lines.unpacked(json.loads(lines.line(outside)))["value"]
    kinds = [type(item).__name__ for item in found]
    assert kinds == ["bytes", "set", "dict", "object", "dict"]
    assert list(found[2]) == [1]
    assert found[4] == {"k": b"bytes"}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_values_arrive_as_they_were_sent(value: Any) -> None:
    found = lines.unpacked(json.loads(lines.line({"value": value})))["value"]
    assert repr(found) == repr(value)


def test_errors_arrive_as_they_were_raised() -> None:
    for error in (
        StoreError("conflict", "m", detail={"key": "k", "revision": 1}),
        PurraError("invalid_value", "m"),
        AdapterError("crashed", "m"),
    ):
        found = lines.error_of(json.loads(json.dumps(lines.error_value(error))))
        assert type(found) is type(error)
        assert (found.code, found.message) == (error.code, error.message)
        assert dict(found.detail) == dict(error.detail)
    assert lines.error_of(lines.error_value(ValueError("x"))).code == "internal"
