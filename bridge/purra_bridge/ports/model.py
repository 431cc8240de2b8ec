"""A model in a plugin as the kernel's `Model`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from purra.contracts import answers
from purra.contracts.call import CallContext
from purra.contracts.model import Chunk, ModelProfile, ModelRequest
from purra_bridge.ports.channel import Channel, Request
from purra_bridge.ports.faults import adapter_error
from purra_bridge.ports.payloads import chunk_from_item, model_args
from purra_bridge.wire.errors import WireError

__all__ = ["HostedModel"]

PROFILE_TIMEOUT_S: Final = 30.0
"""A profile is a table in the adapter, or one request to its provider."""


class HostedModel:
    """The model `adapter` of the plugin behind `channel`."""

    def __init__(self, channel: Channel, adapter: str) -> None:
        self._channel = channel
        self._adapter = adapter

    async def profile(self) -> ModelProfile:
        request = Request(self._adapter, "profile", {}, timeout_s=PROFILE_TIMEOUT_S)
        try:
            found = await self._channel.call(request)
        except WireError as error:
            raise adapter_error(error) from error
        return answers.profile(found, "profile")

    async def generate(self, request: ModelRequest, context: CallContext) -> AsyncIterator[Chunk]:
        """The chunks in their order (`answers.StreamOrder`); closing the iterator cancels.

        A plugin that dies or breaks the wire while it streams is an interrupted stream, whatever
        ended it (MOD-28); the cause stays in the error's detail.
        """
        items = self._channel.stream(
            Request(
                self._adapter,
                "generate",
                model_args(request),
                timeout_s=context.timeout_s,
                key=context.idempotency_key,
                trace=context.trace,
                stop=context.stop,
            )
        )
        order = answers.StreamOrder()
        try:
            async for item in items:
                chunk = chunk_from_item(item)
                order.take(chunk)
                yield chunk
        except WireError as error:
            lost = error.origin == "instance"
            raise adapter_error(error, "upstream_stream_interrupted" if lost else "") from error
        finally:
            await items.aclose()
        order.end()
