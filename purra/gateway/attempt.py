"""One attempt: a model's stream becomes one fact, `model.round` or `attempt.failed`.

Everything about a stream's end is decided here, and all of it fails closed (invariant 6): only
`stop` without calls and `tool_calls` with calls make a round. A cut, withheld or unexplained end
gives a coded failure and nothing of the stream is kept (MOD-03..08), even where the calls in it
are whole JSON (K04).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio

from purra.contracts.call import CallContext
from purra.contracts.model import (
    Chunk,
    Content,
    Finish,
    Model,
    ModelRequest,
    Reasoning,
    ToolCallFragment,
    Usage,
)
from purra.errors import AdapterError, PurraError
from purra.gateway.batch import BatchAssembly
from purra.journal.events import Fact
from purra.journal.state import Attempt
from purra.limits import MODEL_IDLE_S, STREAM_CHARS, STREAM_CHUNKS
from purra.time_limit import TimeLimit

__all__ = ["make_attempt"]

Draft = Callable[[str, str], None]
"""Takes a kind of delta and its text."""

_BAD_ENDS: Final = {
    ("length", False): "model_output_truncated",
    ("length", True): "tool_call_truncated",
    ("filtered", False): "model_output_filtered",
    ("filtered", True): "model_output_filtered",
}


class _Stream:
    """What has come so far. One chunk in, no I/O."""

    def __init__(self, draft: Draft) -> None:
        self.text: list[str] = []
        self.calls = BatchAssembly()
        self.usage = Usage()
        self.finish: Finish | None = None
        self.visible = False
        self._draft = draft
        self._chars = 0
        self._chunks = 0

    def take(self, chunk: Chunk) -> None:
        """Raises `AdapterError(contract_violation | model_stream_limit_exceeded)`."""
        self._chunks += 1
        if isinstance(chunk, Usage):
            self.usage = chunk
            return
        if self.finish is not None:
            raise _violation("a chunk after the finish")
        if isinstance(chunk, Content):
            self._count(chunk.text)
            self.text.append(chunk.text)
            self.visible = self.visible or bool(chunk.text)
            self._draft("model.content_delta", chunk.text)
        elif isinstance(chunk, ToolCallFragment):
            self._count(chunk.arguments)
            self.calls.add(chunk)
        elif isinstance(chunk, Reasoning):
            self._count(chunk.text)
            self._draft("model.reasoning_delta", chunk.text)
        elif isinstance(chunk, Finish):
            self.finish = chunk
        else:
            raise _violation(f"a chunk of type {type(chunk).__name__}")

    def _count(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > STREAM_CHARS or self._chunks > STREAM_CHUNKS:
            raise AdapterError(
                "model_stream_limit_exceeded",
                f"more than {STREAM_CHARS} characters or {STREAM_CHUNKS} chunks",
                executed="yes",
            )

    def round(self, attempt: int, round_number: int) -> dict[str, Any]:
        """The data of `model.round`. Raises `AdapterError` for every other end."""
        finish = self.finish
        if finish is None:
            raise AdapterError(
                "upstream_stream_interrupted", "the stream ended without a finish", executed="yes"
            )
        text = "".join(self.text)
        self._refuse_bad_end(finish, text)
        calls = [
            {"ordinal": ordinal, "id": call.id, "name": call.name, "arguments": call.arguments}
            for ordinal, call in enumerate(self.calls.finish())
        ]
        return {
            "attempt": attempt,
            "round": round_number,
            "text": text,
            "calls": calls,
            "finish": {"reason": finish.reason, "native": finish.native},
            "usage": _usage(self.usage),
        }

    def _refuse_bad_end(self, finish: Finish, text: str) -> None:
        calls = not self.calls.empty
        if finish.reason not in ("stop", "tool_calls"):
            code = _BAD_ENDS.get((finish.reason, calls), "model_finish_unknown")
            native = f" ({finish.native})" if finish.native else ""
            raise AdapterError(code, f"the model stopped: {finish.reason}{native}", executed="yes")
        if calls != (finish.reason == "tool_calls"):
            with_calls = "with" if calls else "without"
            raise _violation(f"finish {finish.reason} {with_calls} calls")
        if not calls and not text.strip():
            raise AdapterError("empty_response", "neither text nor calls", executed="yes")


def _violation(what: str) -> AdapterError:
    return AdapterError("contract_violation", what, executed="yes")


def _usage(usage: Usage) -> dict[str, Any]:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


async def make_attempt(
    model: Model, request: ModelRequest, attempt: Attempt, round_number: int, draft: Draft
) -> Fact:
    """Makes one request and gives its fact. Raises nothing but cancellation and bugs."""
    stream = _Stream(draft)
    trace = {"attempt": str(attempt.number)}
    chunks = model.generate(request, CallContext(trace=trace))
    try:
        with TimeLimit(MODEL_IDLE_S) as idle:
            async for chunk in chunks:
                stream.take(chunk)
                idle.put_off(MODEL_IDLE_S)
            return Fact("model.round", stream.round(attempt.number, round_number), attempt.seq)
        error = AdapterError(
            "deadline_exceeded", f"silent for {MODEL_IDLE_S:g} s", executed="maybe"
        )
    except AdapterError as failure:
        error = failure
    except PurraError as refusal:
        error = AdapterError(refusal.code, refusal.message, executed="yes")
    finally:
        if stream.finish is None:  # else it has been read to its end
            await _close(chunks)
    return _failed(error, attempt, stream)


async def _close(chunks: Any) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        with anyio.CancelScope(shield=True):
            await close()


_INTERRUPTIONS: Final = frozenset({"crashed", "closed", "unresponsive", "tainted"})


def _failed(error: AdapterError, attempt: Attempt, stream: _Stream) -> Fact:
    # A model's process that died is, to the run, a stream that was cut (MOD-28).
    code = "upstream_stream_interrupted" if error.code in _INTERRUPTIONS else error.code
    message = error.message if code == error.code else f"{error.code}: {error.message}"
    data: dict[str, Any] = {
        "attempt": attempt.number,
        "code": code,
        "message": message[:500],
        "origin": error.origin,
        "visible": stream.visible,
        "usage": _usage(stream.usage),
    }
    if error.retry_after_ms:
        data["retry_after_ms"] = error.retry_after_ms
    return Fact("attempt.failed", data, attempt.seq)
