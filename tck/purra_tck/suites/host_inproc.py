"""FRM-018 and CAP-008: hosts whose plugins are in the same process, where nothing but care keeps
the two apart. The plugins here are ordinary ones, made with the SDK.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.suites.host_values import ROUGH, same
from purra_tck.vectors import good_values
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("FRM-018", "CAP-008")

CANARY: Final = "PURRA_TCK_ENV_CANARY"
MIRROR: Final = """
import math
from purra_sdk import Plugin, tool

KEPT = {}
ROUGH = [
    math.nan, math.inf, {"a": [-math.inf]}, 2**63, [-(2**63) - 1], {1: 2}, {b"a": 1}, {1, 2},
    "\\ud800", object(),
]

@tool(effect="pure")
def t(call, what, value=None, n=0):
    KEPT["calls"] = KEPT.get("calls", 0) + 1
    if what == "keep":
        KEPT["got"] = value
        return value
    if what == "change":
        KEPT["got"]["list"].append("by the plugin")
        call.setup.config["list"].append("by the plugin")
    if what == "rough":
        return {"x": ROUGH[n]}
    if what == "calls":
        return KEPT["calls"]
    if what == "config":
        return call.setup.config
    return KEPT.get("got")

@tool(effect="pure")
def u(call, n):
    yield "first"
    yield {"x": ROUGH[n]}

plugin = Plugin(tools=[t, u])
"""
PROBE: Final = f"""
import os, pathlib, socket, subprocess
from purra_sdk import Plugin, tool

@tool(effect="pure")
def t(call, path, port, pid):
    tries = {{
        "fs": lambda: pathlib.Path(path).read_text(),
        "net": lambda: socket.create_connection(("127.0.0.1", port), 2).close() or "connected",
        "exec": lambda: subprocess.run(["/bin/true"], timeout=5).returncode or "run",
        "ipc": lambda: os.kill(pid, 0) or "signalled",
        "env": lambda: os.environ[{CANARY!r}],
    }}
    found = {{}}
    for axis, attempt in tries.items():
        try:
            found[axis] = str(attempt())
        except Exception as error:
            found[axis] = ""
    return found

plugin = Plugin(tools=[t])
"""
TRIED: Final = ("fs", "net", "exec", "ipc", "env")


async def _plugin(subject: HostSubject, name: str, text: str, **spec: Any) -> Act:
    """An ordinary plugin. Its module's name is its own: what was imported once stays."""
    module = f"{name}_{subject.folder.name.removeprefix('tck-')}"
    return await subject.act(
        id=name, entry=f"{module}:plugin", files={f"{module}.py": text}, **spec
    )


async def _says(act: Act, what: str, **arguments: Any) -> Any:
    return await act.ask({"arguments": {"what": what, **arguments}}).answer()


@CHECKS.rule("FRM-018")
@hosted
async def the_same_values_pass_and_no_object(case: Case, subject: HostSubject) -> None:
    """Each good value comes back, each other one is refused on either side; and what one side does
    to an object of its own is not seen by the other.
    """
    config = {"list": ["as configured"]}
    offers = (("tool", "t"), ("tool", "u"))
    act = await _plugin(subject, "mirror", MIRROR, offers=offers, config=config)
    for good in good_values():
        if not good.name.startswith("nested 6"):  # inside the map of arguments it would be more
            back = await _says(act, "keep", value=good.value)
            case.require(same(back, good.value), f"{good.name}, as it was", f"{back!r:.80}")
    before = await _says(act, "calls")
    for name, value in ROUGH:
        error = await act.ask({"arguments": {"what": "keep", "value": value}}).fails(
            "invalid_argument"
        )
        case.equal(error.executed, "no", f"executed of a call whose arguments hold {name}")
    case.equal(await _says(act, "calls") - before, 1, "calls that the plugin saw meanwhile")
    for number, (name, _) in enumerate(ROUGH):
        rough = act.ask({"arguments": {"what": "rough", "n": number}})
        await rough.fails("contract_violation")
        items, failed = await act.stream({"arguments": {"n": number}}, adapter="u").rest()
        code = None if failed is None else failed.code
        case.equal(
            (items, code), (["first"], "contract_violation"), f"a stream with {name} as an item"
        )
    await _nothing_shared(case, act, config)


async def _nothing_shared(case: Case, act: Act, config: dict[str, list[str]]) -> None:
    value = {"list": [1]}
    asked = act.ask({"arguments": {"what": "keep", "value": value}})
    await act.settled()
    value["list"].append(2)
    answer = await asked.answer()
    case.equal(answer, {"list": [1]}, "the answer after its caller changed what it had sent")
    await _says(act, "change")
    case.equal(answer, {"list": [1]}, "the answer after the plugin changed what it had returned")
    case.equal(value, {"list": [1, 2]}, "what was sent after the plugin changed what it got")
    answer["list"].append("by the caller")
    kept = await _says(act, "show")
    case.equal(kept, {"list": [1, "by the plugin"]}, "what the plugin kept")
    due = {"list": ["as configured"]}
    case.equal(config, due, "the host's configuration after the plugin changed its own")
    await act.stop()
    await act.start().value()
    case.equal(await _says(act, "config"), due, "the configuration of the next instance")


@CHECKS.rule("CAP-008")
@hosted
async def isolation_is_what_it_is_called(case: Case, subject: HostSubject) -> None:
    """A plugin that was granted nothing tries each axis. What it reaches must not be told as
    enforced, and no axis may be passed over in silence.
    """
    secret = subject.folder / "canary"
    secret.write_text("of the host", encoding="utf-8")
    os.environ[CANARY] = "of the host"
    act = await _plugin(subject, "probe", PROBE, isolation="standard")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            where = {"path": str(secret), "port": server.getsockname()[1], "pid": os.getpid()}
            reached: dict[str, str] = await act.ask({"arguments": where}).answer()
    finally:
        del os.environ[CANARY]
    told = (await act.status()).isolation
    for axis in TRIED:
        claim = told.get(axis, "")
        case.require(bool(claim), f"a word on the isolation of {axis}", f"none in {dict(told)}")
        if not claim.startswith(("none", "best effort", "granted")):
            case.equal(reached[axis], "", f"what is reached by {axis}, which is told as {claim!r}")
        case.saw(f"{axis}: {claim}; reached: {reached[axis] or 'nothing'}")
