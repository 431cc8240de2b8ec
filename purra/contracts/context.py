"""Contract `purra.context/1`: blocks of text for the model, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from purra.contracts.call import CallContext
from purra.contracts.messages import Message

__all__ = [
    "CONTRACT",
    "Context",
    "ContextBlock",
    "ContextBundle",
    "ContextClaim",
    "ContextRequest",
]

CONTRACT = "purra.context/1"


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What the context is for: the run, its session ("" = none) and the user's text."""

    run: str
    session: str
    prompt: str


@dataclass(frozen=True, slots=True)
class ContextClaim:
    """Tokens that a provider needs at least, and would like; higher `priority` is served first."""

    minimum: int
    desired: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """One block. `digest` is `sha256:` of the content's UTF-8; `untrusted` text is framed as data.

    `source` says where it came from (a path, a URL, a memory id).
    """

    name: str
    content: str
    source: str
    digest: str
    untrusted: bool = True


@dataclass(frozen=True, slots=True)
class ContextBundle:
    """A provider's blocks, in order. `diagnostics` are never shown to a model (CTX-06)."""

    blocks: tuple[ContextBlock, ...] = ()
    diagnostics: str = ""


class Context(Protocol):
    """Guarantees: the blocks together fit the budget in tokens (`purra.context.budget.estimate`);
    budget 0 gives no block and no error; the same request and sources give the same bytes; nothing
    is written anywhere; a failure is `AdapterError`, never a silent part of the answer.
    `compress` may raise `AdapterError(code="unimplemented")`.
    """

    async def demand(self, request: ContextRequest, context: CallContext) -> ContextClaim: ...

    async def provide(
        self, request: ContextRequest, budget: int, context: CallContext
    ) -> ContextBundle: ...

    async def compress(
        self, messages: Sequence[Message], budget: int, context: CallContext
    ) -> tuple[Message, ...]: ...
