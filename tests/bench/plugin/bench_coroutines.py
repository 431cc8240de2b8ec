"""The same echo as a coroutine: its worker runs an event loop."""

# mypy: ignore-errors

from purra_sdk import Plugin, tool


@tool(effect="pure")
async def echo(call, value=None):
    return value


plugin = Plugin(tools=[echo])
