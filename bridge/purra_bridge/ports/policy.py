"""A policy in a plugin as the kernel's `Policy`."""

from __future__ import annotations

from purra.contracts import answers
from purra.contracts.call import CallContext
from purra.contracts.policy import PolicyDecision, PolicyRequest
from purra_bridge.ports.channel import Channel, Request
from purra_bridge.ports.faults import adapter_error
from purra_bridge.ports.payloads import policy_args
from purra_bridge.wire.errors import WireError

__all__ = ["HostedPolicy"]


class HostedPolicy:
    """The policy `adapter` of the plugin behind `channel`. Any error counts as deny (CAP-12)."""

    def __init__(self, channel: Channel, adapter: str) -> None:
        self._channel = channel
        self._adapter = adapter

    async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision:
        ask = Request(
            self._adapter,
            "decide",
            policy_args(request),
            timeout_s=context.timeout_s,
            trace=context.trace,
            stop=context.stop,
        )
        try:
            found = await self._channel.call(ask)
        except WireError as error:
            raise adapter_error(error) from error
        return answers.decision(found, "decision")
