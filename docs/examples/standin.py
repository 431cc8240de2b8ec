"""Stands in for a model in these examples: needs no key and no network.

A model is any object with these two methods. What it says is decided by a plain function, from the
conversation so far: a text is an answer, a pair of a name and arguments is a call of a tool.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from purra.contracts.call import CallContext
from purra.contracts.messages import Message
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    ModelProfile,
    ModelRequest,
    ToolCallFragment,
    Usage,
)

__all__ = ["Says", "Standin"]

Says = Callable[[Sequence[Message]], str | tuple[str, Mapping[str, Any]]]


class Standin:
    """Says what `says` says, a word at a time."""

    def __init__(self, says: Says) -> None:
        self._says = says

    async def profile(self) -> ModelProfile:
        return ModelProfile(window=32_000, output_limit=2_000)

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        said = self._says(request.messages)
        if isinstance(said, str):
            for word in re.findall(r"\S+\s*", said):
                yield Content(word)
            yield Finish("stop")
        else:
            name, arguments = said
            yield ToolCallFragment(0, f"call-{len(request.messages)}", name, json.dumps(arguments))
            yield Finish("tool_calls")
        yield Usage(input_tokens=len(request.messages), output_tokens=1)
