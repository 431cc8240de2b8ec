"""What an adapter's answer must look like: one table, for every adapter wherever it runs.

An object in this process answers with contract values, the port of a plugin has maps with the same
field names from the wire. Both pass these checks once, on the way in, and come out as exact, frozen
contract values that nobody checks again (design, one knower each). All raise
`AdapterError(contract_violation, executed="yes")`, naming the path; `RESULT` raises
`AdapterError(tool_result_encoding)` where a tool's value is no strict value (JSON-11, K26).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from purra.contracts.context import ContextBlock, ContextBundle, ContextClaim
from purra.contracts.messages import Message, ToolCall
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    ModelProfile,
    Reasoning,
    ToolCallFragment,
    Usage,
)
from purra.contracts.policy import PolicyDecision
from purra.contracts.shapes import (
    INT64_MAX,
    Shape,
    ShapeError,
    answer,
    flag,
    many,
    one_of,
    or_none,
    seconds,
    strict,
    strict_map,
    text,
    violation,
    whole,
)
from purra.contracts.store import (
    NAME_BYTES,
    PAGE_ITEMS,
    Append,
    Commit,
    Delete,
    Document,
    Page,
    Put,
    Receipt,
    Scan,
    ScanPage,
    Touch,
)
from purra.contracts.tool import EFFECTS, ToolResult, ToolSchema
from purra.errors import AdapterError, PurraError
from purra.values import freeze

__all__ = [
    "StreamOrder",
    "bundle",
    "catalog",
    "chunk",
    "claim",
    "clock_ms",
    "decision",
    "digest_name",
    "documents",
    "failure",
    "messages",
    "page",
    "profile",
    "receipt",
    "scan_page",
    "tool_result",
    "tool_value",
    "watched_name",
]

NAME_CHARS: Final = 256
"""Names and codes: longer ones are no names."""
NOTE_CHARS: Final = 16 * 1024
"""Reasons, native finish values, diagnostics, sources: what a person may read of an answer."""
TEXT_CHARS: Final = 16 * 1024 * 1024
"""One piece of content; the wire's largest message is as long in bytes."""
MAX_FEATURES: Final = 64
MAX_BLOCKS: Final = 1024
MAX_MESSAGES: Final = 100_000
MAX_CALLS: Final = 1024
"""Calls of one message, and the bound of a fragment's index: an assembler allocates by it."""
MAX_TOOLS: Final = 4096
MAX_EXTRAS: Final = 1024
"""Events, or artifacts, of one tool result."""


def failure(error: BaseException) -> AdapterError:
    """What an adapter in this process raised, as a port raises it: the type's name and no text.

    The text may hold what no model should read; it stays in the chained exception.
    """
    if isinstance(error, AdapterError):
        return error
    name = type(error).__name__
    return AdapterError(
        "internal", f"the adapter raised {name}", executed="yes", detail={"type": name}
    )


class StreamOrder:
    """The order of a model's chunks: any but one `Finish`, that one, then at most `Usage` (MOD-08).

    `take` each chunk, `end` when the stream ends by itself. One instance per stream.
    """

    __slots__ = ("_finished",)

    def __init__(self) -> None:
        self._finished = False

    def take(self, chunk: Chunk) -> None:
        """Raises `AdapterError(contract_violation)` for a chunk that may not come now."""
        if self._finished and type(chunk) is not Usage:
            raise violation("stream", f"{type(chunk).__name__} after the finish")
        if type(chunk) is Finish:
            self._finished = True

    def end(self) -> None:
        """Raises `AdapterError(upstream_stream_interrupted)` if there was no finish (MOD-07)."""
        if not self._finished:
            raise AdapterError(
                "upstream_stream_interrupted",
                "the stream ended without a finish reason",
                executed="yes",
            )


def _features(value: object) -> frozenset[str]:
    listed = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    return frozenset(many(_NAME, MAX_FEATURES)(listed))


def _numbers(value: object) -> Mapping[str, int]:
    if not isinstance(value, Mapping):
        raise ShapeError("a map expected")
    for key, number in value.items():
        if type(key) is not str or type(number) is not int or number < 0:
            raise ShapeError("a map of names to whole numbers expected")
    return dict(value)


def _tool_value(value: object) -> Any:
    try:
        return freeze(value, where="result.value")
    except PurraError as error:
        raise AdapterError(
            "tool_result_encoding", f"{error.where}: {error.message}", executed="yes"
        ) from None


def _digest_matches(block: ContextBlock) -> str | None:
    if block.digest != "sha256:" + hashlib.sha256(block.content.encode()).hexdigest():
        return "the digest is not the content's"
    return None


def _claim_in_order(claim: ContextClaim) -> str | None:
    return "minimum is more than desired" if claim.minimum > claim.desired else None


def _failure_has_code(result: ToolResult) -> str | None:
    return "a failed result needs a code" if result.is_error and not result.code else None


_NAME: Final = text(NAME_CHARS)
_NOTE: Final = text(NOTE_CHARS)
_CONTENT: Final = text(TEXT_CHARS)
_COUNT: Final = whole()

profile: Final[Callable[[object, str], ModelProfile]] = answer(
    Shape(ModelProfile, window=whole(1), output_limit=_COUNT, features=_features)
)

chunk: Final[Mapping[type, Callable[[object, str], Chunk]]] = {
    Reasoning: answer(Shape(Reasoning, text=_CONTENT)),
    Content: answer(Shape(Content, text=_CONTENT)),
    ToolCallFragment: answer(
        Shape(
            ToolCallFragment,
            index=whole(0, MAX_CALLS - 1),
            id=_NAME,
            name=_NAME,
            arguments=_CONTENT,
        )
    ),
    Usage: answer(Shape(Usage, input_tokens=or_none(_COUNT), output_tokens=or_none(_COUNT))),
    Finish: answer(
        Shape(
            Finish,
            reason=one_of("stop", "tool_calls", "length", "filtered", "other"),
            native=_NOTE,
        )
    ),
}
"""By kind of chunk."""

catalog: Final[Callable[[object, str], tuple[ToolSchema, ...]]] = answer(
    many(
        Shape(
            ToolSchema,
            name=_NAME,
            description=_NOTE,
            parameters=strict_map,
            effect=one_of(*EFFECTS),
            permission=_NAME,
            idempotency=one_of("none", "supported", "required"),
            concurrency=one_of("parallel", "actor_serial", "target_serial", "global_exclusive"),
            approval=one_of("never", "required"),
            timeout_s=seconds,
            shared=flag,
        ),
        MAX_TOOLS,
    )
)

tool_value: Final[Callable[[object, str], Any]] = answer(_tool_value)

tool_result: Final[Callable[[object, str], ToolResult]] = answer(
    Shape(
        ToolResult,
        _failure_has_code,
        value=_tool_value,
        is_error=flag,
        code=_NAME,
        effect_state=or_none(one_of("not_started", "committed", "unknown")),
        step=one_of("continue", "complete"),
        planning=one_of("keep", "replan"),
        events=many(strict, MAX_EXTRAS),
        artifacts=many(strict, MAX_EXTRAS),
        display=strict_map,
    )
)

claim: Final[Callable[[object, str], ContextClaim]] = answer(
    Shape(
        ContextClaim,
        _claim_in_order,
        minimum=_COUNT,
        desired=_COUNT,
        priority=whole(-INT64_MAX),
    )
)

_BLOCK: Final = Shape(
    ContextBlock,
    _digest_matches,
    name=_NAME,
    content=_CONTENT,
    source=_NOTE,
    digest=_NAME,
    untrusted=flag,
)
bundle: Final[Callable[[object, str], ContextBundle]] = answer(
    Shape(ContextBundle, blocks=many(_BLOCK, MAX_BLOCKS), diagnostics=_NOTE)
)

_CALL: Final = Shape(ToolCall, id=_NAME, name=_NAME, arguments=_CONTENT)
_MESSAGE: Final = Shape(
    Message,
    role=one_of("system", "user", "assistant", "tool"),
    content=_CONTENT,
    calls=many(_CALL, MAX_CALLS),
    call_id=_NAME,
    name=_NAME,
)
messages: Final[Callable[[object, str], tuple[Message, ...]]] = answer(many(_MESSAGE, MAX_MESSAGES))

decision: Final[Callable[[object, str], PolicyDecision]] = answer(
    Shape(PolicyDecision, verdict=one_of("allow", "deny", "deny_and_tell", "ask"), reason=_NOTE)
)

_KEY: Final = text(NAME_BYTES)
_RECEIPT: Final = answer(Shape(Receipt, heads=_numbers, revisions=_numbers))
_PAGE: Final = answer(Shape(Page, records=many(strict, PAGE_ITEMS), head=_COUNT, sealed=flag))
_DOCUMENT: Final = Shape(
    Document, key=_KEY, value=strict, revision=whole(1), lapsed=flag, expires_ms=_COUNT
)
_DOCUMENTS: Final = answer(many(or_none(_DOCUMENT), PAGE_ITEMS))
_SCAN_PAGE: Final = answer(Shape(ScanPage, documents=many(_DOCUMENT, PAGE_ITEMS), more=flag))
clock_ms: Final[Callable[[object, str], int]] = answer(_COUNT)
digest_name: Final[Callable[[object, str], str]] = answer(_NAME)
watched_name: Final[Callable[[object, str], str]] = answer(_KEY)


def receipt(value: object, commit: Commit) -> Receipt:
    """The receipt of `commit`: a head for each stream appended to, a revision for each key."""
    found: Receipt = _RECEIPT(value, "receipt")
    for op in commit.ops:
        if type(op) is Append:
            if op.stream not in found.heads:
                raise violation("receipt.heads", "an appended stream is missing")
        elif isinstance(op, (Put, Touch, Delete)) and op.key not in found.revisions:
            raise violation("receipt.revisions", "a changed key is missing")
    return found


def page(value: object, limit: int) -> Page:
    """A page of at most `limit` records."""
    found: Page = _PAGE(value, "page")
    if len(found.records) > limit:
        raise violation("page.records", f"{len(found.records)} records where {limit} were asked")
    return found


def documents(value: object, keys: Sequence[str]) -> tuple[Document | None, ...]:
    """One document or None for each of `keys`, in their order."""
    found: tuple[Document | None, ...] = _DOCUMENTS(value, "documents")
    if len(found) != len(keys):
        raise violation("documents", f"{len(found)} answers to {len(keys)} keys")
    for key, document in zip(keys, found, strict=True):
        if document is not None and document.key != key:
            raise violation("documents", "a document of another key")
    return found


def scan_page(value: object, scan: Scan) -> ScanPage:
    """A page of at most `scan.limit` documents under its prefix."""
    found: ScanPage = _SCAN_PAGE(value, "scan")
    if len(found.documents) > scan.limit:
        raise violation("scan.documents", f"more than the {scan.limit} that were asked")
    if not all(document.key.startswith(scan.prefix) for document in found.documents):
        raise violation("scan.documents", "a key outside the prefix")
    return found
