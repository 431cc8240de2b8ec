"""The plugin that the suites run against when the subject is hosted: one adapter per behaviour.

`tests/conformance/local.py` is its twin in the kernel's process. A worker imports this file by
path, so it needs the SDK and nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from purra_sdk import Plugin, PluginError, ToolError, context, model, outcome, policy, tool

SECRET = "s3cret-in-an-exception"
"""Text of exceptions; no error that the kernel sees may hold it."""

HANG: dict[str, Any] = {"t": "hang"}
RAISE: dict[str, Any] = {"t": "raise"}
RATE_LIMIT: dict[str, Any] = {"t": "rate_limited"}


def _content(text: object) -> dict[str, Any]:
    return {"t": "content", "text": text}


def _call(**fields: object) -> dict[str, Any]:
    return {"t": "call", **fields}


def _finish(reason: str = "stop", native: str = "") -> dict[str, Any]:
    return {"t": "finish", "reason": reason, "native": native}


def _usage(tokens_in: object = None, tokens_out: object = None) -> dict[str, Any]:
    return {"t": "usage", "input_tokens": tokens_in, "output_tokens": tokens_out}


SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "plain": [
        {"t": "reasoning", "text": "thinking"},
        _content("Hello, "),
        _content("wörld \U0001f43e\u2028\u0085"),
        _usage(3, 2),
        _finish("stop", "end_turn"),
    ],
    "trailer": [_content("a"), _finish(), _usage(None, 0)],
    "calls": [
        _call(index=0, id="a", name="fs.read", arguments='{"pa'),
        _call(index=1, id="b", name="fs.list"),
        _call(index=0, arguments='th":"x"}'),
        _call(index=1, arguments="{}"),
        _finish("tool_calls"),
    ],
    "unknown-finish": [_content("a"), _finish("other", "MALFORMED_X")],
    "empty": [_finish()],
    "no-finish": [_content("a"), _content("b")],
    "nothing": [],
    "two-finishes": [_content("a"), _finish("tool_calls"), _finish("tool_calls")],
    "content-after": [_content("a"), _finish(), _content("b")],
    "call-after": [_finish("tool_calls"), _call(index=0, id="a", name="x", arguments="{}")],
    "reasoning-after": [_finish(), {"t": "reasoning", "text": "late"}],
    "number-as-text": [_content(5), _finish()],
    "invented-reason": [_content("a"), _finish("MALFORMED_X")],
    "flag-as-tokens": [_usage(True, 1), _finish()],
    "negative-tokens": [_usage(-1, 1), _finish()],
    "huge-index": [_call(index=1_000_000, id="a", name="x", arguments="{}"), _finish()],
    "raises": [_content("a"), RAISE],
    "rate-limited": [RATE_LIMIT],
    "hangs": [_content("a"), HANG],
    "endless": [_content("x" * 1000)] * 20_000,
}
"""By name, what each model yields."""

PROFILES: dict[str, dict[str, Any]] = {
    "plain": {"window": 8000, "output_limit": 1000, "features": ["tools"]},
    "trailer": {"window": 8000, "output_limit": 0},
    "empty": {"window": 0, "output_limit": 0},
    "nothing": {"window": "8000", "output_limit": 0},
}
PLAIN_PROFILE = PROFILES["plain"]

closed: list[str] = []
"""Names of the models whose generator was closed before its end."""


def _model(name: str, script: list[dict[str, Any]]) -> type:
    @model(name)
    class Scripted:
        def profile(self, call: Any) -> dict[str, Any]:
            return PROFILES.get(name, PLAIN_PROFILE)

        async def generate(self, call: Any, request: dict[str, Any]) -> Any:
            try:
                for item in script:
                    if item is HANG:
                        await asyncio.sleep(600)
                    if item is RAISE:
                        raise RuntimeError(SECRET)
                    if item is RATE_LIMIT:
                        raise PluginError("rate_limited", "slow down", after_ms=1500)
                    yield item
            except (GeneratorExit, asyncio.CancelledError):
                closed.append(name)
                raise

    return Scripted


@model("mirror")
class Mirror:
    """Says in content what it was asked, as canonical text."""

    def profile(self, call: Any) -> dict[str, Any]:
        return PLAIN_PROFILE

    def generate(self, call: Any, request: dict[str, Any]) -> Any:
        import json

        yield _content(json.dumps(request, sort_keys=True, ensure_ascii=False))
        yield _finish()


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
    raise RuntimeError(SECRET)


@tool(effect="world_write")
async def raised_async() -> Any:
    raise RuntimeError(SECRET)


@tool(effect="world_read")
def leaves() -> Any:
    raise SystemExit(SECRET)


@tool(effect="world_read")
def not_a_number() -> Any:
    return {"rows": [1.0, float("nan")]}


@tool(effect="world_read")
def foreign_type() -> Any:
    return {"when": {1, 2}}


@tool(effect="world_read")
def reporting(call: Any, steps: int) -> Any:
    for step in range(steps):
        call.progress({"step": step})
    return steps


@tool(effect="world_read")
async def reporting_async(call: Any, steps: int) -> Any:
    for step in range(steps):
        call.progress({"step": step})
    return steps


@tool(effect="world_read")
async def hanging() -> Any:
    await asyncio.sleep(600)


@tool(effect="world_write")
def whole() -> Any:
    return outcome(
        [1, 2],
        effect_state="committed",
        step="complete",
        display={"title": "done"},
        planning="replan",
        events=[{"kind": "x"}],
        artifacts=["sha256:0"],
    )


@tool(effect="pure")
def bad_effect_state() -> Any:
    return outcome(1, effect_state="probably")


@tool(effect="pure")
def failed_without_code() -> Any:
    return outcome("gone wrong", is_error=True)


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


def block(name: str, content: object, **changes: object) -> dict[str, Any]:
    """A block of context; `changes` spoil it."""
    digest = "sha256:" + hashlib.sha256(str(content).encode()).hexdigest()
    made = {"name": name, "content": content, "source": f"mem:{name}", "digest": digest}
    return {**made, "untrusted": True, **changes}


BUNDLES: dict[str, dict[str, Any]] = {
    "memory": {
        "blocks": [block("one", "Ähm"), block("two", "", untrusted=False)],
        "diagnostics": "2 of 2",
    },
    "nothing": {},
    "stale-digest": {"blocks": [block("one", "a"), block("two", "b", digest="sha256:" + "0" * 64)]},
    "number-as-content": {"blocks": [block("one", 5)]},
    "flag-as-text": {"blocks": [block("one", "a", untrusted="yes")]},
    "text-as-blocks": {"blocks": "one"},
}
CLAIMS: dict[str, dict[str, Any]] = {
    "memory": {"minimum": 10, "desired": 20, "priority": -1},
    "stale-digest": {"minimum": 30, "desired": 20},
    "nothing": {"minimum": 0, "desired": 0},
    "flag-as-text": {"minimum": "0", "desired": 0},
}


def _context(name: str, bundle: dict[str, Any]) -> type:
    @context(name)
    class Scripted:
        def demand(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
            return CLAIMS.get(name, {"minimum": 0, "desired": 1})

        def provide(self, call: Any, request: dict[str, Any], budget: int) -> dict[str, Any]:
            return bundle if budget else {"blocks": []}

    return Scripted


@context("compressing")
class Compressing:
    """Drops all but the last message."""

    def demand(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError(SECRET)

    def provide(self, call: Any, request: dict[str, Any], budget: int) -> dict[str, Any]:
        return {"blocks": [block("asked", "|".join([*map(str, request.values()), str(budget)]))]}

    def compress(self, call: Any, messages: list[Any], budget: int) -> dict[str, Any]:
        return {"messages": messages[-1:]}


@context("inventing")
class Inventing:
    """Answers `compress` with a role that does not exist."""

    def demand(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        return {"minimum": 0, "desired": 0}

    def provide(self, call: Any, request: dict[str, Any], budget: int) -> dict[str, Any]:
        return {"blocks": []}

    def compress(self, call: Any, messages: list[Any], budget: int) -> dict[str, Any]:
        return {"messages": [{"role": "developer", "content": "obey"}]}


VERDICTS: dict[str, Any] = {
    "allows": {"verdict": "allow"},
    "denies": {"verdict": "deny", "reason": "no"},
    "asks": {"verdict": "ask", "reason": "a person must look"},
    "nonsense": {"verdict": "perhaps"},
    "bare-text": "allow",
    "true": True,
}


def _policy(name: str, verdict: Any) -> type:
    @policy(name)
    class Scripted:
        def decide(self, call: Any, request: dict[str, Any]) -> Any:
            return verdict

    return Scripted


@policy("raising")
class Raising:
    """A policy with a bug."""

    def decide(self, call: Any, request: dict[str, Any]) -> Any:
        raise RuntimeError(SECRET)


@policy("reads-arguments")
class ReadsArguments:
    """Denies whatever mentions a secret; tells what it was asked."""

    def decide(self, call: Any, request: dict[str, Any]) -> Any:
        secret = "secret" in request["arguments"].get("path", "")
        told = "/".join(request[key] for key in ("run", "session", "agent", "tool", "permission"))
        return {"verdict": "deny" if secret else "allow", "reason": told}


MODELS = [_model(name, script) for name, script in SCRIPTS.items()]
# One plugin may not use a name twice, so every kind has its own.
model_plugin = Plugin(models=[*MODELS, Mirror])
tool_plugin = Plugin(tools=TOOLS)
context_plugin = Plugin(
    contexts=[*(_context(name, bundle) for name, bundle in BUNDLES.items()), Compressing, Inventing]
)
policy_plugin = Plugin(
    policies=[*(_policy(name, told) for name, told in VERDICTS.items()), Raising, ReadsArguments]
)
