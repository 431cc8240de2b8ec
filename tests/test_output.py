"""`purra.Output`: the answer of a run as a typed value (MW-01)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from annotated_types import Ge

import purra
from tests.kernel.parts import ScriptModel, Step, ask, say


class Bill(TypedDict):
    """What is to be paid."""

    total: Annotated[int, "In cents", Ge(0)]
    currency: Literal["EUR", "USD"]
    note: NotRequired[str]


class Odd(TypedDict):
    when: complex


class Unknown(TypedDict):
    when: Nowhere  # type: ignore[name-defined]  # noqa: F821


GOOD = {"total": 350, "currency": "EUR"}


async def result(*steps: Step) -> tuple[purra.Result, ScriptModel]:
    model = ScriptModel(*steps)
    async with purra.Kernel(model=model, tools=[purra.Output(Bill)]) as kernel:
        return await (await kernel.submit("What do I owe?")).wait(), model


def answer(**fields: Any) -> Step:
    return ask(("answer", json.dumps(fields)))


@pytest.mark.anyio
async def test_the_call_ends_the_run_with_its_arguments() -> None:
    ended, model = await result(answer(**GOOD))
    bill = purra.Output(Bill).of(ended)
    assert bill == GOOD
    assert type(bill) is dict
    (offer,) = model.requests[0].tools
    assert (offer.name, len(model.requests)) == ("answer", 1)
    assert offer.description.startswith("What is to be paid.\n\n")
    assert offer.parameters["properties"]["total"] == {
        "type": "integer",
        "description": "In cents",
        "minimum": 0,
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    "slip", [{"total": "350", "currency": "EUR"}, {"total": 350}, {**GOOD, "tip": 1}]
)
async def test_a_slip_is_told_and_nothing_is_converted(slip: dict[str, Any]) -> None:
    """TOOL-03: no coercion; the model may try again."""
    ended, model = await result(answer(**slip), answer(**GOOD))
    assert purra.Output(Bill).of(ended) == GOOD
    assert model.requests[1].messages[-1].role == "tool"


@pytest.mark.anyio
async def test_a_text_that_is_exactly_the_document_is_an_answer_too() -> None:
    ended, _ = await result(say(json.dumps(GOOD)))
    assert purra.Output(Bill).of(ended) == GOOD


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        "```json\n" + json.dumps(GOOD) + "\n```",
        "Here it is: " + json.dumps(GOOD),
        '{"total": "350", "currency": "EUR"}',
        '{"total": 350, "currency": "EUR", "tip": 1}',
        '{"total": 350, "total": 1, "currency": "EUR"}',
        "[]",
        "You owe nothing.",
    ],
)
async def test_any_other_text_is_refused(text: str) -> None:
    """MW-01: the whole document, no fences, no prefix, no coercion."""
    ended, _ = await result(say(text))
    with pytest.raises(purra.PurraError) as caught:
        purra.Output(Bill).of(ended)
    assert (caught.value.code, caught.value.where) == ("output_invalid", f"run {ended.run}")


@pytest.mark.anyio
async def test_a_run_that_failed_has_no_answer() -> None:
    ended, _ = await result([purra.AdapterError("rate_limited", "not today")] * 1)
    assert ended.status == "failed"
    with pytest.raises(purra.PurraError, match="failed") as caught:
        purra.Output(Bill).of(ended)
    assert caught.value.code == "output_invalid"


@pytest.mark.parametrize("kind", [int, dict, dict[str, int], "Bill"])
def test_only_a_typed_dict_has_named_fields(kind: Any) -> None:
    with pytest.raises(purra.PurraError, match="TypedDict") as caught:
        purra.Output(kind)
    assert caught.value.code == "invalid_argument"


def test_a_key_without_a_json_form_is_refused_where_it_is_declared() -> None:
    with pytest.raises(purra.PurraError, match="'when'") as caught:
        purra.Output(Odd)
    assert caught.value.code == "invalid_argument"
    with pytest.raises(purra.PurraError, match="'Nowhere'"):
        purra.Output(Unknown)
    with pytest.raises(purra.PurraError, match="name"):
        purra.Output(Bill, name="not a name")
