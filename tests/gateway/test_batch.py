"""Fragments assemble to whole calls, or the batch is malformed and nothing runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.contracts.messages import ToolCall
from purra.contracts.model import ToolCallFragment as Fragment
from purra.errors import PurraError
from purra.gateway.batch import ASSEMBLED_CALLS, CALL_LABEL_CHARS, BatchAssembly
from purra.limits import STREAM_CHARS


def assemble(*fragments: Fragment) -> tuple[ToolCall, ...]:
    assembly = BatchAssembly()
    for fragment in fragments:
        assembly.add(fragment)
    return assembly.finish()


def malformed(*fragments: Fragment) -> str:
    with pytest.raises(PurraError) as caught:
        assemble(*fragments)
    assert caught.value.code == "malformed_tool_batch"
    return caught.value.message


def test_nothing_is_an_empty_batch() -> None:
    assert assemble() == ()
    assert BatchAssembly().empty


def test_interleaved_fragments_assemble_per_index() -> None:
    """K10: indexes 0, 1, 0, 1; nothing of one call leaks into the other."""
    calls = assemble(
        Fragment(0, "a", "fs.read", '{"pa'),
        Fragment(1, "b", "fs.grep", '{"pat'),
        Fragment(0, arguments='th":1}'),
        Fragment(1, arguments='tern":2}'),
    )
    assert calls == (
        ToolCall("a", "fs.read", '{"path":1}'),
        ToolCall("b", "fs.grep", '{"pattern":2}'),
    )


def test_id_and_name_may_come_late_or_again() -> None:
    """Some providers repeat both in every chunk; a repetition is not a conflict."""
    calls = assemble(
        Fragment(0, arguments="{"), Fragment(0, id="a"), Fragment(0, "a", "t", "}"), Fragment(0)
    )
    assert calls == (ToolCall("a", "t", "{}"),)


@pytest.mark.parametrize(
    ("fragments", "fault"),
    [
        ([Fragment(0, "a", "t"), Fragment(0, id="b")], "call 0 has two ids"),
        ([Fragment(0, "a", "t"), Fragment(0, name="u")], "call 0 has two names"),
        ([Fragment(0, "", "t")], "call 0 has no id"),
        ([Fragment(0, "a", "")], "call 0 has no name"),
        ([Fragment(0, "a", "t"), Fragment(1, "a", "t")], "calls 0 and 1 have the same id"),
        ([Fragment(0, "a", "t"), Fragment(2, "b", "t")], "the numbers of the calls have gaps"),
        ([Fragment(1, "a", "t")], "the numbers of the calls have gaps"),
        ([Fragment(-1, "a", "t")], "a call number is not a whole number of at least 0"),
        ([Fragment(True, "a", "t")], "a call number is not a whole number of at least 0"),
        (
            [Fragment(0, "a" * (CALL_LABEL_CHARS + 1), "t")],
            f"one of the ids is longer than {CALL_LABEL_CHARS} characters",
        ),
    ],
)
def test_malformed_batches(fragments: list[Fragment], fault: str) -> None:
    """OBS-07, MOD-09, K07: conflicting, missing or shared ids and names, and gaps."""
    assert malformed(*fragments) == fault


def test_a_fault_is_known_at_once_and_stays_the_first() -> None:
    """A caller may stop reading early; later fragments do not heal or replace the fault."""
    assembly = BatchAssembly()
    assembly.add(Fragment(0, "a", "t"))
    assert assembly.fault == ""
    assembly.add(Fragment(0, "b"))
    assembly.add(Fragment(-1))
    assert assembly.fault == "call 0 has two ids"
    assert not assembly.empty


def test_argument_text_of_a_stream_is_bounded() -> None:
    """MOD-22: what is kept never passes the bound on a stream."""
    assembly = BatchAssembly()
    assembly.add(Fragment(0, "a", "t", "x" * STREAM_CHARS))
    with pytest.raises(PurraError) as caught:
        assembly.add(Fragment(0, arguments="x"))
    assert caught.value.code == "model_stream_limit_exceeded"


def test_the_number_of_calls_is_bounded() -> None:
    """MOD-22: a stream that opens calls without end is cut."""
    assembly = BatchAssembly()
    for index in range(ASSEMBLED_CALLS):
        assembly.add(Fragment(index, str(index), "t"))
    with pytest.raises(PurraError) as caught:
        assembly.add(Fragment(ASSEMBLED_CALLS, "more", "t"))
    assert caught.value.code == "model_stream_limit_exceeded"
    assert len(assembly.finish()) == ASSEMBLED_CALLS


@st.composite
def cut_batches(draw: Any) -> tuple[tuple[ToolCall, ...], list[Fragment]]:
    """Whole calls, and the same calls cut to fragments and interleaved at random."""
    texts = draw(st.lists(st.text(max_size=12), min_size=1, max_size=4))
    calls = tuple(ToolCall(f"id{n}", f"tool{n}", text) for n, text in enumerate(texts))
    queues: list[list[Fragment]] = []
    for index, call in enumerate(calls):
        cut = draw(st.integers(0, len(call.arguments)))
        queues.append(
            [
                Fragment(index, call.id, call.name),
                Fragment(index, arguments=call.arguments[:cut]),
                Fragment(index, arguments=call.arguments[cut:]),
            ]
        )
    order = draw(st.permutations([n for n, queue in enumerate(queues) for _ in queue]))
    return calls, [queues[n].pop(0) for n in order]


@given(cut_batches())
def test_any_interleaving_gives_the_same_calls(
    batch: tuple[tuple[ToolCall, ...], list[Fragment]],
) -> None:
    """MOD-09, K10: only the order within a call matters."""
    calls, fragments = batch
    assert assemble(*fragments) == calls


labels = st.sampled_from(["", "a", "b"])


@given(st.lists(st.builds(Fragment, st.integers(-1, 3), labels, labels, labels), max_size=8))
def test_whatever_comes_out_is_distinct_and_whole(fragments: list[Fragment]) -> None:
    """MOD-09: a batch that finishes has dense ordinals, distinct ids, and names."""
    try:
        calls = assemble(*fragments)
    except PurraError as error:
        assert error.code == "malformed_tool_batch"
        return
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id and call.name for call in calls)
    assert len(calls) == len({fragment.index for fragment in fragments})
