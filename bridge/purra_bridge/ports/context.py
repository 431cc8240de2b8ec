"""A context provider in a plugin as the kernel's `Context`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purra.contracts import answers
from purra.contracts.call import CallContext
from purra.contracts.context import ContextBundle, ContextClaim, ContextRequest
from purra.contracts.messages import Message
from purra_bridge.ports.channel import Channel, Request
from purra_bridge.ports.faults import adapter_error
from purra_bridge.ports.payloads import context_args, field, messages_args
from purra_bridge.wire.errors import WireError

__all__ = ["HostedContext"]


class HostedContext:
    """The context provider `adapter` of the plugin behind `channel`."""

    def __init__(self, channel: Channel, adapter: str) -> None:
        self._channel = channel
        self._adapter = adapter

    async def demand(self, request: ContextRequest, context: CallContext) -> ContextClaim:
        return answers.claim(await self._ask("demand", context_args(request), context), "claim")

    async def provide(
        self, request: ContextRequest, budget: int, context: CallContext
    ) -> ContextBundle:
        args = {**context_args(request), "budget": budget}
        return answers.bundle(await self._ask("provide", args, context), "bundle")

    async def compress(
        self, messages: Sequence[Message], budget: int, context: CallContext
    ) -> tuple[Message, ...]:
        found = await self._ask("compress", messages_args(messages, budget), context)
        return answers.messages(field(found, "messages", "compress"), "messages")

    async def _ask(self, method: str, args: Any, context: CallContext) -> Any:
        request = Request(
            self._adapter,
            method,
            args,
            timeout_s=context.timeout_s,
            trace=context.trace,
            stop=context.stop,
        )
        try:
            return await self._channel.call(request)
        except WireError as error:
            raise adapter_error(error) from error
