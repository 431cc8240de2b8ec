"""The whole batch is checked before any of it starts (TOOL-09, TOOL-11).

Pure: the same calls, catalog and bounds give the same verdict, so a batch that was announced before
a crash is judged alike after it. Bounds on the batch come first, so that a flood of calls is
counted and not read; then each call for itself, all of them even after a failure, so that a model
learns of every slip in one round. One failure, and nothing runs: the calls that failed have a
code each, the others are the caller's to abort.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, final, get_args

from purra.agent import RunLimits
from purra.contracts.tool import EFFECTS, Concurrency, ToolSchema
from purra.errors import PurraError
from purra.gateway.arguments import read_arguments
from purra.gateway.schema import admit
from purra.gateway.validation import CompiledSchema
from purra.limits import ARGUMENT_CHARS, ERROR_TEXT_CHARS, MAX_CALLS_PER_BATCH
from purra.values import Value, digest

__all__ = [
    "Admitted",
    "AdmittedCall",
    "Announced",
    "CompiledCatalog",
    "CompiledTool",
    "Preflight",
    "Refused",
    "compile_catalog",
]

TOOL_NAME_CHARS: Final = 128
"""As in manifests; a name is a key in journals and log lines."""


# --- the catalog of one epoch -------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class CompiledTool:
    """A declared tool, and the validator of its arguments."""

    schema: ToolSchema
    arguments: CompiledSchema


CompiledCatalog = Mapping[str, CompiledTool]
"""Tools by name; immutable."""


def compile_catalog(schemas: Iterable[ToolSchema]) -> CompiledCatalog:
    """Compiles what the tool adapters of one epoch declare, once for all its runs.

    Raises `PurraError` naming the tool: `duplicate_tool` (TOOL-35), `unsupported_schema` and
    `schema_too_large` (with the path; TOOL-01, TOOL-02), `contract_violation` for any other field
    outside its range (CAP-02, CAP-03).
    """
    tools: dict[str, CompiledTool] = {}
    for schema in schemas:
        _check_declaration(schema)
        if schema.name in tools:
            raise PurraError(
                "duplicate_tool",
                f"two adapters offer the tool {schema.name!r}",
                where="tools",
                hint="leave one of them out",
            )
        parameters = admit(schema.parameters, where=f"tool {schema.name}")
        tools[schema.name] = CompiledTool(schema, CompiledSchema(parameters))
    return MappingProxyType(tools)


_DECLARED: Final[Mapping[str, Collection[str]]] = MappingProxyType(
    {
        "effect": EFFECTS,
        "concurrency": get_args(Concurrency),
        "idempotency": ("none", "supported", "required"),
        "approval": ("never", "required"),
    }
)


def _check_declaration(schema: ToolSchema) -> None:
    where = f"tool {str(schema.name)[:TOOL_NAME_CHARS]}"
    if type(schema.name) is not str or not 0 < len(schema.name) <= TOOL_NAME_CHARS:
        raise _undeclared(where, f"its name must have 1 to {TOOL_NAME_CHARS} characters")
    for field, allowed in _DECLARED.items():
        if getattr(schema, field) not in allowed:
            raise _undeclared(where, f"its {field} must be one of {', '.join(allowed)}")
    if not (math.isfinite(schema.timeout_s) and schema.timeout_s > 0):
        raise _undeclared(where, "its timeout_s must be positive and finite")


def _undeclared(where: str, what: str) -> PurraError:
    return PurraError("contract_violation", what, where=where)


# --- the verdict on one batch -------------------------------------------------------------------


class Announced(Protocol):
    """A call that a model asked for. `id` is the kernel's, `alias` the provider's (MOD-10)."""

    @property
    def id(self) -> str: ...
    @property
    def alias(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str:
        """Raw argument text."""


@final
@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call that may go on: which tool, with exactly which arguments.

    `call`: the kernel's id. `digest`: of the arguments; approval and claim are bound to it.
    `recovered`: JSON Pointers of arguments that came as quoted JSON (TOOL-08).
    """

    call: str
    schema: ToolSchema
    arguments: Mapping[str, Value]
    digest: str
    recovered: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Admitted:
    """Every call of the batch, in its order."""

    calls: tuple[AdmittedCall, ...]


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """No call of the batch may run. `results`: code and message of each call that failed, by id;
    a call that is not in it did nothing wrong and is aborted. `code`: that of the first failure.
    """

    results: Mapping[str, tuple[str, str]]

    @property
    def code(self) -> str:
        return next(iter(self.results.values()))[0]


@final
class Preflight:
    """Judges batches against one catalog and the bounds of a run. Immutable."""

    __slots__ = ("_catalog", "_limits", "_max_argument_chars", "_max_calls")

    def __init__(
        self,
        catalog: CompiledCatalog,
        limits: RunLimits,
        *,
        max_calls: int = MAX_CALLS_PER_BATCH,
        max_argument_chars: int = ARGUMENT_CHARS,
    ) -> None:
        """`max_calls`: of one batch. `max_argument_chars`: raw text of one call."""
        self._catalog = catalog
        self._limits = limits
        self._max_calls = max_calls
        self._max_argument_chars = max_argument_chars

    def check(
        self,
        calls: Sequence[Announced],
        used_calls: int = 0,
        allowed: Collection[str] | None = None,
    ) -> Admitted | Refused:
        """The verdict on one batch; never raises for anything a model wrote.

        `used_calls`: calls of the run before this batch, refused ones included. `allowed`: names
        that the present step may use, None = the whole catalog. It comes from the caller's frozen
        state and never from arguments (TOOL-11); a name outside it is as unknown as any other.
        """
        refused = self._over_bounds(calls, used_calls)
        if refused is not None:
            return refused
        admitted: list[AdmittedCall] = []
        failures: dict[str, tuple[str, str]] = {}
        for call in calls:
            try:
                admitted.append(self._admit(call, allowed))
            except PurraError as error:
                failures[call.id] = (error.code, error.message)
        if failures:
            return Refused(MappingProxyType(failures))
        return self._too_many_writes(admitted) or Admitted(tuple(admitted))

    def _over_bounds(self, calls: Sequence[Announced], used_calls: int) -> Refused | None:
        if len(calls) > self._max_calls:
            text = f"{len(calls)} calls at once; at most {self._max_calls} are allowed"
            return _all_refused(calls, "too_many_calls", text)
        most = self._limits.max_tool_calls
        if used_calls + len(calls) > most:
            text = f"{used_calls} of {most} calls are used, and {len(calls)} more are asked for"
            return _all_refused(calls, "max_tool_calls_exceeded", text)
        if len({call.alias for call in calls}) < len(calls):
            return _all_refused(calls, "malformed_tool_batch", "two calls have the same id")
        return None

    def _admit(self, call: Announced, allowed: Collection[str] | None) -> AdmittedCall:
        """Raises `PurraError`: `unknown_tool`, or what is wrong with the arguments."""
        tool = self._catalog.get(call.name)
        if tool is None or (allowed is not None and call.name not in allowed):
            raise PurraError("unknown_tool", self._offer(allowed))
        arguments = read_arguments(
            call.name, tool.arguments, call.text, max_chars=self._max_argument_chars
        )
        return AdmittedCall(
            call.id,
            tool.schema,
            arguments.value,
            digest(arguments.value),
            arguments.recovered,
        )

    def _offer(self, allowed: Collection[str] | None) -> str:
        """What a model may call instead (TOOL-10, K23): names as long as there is room for them."""
        names = sorted(name for name in self._catalog if allowed is None or name in allowed)
        if not names:
            return "no tool of that name; there are no tools now"
        text = f"no tool of that name; there are: {names[0]}"
        for place, name in enumerate(names[1:], start=1):
            more = f" and {len(names) - place} more"
            if len(text) + len(name) + len(more) + 2 > ERROR_TEXT_CHARS:
                return text + more
            text += f", {name}"
        return text

    def _too_many_writes(self, calls: Sequence[AdmittedCall]) -> Refused | None:
        """Several writes at once: which of them happened first would be anybody's guess (TOOL-24).

        With `write_batch = serial` they are let in, for the caller to run one after the other.
        """
        writes = [call for call in calls if not call.schema.reads]
        if len(writes) < 2 or self._limits.write_batch == "serial":
            return None
        names = ", ".join(sorted({call.schema.name for call in writes}))
        text = f"{len(writes)} writes in one batch ({names}); send one, wait for its result, go on"
        if len(text) > ERROR_TEXT_CHARS:
            text = f"{len(writes)} writes in one batch; send one, wait for its result, go on"
        return Refused(
            MappingProxyType({call.call: ("write_batch_refused", text) for call in writes})
        )


def _all_refused(calls: Sequence[Announced], code: str, text: str) -> Refused:
    return Refused(MappingProxyType({call.id: (code, text) for call in calls}))
