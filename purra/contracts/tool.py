"""Contract `purra.tool/1`: a set of declared tools, each with its effect class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from purra.contracts.call import CallContext
from purra.errors import EffectState

__all__ = [
    "CONTRACT",
    "EFFECTS",
    "READ_EFFECTS",
    "Concurrency",
    "Effect",
    "ToolResult",
    "ToolSchema",
    "Tools",
    "declare",
]

CONTRACT = "purra.tool/1"

Effect = Literal[
    "pure", "world_read", "world_write", "external_read", "external_write", "irreversible"
]
EFFECTS: tuple[Effect, ...] = (
    "pure",
    "world_read",
    "world_write",
    "external_read",
    "external_write",
    "irreversible",
)
READ_EFFECTS: frozenset[str] = frozenset({"pure", "world_read", "external_read"})
"""Effects that leave nothing behind: a failure of theirs is `not_started`, a retry is safe."""

Concurrency = Literal["parallel", "actor_serial", "target_serial", "global_exclusive"]


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """Everything declared of one tool. Defaults per effect class: `tables.md`, made explicit here.

    `parameters`: JSON Schema in the admitted subset. `timeout_s` is hard. `permission`: a dotted
    name that policy may decide on. `idempotency`: none, supported, required. `approval`: never,
    required. `shared`: a write that may share its instance with other calls.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect
    permission: str = ""
    idempotency: Literal["none", "supported", "required"] = "none"
    concurrency: Concurrency = "parallel"
    approval: Literal["never", "required"] = "never"
    timeout_s: float = 30.0
    shared: bool = False

    @property
    def reads(self) -> bool:
        """Whether the effect class leaves nothing behind."""
        return self.effect in READ_EFFECTS


def declare(
    name: str, description: str, parameters: Mapping[str, Any], effect: Effect, **fields: Any
) -> ToolSchema:
    """A `ToolSchema` with the defaults of its effect class filled in."""
    defaults: dict[str, Any] = {
        "permission": name,
        "approval": "required" if effect == "irreversible" else "never",
        "concurrency": "parallel" if effect in READ_EFFECTS else "actor_serial",
    }
    return ToolSchema(name, description, parameters, effect, **{**defaults, **fields})


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave. `value` is a strict value; `is_error` with a `code` is an ordinary failure.

    `effect_state`: what is known of the side effect; None lets the gateway derive it (tables,
    effect states). `step`: `complete` ends the run after this batch. `planning`: keep or replan.
    """

    value: Any
    is_error: bool = False
    code: str = ""
    effect_state: EffectState | None = None
    step: Literal["continue", "complete"] = "continue"
    planning: Literal["keep", "replan"] = "keep"
    events: tuple[Any, ...] = ()
    artifacts: tuple[Any, ...] = ()
    display: Mapping[str, Any] = field(default_factory=dict)


class Tools(Protocol):
    """Guarantees: `catalog` is stable between announced changes; `call` runs only what the catalog
    lists, with arguments that satisfy the schema; it returns once or raises once. A failure that
    the model may read is a result with `is_error` or `ToolError`; a failed call that never reached
    the tool is `AdapterError(executed="no")`. Cancelling `call` stops it, or it raises
    `AdapterError` that says what is known.
    """

    async def catalog(self) -> Sequence[ToolSchema]: ...

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult: ...
