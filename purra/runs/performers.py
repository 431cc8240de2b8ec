"""Who performs which effect of a run. Each gives facts; none touches the journal or the state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import anyio

from purra.context.assembly import Assembled, assemble, restore
from purra.contracts.call import Stop
from purra.contracts.messages import Message
from purra.contracts.model import Model, ModelProfile, ModelRequest
from purra.errors import AdapterError, PurraError
from purra.gateway.admission import Admission
from purra.gateway.arguments import validate
from purra.gateway.attempt import make_attempt
from purra.gateway.dispatch import Dispatch
from purra.gateway.gates import Gate, Gates, Ticket
from purra.gateway.preflight import Preflight
from purra.journal.effects import AssembleContext, CallModel, CallTool, Effect
from purra.journal.effects import Preflight as PreflightEffect
from purra.journal.events import Fact
from purra.journal.state import Call
from purra.registry.snapshot import Registry, Snapshot
from purra.runs.bindings import BOUND, Bindings
from purra.runs.log import RunLog

__all__ = ["Claim", "Performers"]

Claim = Callable[[Fact, Stop], Awaitable[None]]
"""Journals a claim and returns when it is committed."""


class Performers:
    """The work of one owned run, on what was routable when its present step began.

    A step (a model call and its tool batch) holds one epoch (invariant 5): with each model call the
    pin is renewed if there is another epoch by then, and the last one is returned by `close`. A run
    pins its offers, too: while the newest epoch has others than it was started with, it keeps the
    pin that it has.
    """

    def __init__(self, log: RunLog, registry: Registry[Bindings], gates: Gates) -> None:
        self._log = log
        self._state = log.state
        self._registry = registry
        self._gates = gates
        self._prompt: tuple[Message, ...] | None = None
        self._tickets: dict[str, Ticket] = {}
        self._step = ExitStack()
        self._adopt(self._newest(self._step))

    def close(self) -> None:
        """Returns the pin."""
        self._step.close()

    def _begin_step(self) -> None:
        """Takes the newest epoch for what comes, unless the run was started with other offers."""
        if self._registry.current is self._epoch:
            return
        with ExitStack() as pinned:
            newest = self._newest(pinned)
            bindings = newest.get(BOUND)
            if bindings is None or bindings.drift(self._state.started["components"]):
                return
            self._step.close()
            self._step = pinned.pop_all()
        self._adopt(newest)

    def _newest(self, pins: ExitStack) -> Snapshot[Bindings]:
        return pins.enter_context(self._registry.pin())

    def _adopt(self, epoch: Snapshot[Bindings]) -> None:
        bindings = epoch.get(BOUND)
        if bindings is None:
            raise PurraError("not_open", "nothing is bound", where=f"run {self._state.run}")
        self._epoch = epoch
        self._bindings = bindings
        preflight = Preflight(bindings.catalog, bindings.agent.limits)
        self._admission = Admission(preflight, bindings.adapters.policy, bindings.agent)

    @property
    def _model(self) -> Model:
        model = self._bindings.adapters.model
        if model is None:
            raise PurraError("adapter_not_found", "this kernel has no model", where="kernel")
        return model

    # -- without waiting ----------------------------------------------------------------------

    def at_once(self, effect: Effect) -> list[Fact]:
        """Facts that `effect` comes to, or begins with, without waiting for anything; else none."""
        if isinstance(effect, PreflightEffect) and self._admission.at_once and self._state.batch:
            return self._admission.check(self._state, self._state.batch)
        if isinstance(effect, CallTool):
            call = self._call(effect)
            if call.phase != "claimed" and effect.id not in self._tickets:
                ticket = self._gates.try_enter(self._gate_of(call))
                if ticket is not None:
                    self._tickets[effect.id] = ticket
                    return [self._claim(call)]
        return []

    # -- in a task of its own -----------------------------------------------------------------

    async def perform(self, effect: Effect, stop: Stop, claim: Claim) -> Sequence[Fact]:
        """The facts that `effect` comes to. Raises `PurraError` if the run cannot go on here."""
        if isinstance(effect, CallModel):
            return [await self._call_model()]
        if isinstance(effect, CallTool):
            return await self._call_tool(effect, stop, claim)
        if isinstance(effect, AssembleContext):
            return [await self._assemble()]
        batch = self._state.batch
        return await self._admission.decide(self._state, batch) if batch else []

    def fits(self, call: Call, arguments: Mapping[str, Any]) -> bool:
        """Whether a person's edited arguments satisfy the tool's schema (HITL-02)."""
        tool = self._bindings.catalog[call.name]
        try:
            validate(call.name, tool.arguments, arguments)
        except PurraError:
            return False
        return True

    def gave_up(self, effect: CallModel) -> Fact:
        """The fact of an attempt that was stopped."""
        self._log.output.drop()
        data = {"attempt": effect.attempt, "code": "run_canceled"}
        return Fact("attempt.superseded", data, self._log.state.seq)

    async def _assemble(self) -> Fact:
        state = self._state
        try:
            assembled: Assembled = await assemble(
                self._log.store,
                self._bindings.adapters.contexts,
                self._bindings.agent,
                await self._profile(),
                state,
                self._bindings.offers_estimate + state.estimate,
            )
        except PurraError as error:
            if isinstance(error, AdapterError) and error.origin == "store":
                raise
            data = {"code": error.code, "message": error.message, "provider": error.where}
            return Fact("context.failed", data, state.seq)
        self._prompt = assembled.messages
        return assembled.fact

    async def _profile(self) -> ModelProfile:
        return await self._model.profile()

    async def _call_model(self) -> Fact:
        state = self._state
        attempt = state.attempt
        if attempt is None:
            raise PurraError("internal_error", "no attempt is open", where=f"run {state.run}")
        self._begin_step()
        if self._prompt is None:
            self._prompt = await restore(
                self._log.store, self._bindings.agent, state.context or {"bundle": None}
            )
        request = ModelRequest(
            (*self._prompt, *state.messages), self._bindings.offers, attempt.max_tokens
        )
        output = self._log.output
        output.open(attempt.number, state.rounds + 1)
        fact = await make_attempt(self._model, request, attempt, state.rounds + 1, output.push)
        if fact.kind != "model.round":
            output.drop()
        return fact

    # -- tools --------------------------------------------------------------------------------

    def _call(self, effect: CallTool) -> Call:
        batch = self._state.batch
        if batch is None or effect.call not in batch.calls:
            raise PurraError("internal_error", f"no call {effect.call}", where="performers")
        return batch.calls[effect.call]

    def _gate_of(self, call: Call) -> Gate:
        actor = self._state.started["session"] or self._state.run
        return Gate(call.plan["concurrency"], actor, call.name)

    def _claim(self, call: Call) -> Fact:
        data = {"call": call.id, "key": f"{self._state.run}:{call.id}", "term": self._state.term}
        return Fact("tool.call.claimed", data, call.seq)

    async def _call_tool(self, effect: CallTool, stop: Stop, claim: Claim) -> Sequence[Fact]:
        call = self._call(effect)
        ticket = self._tickets.pop(effect.id, None)
        try:
            if ticket is None:
                with anyio.CancelScope() as waiting:
                    stop.on_request(waiting.cancel)
                    ticket = await self._gates.enter(self._gate_of(call))
                    await claim(self._claim(call), stop)
            if call.phase != "claimed":
                return []  # stopped before it was claimed: the state has given it up
            schema = self._bindings.catalog[call.name].schema
            tools = self._bindings.tools[call.name]
            window = (self._state.context or {"window": 0})["window"]
            dispatch = Dispatch(self._state.run, self._log.store, window)
            return [await dispatch.call(call, schema, tools, stop)]
        finally:
            if ticket is not None:
                ticket.release()
