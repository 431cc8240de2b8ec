"""A program with a host in it and one plugin, for the kit to kill: `python -m`, and a spec as JSON.

Each line of its standard input is a JSON list, answered by a JSON line:

    ["call", {"how": "who"}]    calls the tool `t`; the first item that comes, else the value
    ["status"]                  the axes of isolation of the instance, as they were achieved
    ["raise"], ["exit"]         an error that nobody catches; an end without any cleaning up
    ["stop"]                    the event loop is stopped under everything

The end of its input is an orderly end: the host is closed. It is written as any program is that
embeds a host, and handles no signal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, Final

from purra_bridge.ports.channel import Request
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings
from purra_tck.drivers.host import PluginSpec
from purra_tck.drivers.launches import launch_of
from purra_tck.drivers.specs import from_text

__all__ = ["main"]

EXITED: Final = 3
QUICK: Final = Timings(drain_s=0.1, exit_s=0.3, term_s=0.3)


async def _obey(route: Route, order: list[Any]) -> Any:
    match order:
        case ["call", arguments]:
            stream = route.stream(Request("t", "call", {"arguments": arguments}))
            _KEPT.append(stream)
            async for item in stream:
                return item
            return stream.result
        case ["status"]:
            return dict(route.status().isolation)
        case ["raise"]:
            raise ArithmeticError("an error that nobody catches")
        case ["exit"]:
            os._exit(EXITED)
        case ["stop"]:
            asyncio.get_running_loop().stop()
            await asyncio.Event().wait()
    raise ValueError(f"not an order: {order}")


_KEPT: Final[list[Any]] = []
"""Streams that go on: one that is forgotten would be left."""


async def _run(spec: PluginSpec) -> None:
    orders = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(orders)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async with ProcessHost(timings=QUICK) as host:
        route = host.add(launch_of(spec))
        while line := await orders.readline():
            print(json.dumps(await _obey(route, json.loads(line))), flush=True)


def main() -> None:
    """Runs until its input ends or it is ended."""
    asyncio.run(_run(from_text(sys.argv[1])))


if __name__ == "__main__":
    main()
