"""The reference of the model suite: a client of a provider that speaks a line of JSON per piece."""

from __future__ import annotations

from purra_tck.saboteurs.plugin_parts import Parts

__all__ = ["TELLER"]

_MANIFEST = """
schema = "purra.plugin/1"
id = "teller"
version = "1.0.0"
summary = "A client of a small provider"

[host]
kind = "process"
entry = "purra_plugin_teller.teller:plugin"

[config.url]
type = "string"

[capabilities]
network = "any"
host = ["secret:TELLER_KEY"]

[limits]
inflight = 64

[[provides]]
kind = "model"
name = "teller"
summary = "Says what its provider says"
"""

_CODE = '''
import asyncio
import json

from purra_sdk import Plugin, PluginError, model
from purra_sdk.items import content, finish, reasoning, tool_call, usage

REASONS = {"done": "stop", "max": "length", "calls": "tool_calls", "blocked": "filtered"}
CODES = {400: "invalid_argument", 401: "failed_precondition", 403: "failed_precondition",
         404: "not_found", 413: "invalid_argument", 422: "invalid_argument", 429: "rate_limited"}
FEATURES = ["tools", "parallel_tools", "reasoning"]


class Provider:
    """One request; the connection ends with it, however it ends."""

    def __init__(self, url, key):
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port, self.key = int(port), key

    async def lines(self, body):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(self.head(body) + body)
            await writer.drain()
            status, headers = await self.read_head(reader)
            if status != 200:
                self.refuse(status, headers)
            async for line in self.read_lines(reader):
                yield line
        except (OSError, EOFError, ValueError) as error:
            raise PluginError("upstream", f"the answer broke off: {type(error).__name__}") from None
        finally:
            writer.close()

    def head(self, body):
        return (f"POST /generate HTTP/1.1\\r\\nHost: {self.host}\\r\\n"
                f"Authorization: Bearer {self.key}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
                ).encode()

    async def read_head(self, reader):
        first, *rest = (await reader.readuntil(b"\\r\\n\\r\\n")).decode().split("\\r\\n")
        pairs = (line.partition(":") for line in rest)
        headers = {name.lower(): text.strip() for name, _, text in pairs}
        return int(first.split()[1]), headers

    def refuse(self, status, headers):
        after = headers.get("retry-after")
        raise PluginError(CODES.get(status, "upstream"), f"the provider says {status}",
                          after_ms=int(after) * 1000 if after else None)

    async def read_lines(self, reader):
        waiting = b""
        async for chunk in self.read_chunks(reader):
            *lines, waiting = (waiting + chunk).split(b"\\n")
            for line in lines:
                yield line

    async def read_chunks(self, reader):
        while size := int(await reader.readuntil(b"\\r\\n"), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)


@model("teller")
class Teller:
    def __init__(self, setup):
        self.provider = Provider(setup.config["url"], setup.secrets["TELLER_KEY"])

    def profile(self, call):
        return {"window": 100000, "output_limit": 4000, "features": FEATURES}

    def body(self, request):
        if request["params"]:
            raise PluginError("unimplemented", f"no parameters: {', '.join(request['params'])}")
        asked = {name: request[name] for name in ("messages", "tools", "max_tokens")}
        return json.dumps(asked, ensure_ascii=False).encode()

    async def generate(self, call, request):
        ended = False
        async for line in self.provider.lines(self.body(request)):
            for item in self.items(json.loads(line)):
                ended = ended or item["t"] == "finish"
                yield item
        if not ended:
            raise PluginError("upstream", "the answer has no end")

    def items(self, told):
        if "say" in told:
            yield content(told["say"])
        if "think" in told:
            yield reasoning(told["think"])
        if "call" in told:
            yield tool_call(**told["call"])
        if "used" in told:
            yield usage(*told["used"])
        if "end" in told:
            yield finish(REASONS.get(told["end"], "other"), told["end"])


plugin = Plugin(models=[Teller])
'''

_RENDERING = """
import json

WORDS = {"stop": "done", "length": "max", "tool_calls": "calls", "filtered": "blocked"}


def line(item):
    kind = item["t"]
    if kind == "content":
        return {"say": item["text"]}
    if kind == "reasoning":
        return {"think": item["text"]}
    if kind == "usage":
        return {"used": [item["input_tokens"], item["output_tokens"]]}
    if kind == "finish":
        return {"end": WORDS.get(item["reason"], item["native"])}
    return {"call": {key: value for key, value in item.items() if key != "t"}}


def render(scenario):
    if scenario["kind"] == "error":
        after = scenario["retry_after_s"]
        headers = {"Retry-After": str(after)} if after else {}
        body = json.dumps({"error": scenario["message"]})
        return {"status": scenario["status"], "headers": headers, "chunks": [body]}
    lines = [json.dumps(line(item), ensure_ascii=False) + "\\n" for item in scenario["items"]]
    return {"status": 200, "chunks": lines}
"""

_FIXTURES = """
[config]
url = "{upstream}"

[model]
upstream = "rendering:render"
"""

TELLER = Parts(
    package="purra_plugin_teller",
    module="teller",
    manifest=_MANIFEST.strip() + "\n",
    code=_CODE,
    offers=(("model", "teller"),),
    fixtures=_FIXTURES,
    more={"rendering.py": _RENDERING},
)
