"""The twin of `puppets`: the same behaviours as objects in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from purra.adapters import local_context, local_model, local_policy, local_tools
from purra.contracts.call import CallContext
from purra.contracts.context import (
    Context,
    ContextBlock,
    ContextBundle,
    ContextClaim,
    ContextRequest,
)
from purra.contracts.messages import Message, message_to_value
from purra.contracts.model import (
    Content,
    Finish,
    Model,
    ModelProfile,
    ModelRequest,
    Reasoning,
    ToolCallFragment,
    Usage,
)
from purra.contracts.policy import Policy, PolicyDecision, PolicyRequest
from purra.contracts.tool import ToolResult, Tools
from purra.errors import AdapterError, ToolError
from purra.tools import tool
from purra.values import thaw
from tests.conformance import puppets

_TYPES: dict[str, Any] = {
    "reasoning": Reasoning,
    "content": Content,
    "call": ToolCallFragment,
    "usage": Usage,
    "finish": Finish,
}


class ScriptedModel:
    """Yields what `puppets.SCRIPTS` says, as unchecked contract values."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def profile(self) -> ModelProfile:
        return ModelProfile(**puppets.PROFILES.get(self._name, puppets.PLAIN_PROFILE))

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Any]:
        try:
            for item in puppets.SCRIPTS[self._name]:
                if item is puppets.HANG:
                    await asyncio.sleep(600)
                if item is puppets.RAISE:
                    raise RuntimeError(puppets.SECRET)
                if item is puppets.RATE_LIMIT:
                    raise AdapterError(
                        "rate_limited", "slow down", executed="yes", retry_after_ms=1500
                    )
                fields = {key: value for key, value in item.items() if key != "t"}
                yield _TYPES[item["t"]](**fields)
        except (GeneratorExit, asyncio.CancelledError):
            puppets.closed.append(self._name)
            raise


class MirrorModel:
    """Says in content what it was asked."""

    async def profile(self) -> ModelProfile:
        return ModelProfile(8000, 1000)

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Any]:
        asked = {
            "messages": [message_to_value(message) for message in request.messages],
            "tools": [
                {"name": t.name, "description": t.description, "parameters": thaw(t.parameters)}
                for t in request.tools
            ],
            "max_tokens": request.max_tokens,
            "params": thaw(request.params),
        }
        yield Content(json.dumps(asked, sort_keys=True, ensure_ascii=False))
        yield Finish("stop")


def make_model(name: str) -> Model:
    """The model `name`, behind the checks."""
    return local_model(MirrorModel() if name == "mirror" else ScriptedModel(name))


@tool(effect="pure")
def echo(value: Any) -> Any:
    return {"value": value}


@tool(effect="world_read")
async def echo_async(value: Any) -> Any:
    return {"value": value}


@tool(effect="world_read")
def told_failure() -> Any:
    raise ToolError("no such file", code="missing_file")


@tool(effect="world_write")
def told_unknown() -> Any:
    raise ToolError("lost the connection", effect_state="unknown")


@tool(effect="world_write")
def raised() -> Any:
    raise RuntimeError(puppets.SECRET)


@tool(effect="world_write")
async def raised_async() -> Any:
    raise RuntimeError(puppets.SECRET)


@tool(effect="world_read")
def leaves() -> Any:
    raise SystemExit(puppets.SECRET)


@tool(effect="world_read")
def not_a_number() -> Any:
    return {"rows": [1.0, float("nan")]}


@tool(effect="world_read")
def foreign_type() -> Any:
    return {"when": {1, 2}}


@tool(effect="world_read")
def reporting(call: CallContext, steps: int) -> Any:
    for step in range(steps):
        call.progress({"step": step})
    return steps


@tool(effect="world_read")
async def reporting_async(call: CallContext, steps: int) -> Any:
    for step in range(steps):
        call.progress({"step": step})
    return steps


@tool(effect="world_read")
async def hanging() -> Any:
    await asyncio.sleep(600)


@tool(effect="world_write")
def whole() -> Any:
    return ToolResult(
        [1, 2],
        effect_state="committed",
        step="complete",
        planning="replan",
        events=({"kind": "x"},),
        artifacts=("sha256:0",),
        display={"title": "done"},
    )


@tool(effect="pure")
def bad_effect_state() -> Any:
    return ToolResult(1, effect_state="probably")  # type: ignore[arg-type]


@tool(effect="pure")
def failed_without_code() -> Any:
    return ToolResult("gone wrong", is_error=True)


TOOLS: list[Any] = [
    echo,
    echo_async,
    told_failure,
    told_unknown,
    raised,
    raised_async,
    leaves,
    not_a_number,
    foreign_type,
    reporting,
    reporting_async,
    hanging,
    whole,
    bad_effect_state,
    failed_without_code,
]


def make_tools() -> Tools:
    """All tools, as one set."""
    return local_tools(TOOLS)


class ScriptedContext:
    """Provides what `puppets.BUNDLES` says, as unchecked contract values."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def demand(self, request: ContextRequest, context: CallContext) -> ContextClaim:
        return ContextClaim(**puppets.CLAIMS.get(self._name, {"minimum": 0, "desired": 1}))

    async def provide(
        self, request: ContextRequest, budget: int, context: CallContext
    ) -> ContextBundle:
        told = puppets.BUNDLES[self._name] if budget else {}
        blocks = told.get("blocks", ())
        if not isinstance(blocks, str):
            blocks = tuple(ContextBlock(**block) for block in blocks)
        return ContextBundle(blocks, told.get("diagnostics", ""))


class CompressingContext:
    """Drops all but the last message."""

    async def demand(self, request: ContextRequest, context: CallContext) -> ContextClaim:
        raise RuntimeError(puppets.SECRET)

    async def provide(
        self, request: ContextRequest, budget: int, context: CallContext
    ) -> ContextBundle:
        asked = f"{request.run}|{request.session}|{request.prompt}|{budget}"
        return ContextBundle((ContextBlock(**puppets.block("asked", asked)),))

    async def compress(self, messages: Sequence[Message], budget: int, context: CallContext) -> Any:
        return list(messages[-1:])


class InventingContext(ScriptedContext):
    """Answers `compress` with a role that does not exist."""

    async def compress(self, messages: Sequence[Message], budget: int, context: CallContext) -> Any:
        return [{"role": "developer", "content": "obey"}]


def make_context(name: str) -> Context:
    """The context provider `name`, behind the checks."""
    if name == "compressing":
        return local_context(CompressingContext())
    if name == "inventing":
        return local_context(InventingContext(name))
    return local_context(ScriptedContext(name))  # type: ignore[arg-type]


class ScriptedPolicy:
    """Says what `puppets.VERDICTS` says."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def decide(self, request: PolicyRequest, context: CallContext) -> Any:
        if self._name == "raising":
            raise RuntimeError(puppets.SECRET)
        if self._name == "reads-arguments":
            secret = "secret" in request.arguments.get("path", "")
            told = (
                f"{request.run}/{request.session}/{request.agent}/{request.tool}"
                f"/{request.permission}"
            )
            return PolicyDecision("deny" if secret else "allow", told)
        verdict = puppets.VERDICTS[self._name]
        return PolicyDecision(**verdict) if isinstance(verdict, dict) else verdict


def make_policy(name: str) -> Policy:
    """The policy `name`, behind the checks."""
    return local_policy(ScriptedPolicy(name))
