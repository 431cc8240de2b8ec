"""The other ends of the peers, each with one handler: `python peer_workers.py mcp|grpc [PATH]`."""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import base64
import sys
import time

__all__ = ["GRPC_OPTIONS", "GRPC_SERVICE"]

GRPC_SERVICE = "bench"
GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


def serve_mcp() -> None:
    """Tools over standard streams."""
    from typing import Any

    from mcp.server.mcpserver import Context, MCPServer

    # The server reads annotations as types in this module.
    globals().update(Any=Any, Context=Context)
    server = MCPServer("bench", log_level="ERROR")

    @server.tool()
    async def echo(value: dict[str, Any]) -> dict[str, Any]:
        return value

    @server.tool(structured_output=False)
    async def blob(text: str) -> str:
        return base64.b64encode(base64.b64decode(text)).decode()

    @server.tool()
    async def items(count: int, pause_s: float, item: str, ctx: Context) -> int:
        for number in range(count):
            if pause_s:
                await asyncio.sleep(pause_s)
            told = repr(time.monotonic()) if pause_s else item
            await ctx.report_progress(number, None, told)
        return count

    server.run("stdio")


async def serve_grpc(path: str) -> None:
    """The same over a socket, with bodies that are bytes."""
    import grpc
    import grpc.aio
    import msgpack

    async def echo(body, context):
        return msgpack.packb(msgpack.unpackb(body))

    async def blob(body, context):
        return body

    async def items(body, context):
        count, pause_s, item = msgpack.unpackb(body)
        for _ in range(count):
            if pause_s:
                await asyncio.sleep(pause_s)
            yield repr(time.monotonic()).encode() if pause_s else item.encode()

    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Blob": grpc.unary_unary_rpc_method_handler(blob),
        "Items": grpc.unary_stream_rpc_method_handler(items),
    }
    server = grpc.aio.server(options=GRPC_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(GRPC_SERVICE, handlers),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1] == "mcp":
        serve_mcp()
    else:
        asyncio.run(serve_grpc(sys.argv[2]))
