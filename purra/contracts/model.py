"""Contract `purra.model/1`: one request in, one stream of chunks out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from purra.contracts.call import CallContext
from purra.contracts.messages import Message

__all__ = [
    "CONTRACT",
    "Chunk",
    "Content",
    "Finish",
    "FinishReason",
    "Model",
    "ModelProfile",
    "ModelRequest",
    "Reasoning",
    "ToolCallFragment",
    "ToolOffer",
    "Usage",
]

CONTRACT = "purra.model/1"

FinishReason = Literal["stop", "tool_calls", "length", "filtered", "other"]


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What a model can do. Sizes in tokens; `output_limit` 0 = not known (MOD-12).

    `features`: any of `tools`, `parallel_tools`, `structured_output`, `images`, `cache`,
    `reasoning`.
    """

    window: int
    output_limit: int
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as the model sees it: name, description, JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. `max_tokens` is the resolved output allowance (MOD-11)."""

    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    max_tokens: int = 1024
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Diagnostic text. Never shown, never in history (OUT-02)."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """Answer text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFragment:
    """A piece of call number `index`. `id` and `name` once each; `arguments` is joined (MOD-09)."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens used so far by this request; None = the provider did not say (MOD-13)."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The end. `reason` is normalised, an unknown native value is `other`, never `stop`."""

    reason: FinishReason
    native: str = ""


Chunk = Reasoning | Content | ToolCallFragment | Usage | Finish


class Model(Protocol):
    """Guarantees: exactly one `Finish`, after it at most `Usage` (MOD-08); no retry inside; missing
    usage is None, never zero; a stream that ends without `Finish` was interrupted. Cancelling the
    iteration closes the upstream connection. Failures are `AdapterError`, with the provider's code
    (`rate_limited`, `upstream` ...) and `retry_after_ms` where it gave one.
    """

    async def profile(self) -> ModelProfile: ...

    def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]: ...
