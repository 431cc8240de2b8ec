"""A script: one question, a tool that is a plain function, a typed answer.

python docs/examples/script.py
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from standin import Standin

import purra
from purra.contracts.messages import Message


class Bill(TypedDict):
    """What is to be paid."""

    cents: Annotated[int, "The whole sum"]
    currency: Literal["EUR"]


@purra.tool(effect="pure")
def price(fruit: Literal["apple", "pear"], count: int) -> int:
    """The price of some fruit, in cents."""
    return {"apple": 40, "pear": 55}[fruit] * count


def shopper(messages: Sequence[Message]) -> tuple[str, dict[str, object]]:
    last = messages[-1]
    if last.role == "tool":
        return "answer", {"cents": int(last.content), "currency": "EUR"}
    return "price", {"fruit": "pear", "count": 3}


bill = purra.Output(Bill)
kernel = purra.Kernel(model=Standin(shopper), tools=[price, bill])
result = purra.run_sync(kernel, "What do three pears cost?")
print(f"{bill.of(result)['cents'] / 100:.2f} {bill.of(result)['currency']}")
