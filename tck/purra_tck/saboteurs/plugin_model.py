"""Models that are broken in one way each, and those that must pass."""

from __future__ import annotations

from typing import Any

from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.plugin_parts import Parts, made, universal
from purra_tck.saboteurs.plugin_teller import TELLER

__all__ = ["REFERENCES", "SABOTEURS"]

# --- a model without a provider -------------------------------------------------------------------

_LOCAL_MANIFEST = """
schema = "purra.plugin/1"
id = "parrot"
version = "1.0.0"
summary = "Repeats what it hears"

[host]
kind = "process"
entry = "purra_plugin_parrot.parrot:plugin"

[[provides]]
kind = "model"
name = "parrot"
summary = "Repeats what it hears"
"""

_LOCAL_CODE = """
from purra_sdk import Plugin, PluginError, model
from purra_sdk.items import content, finish, usage


@model("parrot")
class Parrot:
    def profile(self, call):
        return {"window": 8000, "output_limit": 1000, "features": []}

    def generate(self, call, request):
        for name in ("params", "tools"):
            if request[name]:
                raise PluginError("unimplemented", f"this model takes no {name}")
        answer = "You said: " + request["messages"][-1]["content"]
        most = request["max_tokens"] * 4
        for at in range(0, min(len(answer), most), 4):
            yield content(answer[at : min(at + 4, most)])
        yield usage(None, None)
        yield finish("length" if len(answer) > most else "stop")


plugin = Plugin(models=[Parrot])
"""

PARROT = Parts(
    package="purra_plugin_parrot",
    module="parrot",
    manifest=_LOCAL_MANIFEST.strip() + "\n",
    code=_LOCAL_CODE,
    offers=(("model", "parrot"),),
)


def _class(base: str, name: str, body: str) -> str:
    lines = "\n".join(f"    {line}".rstrip() for line in body.strip().splitlines())
    return (
        f'@model("{name}")\nclass Broken({base}):\n{lines}\n\n\nplugin = Plugin(models=[Broken])\n'
    )


def _remote(body: str) -> Parts:
    return TELLER.changed(_class("Teller", "teller", body))


def _local(body: str) -> Parts:
    return PARROT.changed(_class("Parrot", "parrot", body))


_ROLES = """
def body(self, request):
    merged = []
    for message in request["messages"]:
        if merged and message["role"] in ("tool", "user") and merged[-1]["role"] == "user":
            merged[-1]["content"] += "\\n" + message["content"]
        else:
            role = "user" if message["role"] in ("system", "tool") else message["role"]
            merged.append({**message, "role": role})
    return super().body({**request, "messages": merged})
"""
_ASCII = """
def body(self, request):
    plain = [{**m, "content": m["content"].encode("ascii", "ignore").decode()}
             for m in request["messages"]]
    return super().body({**request, "messages": plain})
"""
_NO_TOOLS = """
def body(self, request):
    return super().body({**request, "tools": []})
"""
_MANY_ENDS = """
def items(self, told):
    yield from super().items(told)
    if "say" in told:
        yield finish("stop", "")
"""
_NO_END = """
def items(self, told):
    return (item for item in super().items(told) if item["t"] != "finish")

async def generate(self, call, request):
    async for line in self.provider.lines(self.body(request)):
        for item in self.items(json.loads(line)):
            yield item
"""
_DELTAS = """
async def generate(self, call, request):
    so_far = ""
    async for item in super().generate(call, request):
        if item["t"] == "content":
            so_far += item["text"]
            item = content(so_far)
        yield item
"""
_STRIPS = """
def items(self, told):
    if "say" in told:
        told = {"say": told["say"].strip()}
    return super().items(told)
"""
_UTF8 = """
def __init__(self, setup):
    super().__init__(setup)
    provider = self.provider

    async def read_lines(reader):
        text = ""
        async for chunk in provider.read_chunks(reader):
            text += chunk.decode("utf-8", "replace")
        for line in text.splitlines():
            yield line

    provider.read_lines = read_lines
"""
_MERGES = """
def items(self, told):
    if "call" in told:
        told = {"call": {**told["call"], "index": 0}}
    return super().items(told)
"""
_SAME_ID = """
def items(self, told):
    if told.get("call", {}).get("id"):
        told = {"call": {**told["call"], "id": "call"}}
    return super().items(told)
"""
_EMPTY_ARGS = """
async def generate(self, call, request):
    texts = {}
    async for item in super().generate(call, request):
        if item["t"] == "call":
            head = texts.setdefault(item["index"], {"id": "", "name": "", "arguments": ""})
            for key in head:
                head[key] += item.get(key) or ""
            continue
        if item["t"] == "finish":
            for index, head in texts.items():
                try:
                    json.loads(head["arguments"])
                except ValueError:
                    head["arguments"] = "{}"
                yield tool_call(index, **head)
        yield item
"""
_LENGTH = """
def items(self, told):
    if "end" in told:
        told = {**told, "end": "calls" if told["end"] == "calls" else "done"}
    return super().items(told)
"""
_UNKNOWN_IS_STOP = """
def items(self, told):
    for item in super().items(told):
        yield finish("stop", "") if item.get("reason") == "other" else item
"""
_ZERO = """
async def generate(self, call, request):
    yield usage(0, 0)
    async for item in super().generate(call, request):
        yield item
"""
_ZERO_FOR_NONE = """
def items(self, told):
    if "used" in told:
        told = {"used": [number or 0 for number in told["used"]]}
    return super().items(told)
"""


def _in_provider(body: str) -> Parts:
    """The reference with another client."""
    lines = "\n".join(f"    {line}".rstrip() for line in body.strip().splitlines())
    start = (
        "def __init__(self, setup):\n    super().__init__(setup)\n    old = self.provider\n"
        "    self.provider = Client.__new__(Client)\n"
        "    self.provider.__dict__.update(old.__dict__)\n"
    )
    broken = _class("Teller", "teller", start)
    return TELLER.changed(f"class Client(Provider):\n{lines}\n\n\n{broken}")


_UNAVAILABLE = """
def refuse(self, status, headers):
    raise PluginError("upstream", f"the provider says {status}")
"""
_NO_WAIT = """
def refuse(self, status, headers):
    super().refuse(status, {})
"""
_RETRIES = """
async def lines(self, body):
    for left in (2, 1, 0):
        try:
            async for line in super().lines(body):
                yield line
            return
        except PluginError as error:
            if not left or error.code not in ("upstream", "rate_limited"):
                raise
"""
_DRAINS = """
async def lines(self, body):
    queue = asyncio.Queue()

    async def drain():
        try:
            async for line in Provider.lines(self, body):
                queue.put_nowait(line)
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    self.kept.append(asyncio.create_task(drain()))
    while (line := await queue.get()) is not None:
        if isinstance(line, Exception):
            raise line
        yield line

kept = []
"""
_BLOCKS = """
async def lines(self, body):
    import http.client
    link = http.client.HTTPConnection(self.host, self.port, timeout=30)
    link.request("POST", "/generate", body, {"Authorization": f"Bearer {self.key}"})
    answer = link.getresponse()
    if answer.status != 200:
        self.refuse(answer.status, {})
    for line in answer:
        yield line
"""
_EOF = """
async def read_chunks(self, reader):
    try:
        async for chunk in super().read_chunks(reader):
            yield chunk
    except (EOFError, OSError, ValueError):
        yield b'{"end": "done"}\\n'
"""
_SHOWS_KEY = """
def refuse(self, status, headers):
    raise PluginError("failed_precondition", f"{status} for {vars(self)}")
"""
_SHARED = """
answer = None

async def generate(self, call, request):
    body = self.body(request)
    async for line in self.provider.lines(body):
        for item in self.items(json.loads(line)):
            if item["t"] == "content" and item["text"].startswith("tck"):
                self.answer = item["text"]
                await asyncio.sleep(0.005)
                item = content(self.answer)
            yield item
"""
_DROPS = """
def body(self, request):
    return super().body({**request, "params": {}})
"""
_VISION = """
def profile(self, call):
    return {**super().profile(call), "features": [*FEATURES, "vision"]}
"""
_NO_CLAIM = """
def profile(self, call):
    return {**super().profile(call), "features": ["reasoning"]}
"""
_THINKS_ALOUD = """
def items(self, told):
    if "think" in told:
        told = {"say": told["think"]}
    return super().items(told)
"""

# The parrot's own.
_DEAF = """
def generate(self, call, request):
    import time
    time.sleep(3)
    yield finish("stop")
"""
_CUT_IN_SILENCE = """
def generate(self, call, request):
    for item in super().generate(call, request):
        yield finish("stop") if item["t"] == "finish" else item
"""
_TRUE_TOKENS = """
def generate(self, call, request):
    for item in super().generate(call, request):
        yield {"t": "usage", "input_tokens": -1, "output_tokens": 2.5} if (
            item["t"] == "usage") else item
"""
_REMEMBERS = """
last = ""

def generate(self, call, request):
    before, self.last = self.last, request["messages"][-1]["content"]
    yield content(before + " ")
    yield from super().generate(call, request)
"""
_TAKES_TOOLS = """
def generate(self, call, request):
    yield from super().generate(call, {**request, "tools": []})
"""
_SLOW = """
async def generate(self, call, request):
    await asyncio.sleep(0.1)
    async for item in super().generate(call, request):
        yield item
"""


def _on(parts: Parts, name: str, rule: str, message: str) -> Saboteur:
    return Saboteur(name, (rule,), message, made(parts))


REFERENCES: dict[str, Any] = {"teller": made(TELLER), "parrot": made(PARROT)}
SABOTEURS: tuple[Saboteur, ...] = (
    _on(_remote(_NO_TOOLS), "drops-tools", "MOD-001", "the tool's name reaches the provider"),
    _on(_remote(_ROLES), "merges-roles", "MOD-002", "a system message stays one"),
    _on(_remote(_ASCII), "ascii-only", "MOD-002", "every character of"),
    _on(_remote(_MANY_ENDS), "finish-in-every-chunk", "MOD-003", "an answer with one finish"),
    _on(_remote(_NO_END), "no-finish", "MOD-003", "an answer with one finish"),
    _on(_remote(_DELTAS), "wrong-deltas", "MOD-004", "text = 'HelHello"),
    _on(_remote(_STRIPS), "strips-pieces", "MOD-004", "text = 'Hello"),
    _on(_remote(_UTF8), "splits-UTF8", "MOD-005", "arguments of call 0"),
    _on(_remote(_MERGES), "merges-parallel-calls", "MOD-005", "teller"),
    _on(_remote(_SAME_ID), "one-id-for-all", "MOD-005", "an id of its own"),
    _on(_remote(_EMPTY_ARGS), "empty-args-on-error", "MOD-006", "'{}'"),
    _on(_remote(_LENGTH), "length-as-stop", "MOD-007", "reason of 'length'"),
    _on(_remote(_UNKNOWN_IS_STOP), "unknown-as-stop", "MOD-007", "reason of 'tck_strange'"),
    _on(_local(_CUT_IN_SILENCE), "cut-in-silence", "MOD-007", "ends with `length`"),
    _on(_remote(_ZERO), "usage-zero", "MOD-008", "(0, 0)"),
    _on(_remote(_ZERO_FOR_NONE), "zero-for-unknown", "MOD-008", "(11, 0)"),
    _on(_local(_TRUE_TOKENS), "usage-below-zero", "MOD-008", "is a whole number or null"),
    _on(_in_provider(_UNAVAILABLE), "all-errors-unavailable", "MOD-009", "code of 429"),
    _on(_in_provider(_NO_WAIT), "forgets-retry-after", "MOD-009", "wait of 429"),
    _on(_in_provider(_RETRIES), "sdk-retries-3", "MOD-010", "connections for"),
    _on(_in_provider(_DRAINS), "drains-in-background", "MOD-011", "a cancel closes"),
    _on(_local(_DEAF), "deaf-to-cancel", "MOD-011", "a cancelled answer ends within"),
    _on(_in_provider(_BLOCKS), "read-timeout-only", "MOD-012", "the connection is closed within"),
    _on(_in_provider(_EOF), "EOF-is-stop", "MOD-013", "is an error"),
    _on(_remote(_DROPS), "drops-temperature", "MOD-014", "is refused"),
    _on(_remote(_SHARED), "self.last_response", "MOD-015", "the answer to its own question"),
    _on(_local(_REMEMBERS), "remembers-the-last", "MOD-015", "belongs to another one"),
    _on(_in_provider(_SHOWS_KEY), "repr-client", "MOD-016", "the key is in no item and no error"),
    _on(_remote(_VISION), "claims-vision", "MOD-017", "['vision']"),
    _on(_remote(_NO_CLAIM), "tools-without-claim", "MOD-017", "it does not claim `tools`"),
    _on(_remote(_THINKS_ALOUD), "thinks-aloud", "MOD-017", "reasoning comes as reasoning"),
    _on(_local(_TAKES_TOOLS), "ignores-tools", "MOD-017", "it does not claim `tools`"),
    Saboteur("slow-100ms", ("MOD-*",), "", made(_remote(_SLOW)), dies="never"),
    *(
        Saboteur(name, ("MOD-00*",), "", opened, dies="any", timeout_s=2.0)
        for name, opened in universal(TELLER).items()
    ),
)
