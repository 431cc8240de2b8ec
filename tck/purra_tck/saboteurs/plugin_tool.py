"""Tools that are broken in one way each, and those that must pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from purra.contracts.call import CallContext
from purra.contracts.tool import ToolResult, Tools, ToolSchema
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.plugin_manifest import mending
from purra_tck.saboteurs.plugin_notes import NOTES
from purra_tck.saboteurs.plugin_parts import made, universal
from purra_tck.subjects.plugin import Ways

__all__ = ["REFERENCES", "SABOTEURS"]


class _Port:
    """A port that says something else of its tools, or does something else with arguments."""

    def __init__(self, tools: Tools, **other: Any) -> None:
        self._tools = tools
        self._other = other

    async def catalog(self) -> Sequence[ToolSchema]:
        return [replace(each, **self._other) for each in await self._tools.catalog()]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        return await self._tools.call(name, arguments, context)


class _Coercing(_Port):
    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        fitting = {key: str(value) for key, value in arguments.items()}
        return await self._tools.call(name, fitting, context)


OPEN: Mapping[str, Any] = {"type": "object"}


def _keywords_dropped(table: dict[str, Any]) -> None:
    """A reader that throws away what it does not know."""
    for offer in table["provides"]:
        properties = offer.get("input", {}).get("properties", {})
        if isinstance(properties.get("tck"), dict):
            properties["tck"] = {}


_SHARED_STATE = """
@tool(effect="{effect}", name="{name}")
def broken(call, {parameters}):
{body}


plugin = Plugin(tools=[{tools}])
"""


def _instead(name: str, body: str) -> str:
    """The code of the reference with one tool replaced."""
    effects = {
        "note.read": ("world_read", "name", "broken, add, order, shape"),
        "note.add": ("world_write", "name, text", "read, broken, order, shape"),
        "note.order": ("world_write", "item", "read, add, broken, shape"),
        "note.shape": (
            "pure",
            "kind, sizes, label=None, style=None, fixed='yes'",
            "read, add, order, broken",
        ),
    }
    effect, parameters, tools = effects[name]
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return _SHARED_STATE.format(
        effect=effect, name=name, parameters=parameters, body=lines, tools=tools
    )


_FORGOT_A_PARAMETER = """
@tool(effect="pure", name="note.shape")
def broken(call, kind, sizes, label=None, fixed="yes"):
    return {"kind": kind}


plugin = Plugin(tools=[read, add, order, broken])
"""
_RUNS_ANY = """
class Lenient(dict):
    def get(self, key, default=None):
        return super().get(key) or self["note.shape", "call"]


class Any(Plugin):
    def build(self, setup):
        handlers, closing = super().build(setup)
        return Lenient(handlers), closing


@tool(effect="pure", name="note.shape")
def broken(**arguments):
    return {}


plugin = Any(tools=[read, add, order, broken])
"""
_ERROR_AS_VALUE = _instead(
    "note.read",
    """
try:
    with open(path_of(call, name), encoding="utf-8") as file:
        return {"name": name, "text": file.read()}
except FileNotFoundError as missing:
    return {"error": str(missing)}
""",
)
_NO_STRICT_VALUE = _instead("note.shape", "return {'kind': kind, 'raw': b'bytes'}")
_CLAIMS_CLEAN = _instead(
    "note.add",
    """
for _ in range(100):
    if call.cancelled:
        append(call, name, text)
        raise ToolError("cancelled", effect_state="not_started")
    time.sleep(0.01)
append(call, name, text)
return {"name": name}
""",
)
_WRITES = _instead(
    "note.read",
    """
append(call, "who-asked", name)
with open(path_of(call, "hello"), encoding="utf-8") as file:
    return {"text": file.read()}
""",
)
_NOT_PURE = _instead("note.shape", "return {'kind': kind, 'at': time.time_ns()}")
_UNLOCKED = _instead(
    "note.order",
    """
if item == "refuse me":
    raise ToolError("not that", code="invalid_argument")
if call.key in DONE:
    known, answer = DONE[call.key]
    if known != item:
        raise ToolError("another", code="conflict")
    return answer
time.sleep(0.02)
append(call, "orders", item)
DONE[call.key] = (item, {"item": item})
return {"item": item}
""",
)
_NO_CONFLICT = _instead(
    "note.order",
    """
with LOCK:
    if call.key not in DONE:
        append(call, "orders", item)
        DONE[call.key] = {"item": item}
    return DONE[call.key]
""",
)
_CACHES_FAILURE = _instead(
    "note.order",
    """
with LOCK:
    if call.key not in DONE:
        if item == "refuse me":
            DONE[call.key] = ToolError("not that", code="invalid_argument")
        else:
            append(call, "orders", item)
            DONE[call.key] = {"item": item}
    if isinstance(DONE[call.key], ToolError):
        raise DONE[call.key]
    return DONE[call.key]
""",
)
_SWAPS = _instead(
    "note.read",
    """
try:
    with open(path_of(call, name), encoding="utf-8") as file:
        mine = {"name": name, "text": file.read()}
except FileNotFoundError:
    raise ToolError("there is no such note", code="not_found") from None
with LOCK:
    if WAITING:
        other = WAITING.pop()
        other.append(mine)
        return other[0]
    place = [mine]
    WAITING.append(place)
for _ in range(20):
    if len(place) > 1:
        return place[1]
    time.sleep(0.01)
with LOCK:
    if place in WAITING:
        WAITING.remove(place)
return place[-1]
""",
).replace("@tool", "WAITING = []\n\n\n@tool", 1)
_FLAPS = """
class Flapping(Plugin):
    few = False

    def build(self, setup):
        path = os.path.join(setup.config["root"], "starts")
        self.few = os.path.exists(path)
        open(path, "w").close()
        return super().build(setup)

    def offers(self):
        return super().offers()[:-1] if self.few else super().offers()


plugin = Flapping(tools=[read, add, order, shape])
"""
_ACCEPTS = _instead("note.add", "return {'name': name, 'added': 0}")
_ONCE_ONLY = _instead(
    "note.add",
    """
if text == "refuse me":
    raise ToolError("not that", code="invalid_argument")
if os.path.exists(path_of(call, name)):
    raise ToolError("it is there already", code="conflict")
append(call, name, text)
return {"name": name}
""",
)
_SLOW = """
def slowly(function):
    @functools.wraps(function)
    def run(call, **arguments):
        time.sleep(0.1)
        return function(call, **arguments)

    return run


import functools
plugin = Plugin(tools=[slowly(each) for each in (read, add, order, shape)])
"""


def _patched(name: str, rule: str, message: str, patch: str, **how: Any) -> Saboteur:
    return Saboteur(name, (rule,), message, made(NOTES.changed(patch)), **how)


def _ported(name: str, rule: str, message: str, kind: type[_Port], **other: Any) -> Saboteur:
    ways = Ways(tools=lambda tools: kind(tools, **other))
    return Saboteur(name, (rule,), message, made(NOTES, ways))


REFERENCES: dict[str, Any] = {"notes": made(NOTES)}
SABOTEURS: tuple[Saboteur, ...] = (
    Saboteur(
        "uses-$ref-anyway",
        ("TOL-001",),
        "'$ref' is not in the admitted subset",
        made(NOTES.changed("", ('fixed = { const = "yes" }', 'fixed = { "$ref" = "#/$defs/x" }'))),
    ),
    Saboteur(
        "drops-keywords",
        ("TOL-001",),
        "the keyword $ref: accepted",
        made(NOTES, mending(_keywords_dropped)),
    ),
    _ported("validates-late", "TOL-002", "never reach the handler", _Port, parameters=OPEN),
    _patched("forgets-a-parameter", "TOL-002", "takes what its schema admits", _FORGOT_A_PARAMETER),
    _ported("coerces-strings", "TOL-003", "is refused, with no effect", _Coercing, parameters=OPEN),
    _patched("runs-any", "TOL-004", "the plugin refuses the tool", _RUNS_ANY),
    _patched("error-string-as-ok", "TOL-005", "a failure says is_error", _ERROR_AS_VALUE),
    _patched("gives-bytes", "TOL-005", "a strict value", _NO_STRICT_VALUE),
    _patched(
        "cancel-ignored-claims-clean", "TOL-006", "says `not_started` has changed", _CLAIMS_CLEAN
    ),
    _patched("read-that-writes", "TOL-007", "its effect is 'world_read'", _WRITES),
    _patched("pure-that-looks-at-clocks", "TOL-007", "a pure tool gives one answer", _NOT_PURE),
    _patched("unlocked-dict", "TOL-008", "calls at once with one key leave", _UNLOCKED),
    _patched("first-wins", "TOL-008", "are a `conflict`", _NO_CONFLICT),
    _patched("caches-failure", "TOL-009", "the same key can be used", _CACHES_FAILURE),
    _ported(
        "parallel-serial-tool",
        "TOL-010",
        "its calls do not overlap",
        _Port,
        concurrency="parallel",
        shared=True,
    ),
    _patched("completion-order", "TOL-011", "the same result in a batch as alone", _SWAPS),
    _patched("list-flaps", "TOL-012", "not offered: tool note.shape", _FLAPS),
    _patched("accepts-invalid", "TOL-013", "is refused: it is invalid", _ACCEPTS),
    _patched("works-once", "TOL-013", "works again: it is safe", _ONCE_ONLY),
    Saboteur("slow-100ms", ("TOL-*",), "", made(NOTES.changed(_SLOW)), dies="never"),
    *(
        Saboteur(name, ("TOL-00[2-7]*",), "", opened, dies="any", timeout_s=2.0)
        for name, opened in universal(NOTES).items()
    ),
)
