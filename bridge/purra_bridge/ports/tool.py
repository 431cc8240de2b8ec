"""The tools of a plugin as the kernel's `Tools`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from purra.contracts import answers
from purra.contracts.call import CallContext
from purra.contracts.tool import ToolResult, ToolSchema
from purra.errors import AdapterError, PurraError
from purra.values import freeze
from purra_bridge.ports.channel import Channel, Request
from purra_bridge.ports.faults import adapter_error
from purra_bridge.wire.errors import WireError

__all__ = ["HostedTools"]


class HostedTools:
    """The tools that the manifest of the plugin behind `channel` declares.

    The catalog is the manifest's and not the plugin's: what a tool may do is decided before its
    code runs. A failed call keeps the wire's code, `executed` and the effect state that the plugin
    claims; what that means for the effect is for the gateway to derive.
    """

    def __init__(self, channel: Channel, schemas: Iterable[ToolSchema]) -> None:
        self._channel = channel
        self._schemas = {schema.name: schema for schema in schemas}

    async def catalog(self) -> Sequence[ToolSchema]:
        return tuple(self._schemas.values())

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        schema = self._schemas.get(name)
        if schema is None:
            raise AdapterError(
                "unknown_tool", f"no tool {name!r} is offered", origin="caller", executed="no"
            )
        request = Request(
            name,
            "call",
            {"arguments": arguments},
            timeout_s=context.timeout_s,
            key=context.idempotency_key,
            trace=context.trace,
            exclusive=context.exclusive or not (schema.reads or schema.shared),
            stop=context.stop,
        )

        def report(item: Any) -> None:
            try:
                frozen = freeze(item, where="progress")
            except PurraError:  # bytes: strict on the wire, not in the kernel
                return
            context.progress(frozen)

        try:
            found = await self._channel.call(request, report)
        except WireError as error:
            raise _tool_error(error) from error
        return answers.tool_result(found, "result")


def _tool_error(error: WireError) -> AdapterError:
    """As any other, but a result that is no strict value has a code of its own (JSON-11, K26)."""
    unreadable = error.code == "contract_violation" and error.executed == "yes"
    return adapter_error(error, "tool_result_encoding" if unreadable else "")
