"""What plugins ask of their host: granted, denied, told, and ended with the call that asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Launch, LaunchLimits
from purra_hosts.process.callbacks import Asked
from tests.hosts.process.rig import Watched, failing, hosting, running, tool, until, workbench


def granted(*grants: str, declared: tuple[str, ...] = ()) -> Launch:
    return workbench(
        grants={"host": list(grants)},
        services=(*grants, *declared),
        secrets={"TOKEN": "s3cr3t-value"},
    )


def denials(watched: Watched) -> list[dict[str, Any]]:
    return [dict(data) for kind, data in watched.events if kind == "plugin.denied"]


def test_a_granted_secret_is_given_and_no_other() -> None:
    """PLG-16, PLG-17, CAP-001, CAP-002: by name; the author is told what is missing and where it is
    granted."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(granted("secret:TOKEN", declared=("secret:OTHER",)))
            ask = {"adapter": "secret", "method": "get"}
            given = await tool(route, "ask", args={"name": "TOKEN"}, **ask)
            assert given == [{"value": "s3cr3t-value"}]
            assert denials(watched) == []
            ((code, text),) = await tool(route, "ask", args={"name": "OTHER"}, **ask)
            assert code == "capability_denied"
            assert text == (
                "secret:OTHER is not granted; the operator grants it in"
                " plugins.workbench.secrets.OTHER"
            )
            ((code, text),) = await tool(route, "ask", args={"name": "THIRD"}, **ask)
            assert (code, text) == (
                "capability_denied",
                "secret:THIRD is not among the plugin's [capabilities] host",
            )
            ((code, _),) = await tool(route, "ask", args=None, **ask)
            assert code == "capability_denied"
            assert denials(watched)[0]["call"] > 0 and denials(watched)[0]["trace"] == {}
            told = [(each["grant"], each["declared"], each["count"]) for each in denials(watched)]
            assert told == [
                ("secret:OTHER", True, 1),
                ("secret:THIRD", False, 1),
                ("secret:", False, 1),
            ]
            assert route.status().generation == 1

    running(main)


def test_a_plugin_that_asks_in_a_loop_does_not_flood_the_audit() -> None:
    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(granted())
            ask = {"adapter": "memory", "method": "get", "args": None}
            answers = await tool(route, "ask", times=500, **ask)
            assert [code for code, _ in answers] == ["capability_denied"] * 500
            assert len(denials(watched)) <= 3
            for number in range(100):
                await tool(route, "ask", adapter=f"made-up-{number}", method="x", args=None)
            names = {each["grant"] for each in denials(watched)}
            assert len(names) <= 33 and "..." in names

    running(main)


def test_a_service_knows_who_asks_by_the_hosts_own_knowledge() -> None:
    """OBS-07, CAP-005: what the plugin says of itself decides nothing."""
    asked: list[Asked] = []

    async def memory(what: Asked) -> Any:
        asked.append(what)
        return {"echo": what.args}

    async def main() -> None:
        async with hosting() as watched:
            watched.host.offer("memory", memory)
            route = watched.host.add(granted("memory"))
            args = {"plugin": "somebody-else", "run": "r1"}
            answers = await tool(route, "ask", adapter="memory", method="get", args=args)
            assert answers == [{"echo": args}]
            (what,) = asked
            assert (what.plugin, what.instance) == ("workbench", route.status().instance)
            assert (what.method, what.args) == ("get", args) and what.call > 0

    running(main)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (WireError("not_found", "nothing there", origin="host"), "not_found"),
        (RuntimeError("secret text"), "internal"),
        (None, "internal"),
    ],
)
def test_a_service_that_fails_costs_its_callback(fault: Exception | None, code: str) -> None:
    """A value that is no strict value counts as a failure, and nobody hears an exception's text."""

    async def model(what: Asked) -> Any:
        if fault is not None:
            raise fault
        return {"not": object()}

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with hosting() as watched:
            watched.host.offer("model", model)
            route = watched.host.add(granted("model", "tool"))
            ((found, text),) = await tool(route, "ask", adapter="model", method="m", args=None)
            assert found == code and "secret text" not in text
            ((found, _),) = await tool(route, "ask", adapter="tool", method="call", args=None)
            assert found == "unimplemented"
            assert await tool(route, "echo", value=1) == 1

    running(main)


def test_callbacks_stand_inside_each_other_up_to_a_depth() -> None:
    """CAL-009, protocol, defaults: 8; and at in-flight 1 a plugin can still ask."""

    async def main() -> None:
        async with hosting() as watched:
            launch = replace(granted("tool"), limits=LaunchLimits(threads=16))
            route = watched.host.add(launch)

            async def again(what: Asked) -> Any:
                return await tool(route, "ask", adapter="tool", method="again", args=None)

            watched.host.offer("tool", again)
            depth, answer = 0, await again(Asked("", "", 0, "", None, {}))
            while type(answer[0]) is list and type(answer[0][0]) is list:
                depth, answer = depth + 1, answer[0]
            assert (depth, answer[0][0]) == (8, "resource_exhausted")
        async with hosting() as watched:
            launch = replace(granted("secret:TOKEN"), limits=LaunchLimits(inflight=1))
            route = watched.host.add(launch)
            args = {"name": "TOKEN"}
            answer = await tool(route, "ask", adapter="secret", method="get", args=args)
            assert answer == [{"value": "s3cr3t-value"}]

    running(main)


def test_a_callback_ends_with_the_call_that_asked(tmp_path: Path) -> None:
    """H41: by its deadline, its cancel, or the end of the plugin; no task is left."""
    ended: list[str] = []
    begun = asyncio.Event()

    async def memory(what: Asked) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(what.method)
            raise

    async def main() -> None:
        async with hosting() as watched:
            watched.host.offer("memory", memory)
            route = watched.host.add(granted("memory"))
            await route.start()
            ask = {"adapter": "memory", "args": None}
            error = await failing(tool(route, "ask", timeout_s=0.2, method="deadline", **ask))
            assert error.code == "deadline_exceeded"
            await until(lambda: ended == ["deadline"])
            assert route.status().state == "ready" and await tool(route, "echo", value=1) == 1
            begun.clear()
            given_up = asyncio.create_task(tool(route, "ask", method="cancel", **ask))
            await begun.wait()
            given_up.cancel()
            await until(lambda: ended == ["deadline", "cancel"])
            begun.clear()
            cut = asyncio.create_task(failing(tool(route, "ask", method="stop", **ask)))
            await begun.wait()
            await route.stop(drain_s=0.0)
            assert (await cut).code == "retired"
            assert ended == ["deadline", "cancel", "stop"]

    running(main)
