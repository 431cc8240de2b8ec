"""Every error code of the kernel: what it means, whose fault it is, whether trying again can help.

One table. A code is protocol: it is stored in journals and read by programs, so it never changes
its meaning and is never removed (a snapshot test holds the table). Codes that cross the wire are in
`purra_bridge.wire.errors`; a port hands them on unchanged inside `AdapterError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

__all__ = [
    "CODES",
    "AdapterError",
    "Blame",
    "Code",
    "EffectState",
    "Executed",
    "KernelBug",
    "PurraError",
    "Retry",
    "StoreError",
    "ToolError",
]

Blame = Literal["caller", "operator", "plugin", "model", "host", "kernel", "store"]
Retry = Literal["never", "same", "other"]
Executed = Literal["no", "maybe", "yes"]
EffectState = Literal["not_started", "committed", "unknown"]


@dataclass(frozen=True, slots=True)
class Code:
    """What is known of one code before anything happens."""

    blame: Blame
    retry: Retry
    meaning: str


def _table() -> Mapping[str, Code]:
    rows: dict[str, Code] = {}

    def add(blame: Blame, retry: Retry, **codes: str) -> None:
        for code, meaning in codes.items():
            rows[code] = Code(blame, retry, meaning)

    add(
        "caller",
        "never",
        invalid_argument="an argument has the wrong type, shape or range",
        invalid_value="a value is outside the strict value model (design invariant 8)",
        run_not_found="no run of that id is in the store",
        run_ended="the run has ended; nothing can be added to it",
        session_busy="another run of the session is still going on",
        not_open="the kernel is closed or was never opened",
    )
    add(
        "operator",
        "never",
        invalid_manifest="a manifest breaks its schema",
        plugin_not_found="the host manifest names a plugin that is not installed",
        plugin_broken="the named plugin cannot be used as installed",
        plugin_conflict="two installed plugins claim one id",
        plugin_drift="a plugin is not the one that the host manifest has locked",
        install_failed="a plugin could not be installed or removed",
        package_conflict="a distribution of another project provides a package of our name",
        secret_missing="a secret that the host manifest names is not in the environment",
        adapter_not_found="a plugin offers no adapter of that name and kind",
        duplicate_tool="two adapters offer one tool name",
        unsupported="this version does not do that yet",
        approval_unavailable="a call needs a person's decision and nobody can give one",
        preset_mismatch="a component differs from what the run was started with",
        agent_preset_snapshot_unsupported="the run was started with an unknown snapshot version",
        model_generation_limit_unknown="the model's output ceiling is not known",
        fixed_reserves_exceed_window="the fixed reserves are larger than the context window",
        minimum_context_demand_exceeds_pool="the context providers' minimums do not fit",
    )
    add(
        "caller",
        "never",
        policy_denied="policy denied a call and ended the run",
        run_canceled="somebody cancelled the run",
        run_deadline_exceeded="the run's time limit passed",
        max_rounds_exceeded="the run used all its model rounds",
        max_tool_calls_exceeded="the run used all its tool calls",
        max_tokens_exceeded="the run used all its tokens",
        usage_unreported="a token limit is set and the model did not report its usage",
        context_overflow="the conversation no longer fits the model's window",
    )
    add(
        "model",
        "same",
        upstream_stream_interrupted="the model's stream ended before it was complete",
        empty_response="the model answered with neither text nor calls",
        model_stream_limit_exceeded="the model's stream passed a limit",
    )
    add(
        "model",
        "never",
        model_output_truncated="the model's answer was cut at its output limit",
        tool_call_truncated="the model's output was cut inside or after a tool call",
        model_output_filtered="the provider withheld the model's answer",
        output_invalid="the run's answer is not of the form that the program asked for",
        model_finish_unknown="the model stopped for a reason that is not understood",
        malformed_tool_batch="the calls of one round do not assemble to distinct whole calls",
    )
    add(
        "model",
        "other",
        unknown_tool="the model called a tool that is not offered",
        too_many_calls="the model asked for more calls at once than allowed",
        invalid_tool_arguments_json="the arguments are not one strict JSON document",
        invalid_tool_arguments_shape="the arguments are not an object, or break the tool's schema",
        tool_arguments_too_large="the arguments are longer than allowed",
        write_batch_refused="several writes in one batch; send them one at a time",
        tool_batch_aborted="another call of the batch failed before this one started",
        tool_scope_violation="the call is outside what the run may do",
        permission_denied="policy denied the call",
        approval_rejected="a person rejected the call",
        approval_expired="nobody decided on the call in time",
    )
    add(
        "plugin",
        "other",
        tool_failed="the tool raised an error",
        invalid_tool_result="the tool returned something that is not a tool result",
        tool_result_encoding="the tool returned a value outside the strict value model",
        tool_timeout="the tool did not answer in its time",
        tool_cancelled="the call was cancelled",
        approval_pending="a call waits for a person's decision",
        context_failed="a context provider failed",
        context_block_exceeds_allocation="a context block is larger than its allocation",
        policy_failed="the policy adapter failed; the call was denied",
        contract_violation="an adapter's answer breaks its contract",
        internal="an adapter failed in a way it did not describe",
    )
    add(
        "plugin",
        "never",
        effect_unknown="a write may or may not have happened; a person must reconcile it",
        unsupported_schema="a tool's schema uses a keyword outside the admitted subset",
        schema_too_large="a tool's schema passes the bounds on bytes, depth or nodes",
    )
    add(
        "store",
        "never",
        conflict="a revision, head or key digest is not what the caller expected",
        sealed="the stream is sealed: what it belongs to has ended",
        lapsed="a required document has lapsed",
        storage="the storage medium failed",
        not_found="there is nothing under that name",
        ownership_lost="another owner has taken the run over",
    )
    add(
        "kernel",
        "never",
        internal_error="a fault of ours: please report it",
        illegal_event="an event does not fit the state it meets",
    )
    return MappingProxyType(rows)


CODES: Final[Mapping[str, Code]] = _table()


class PurraError(Exception):
    """An error with a stable code: what, where, whose fault, what to do.

    `code` is a key of `CODES` (or, in an `AdapterError`, of the wire's table); `message` says what
    happened in one line; `where` names the place (a file and key, a plugin, a run); `hint` says
    what to do; `detail` holds strict JSON-like values for programs.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: str = "",
        hint: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint
        self.detail: Mapping[str, Any] = detail or {}

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message} [{self.code}]{advice}"


class AdapterError(PurraError):
    """A call to an adapter failed. Ports and in-process adapters raise nothing else.

    `origin` says who failed (host, instance, caller, plugin), `executed` whether the adapter ran,
    `effect_state` what the adapter itself says of its side effect, if it says anything.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        origin: str = "plugin",
        executed: Executed = "maybe",
        effect_state: EffectState | None = None,
        retry_after_ms: int | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message, detail=detail)
        self.origin = origin
        self.executed: Executed = executed
        self.effect_state: EffectState | None = effect_state
        self.retry_after_ms = retry_after_ms


class StoreError(PurraError):
    """A store refused or failed. `code`: conflict, sealed, lapsed, storage, not_found.

    `detail` says with what: `{"key", "revision"}`, `{"stream", "head"}`, `{"digest"}`, `{"errno"}`.
    """


class ToolError(Exception):
    """Raised by a tool for an ordinary failure that the model may read.

    Unlike any other exception it carries what is known of the effect, so a failed write that did
    nothing does not block its run (`tables.md`, effect states).
    """

    def __init__(
        self, message: str, *, code: str = "tool_failed", effect_state: EffectState = "not_started"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.effect_state: EffectState = effect_state


class KernelBug(BaseException):
    """An invariant of ours does not hold. Never caught on the way: please report it."""
